"""NeuralSurv with a network of the user's: every kind of network, both presets, all doors."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import Tensor, nn

from false_alarm import z_bound
from modules import CASES, Case, Perceptron
from neuralsurv import NeuralSurv
from neuralsurv.data.parts import table_layout
from neuralsurv.errors import InputError
from neuralsurv.inference.choices import resolve
from neuralsurv.inference.paper.fit import choose_normaliser
from neuralsurv.model.hazard import Constant, MonteCarlo
from neuralsurv.model.module_checks import wrap_module
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import WeightPrior
from neuralsurv.prediction.predictor import Predictor
from small_cohort import quick_model, small_cohort

ROWS = 50
TIMES = [0.0, 0.2, 0.5, 1.0, 2.0]


def outcome(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.exponential(1.0, rows), rng.random(rows) < 0.8


def default_model(case: Case, **settings: Any) -> NeuralSurv:
    common = {"epochs": 2, "average": False, "quadrature_points": 5, "draws": 40, "verbose": False, "random_state": 0}
    return NeuralSurv(network=case.make(), **common | settings)


def paper_model(case: Case, **settings: Any) -> NeuralSurv:
    common = {"hidden": None, "activation": None, "starts": None, "mode_tolerance": 1e-4, "quadrature_points": 6}
    return quick_model(network=case.make(), **common | settings)


# The paper's prior lets σ(g) run to its ceiling for some networks; curves and bound have to be right all the same.
@pytest.mark.filterwarnings("ignore::neuralsurv.errors.CollapseWarning")
@pytest.mark.parametrize("make", [default_model, paper_model])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_gives_curves_and_a_bound_that_never_falls(case, make):
    X = case.inputs(ROWS)
    model = make(case).fit(X, outcome())
    curves = model.predict_survival(X, TIMES)
    values = curves.draws
    assert values.shape == (40, ROWS, len(TIMES))
    assert np.isfinite(values).all()
    assert (values[:, :, 0] == 1).all()
    assert (np.diff(values, axis=2) <= 0).all()
    assert (values > 0).all()
    assert (np.diff(model.elbo_) >= -1e-9 * np.abs(model.elbo_[1:])).all()
    assert len(curves.mean) == ROWS


class TestTheWrappedPerceptron:
    """With the paper preset the built-in MLP and the same one as a module have the same posterior."""

    def fitted(self) -> tuple[Any, NeuralSurv, NeuralSurv]:
        cohort = small_cohort()
        torch.manual_seed(0)
        module = Perceptron(2, (4,)).double()
        built_in = MLP(2, (4,), "tanh")
        start = built_in.initial(torch.Generator().manual_seed(0))
        with torch.no_grad():
            for parameter, value in zip(
                module.parameters(), [part for layer in built_in.layers(start) for part in layer], strict=True
            ):
                parameter.copy_(value.reshape(parameter.shape))
        wrapped = quick_model(network=module, hidden=None, activation=None, starts=None).fit(cohort.x, cohort.y)
        # One start for both: the search of the built-in network goes on from where that of the module has ended.
        plain = quick_model(hidden=(4,), warm_start=True).fit(cohort.x, cohort.y)
        plain.fitted_ = replace(plain.fitted_, posterior=wrapped.posterior_)
        plain.fit(cohort.x, cohort.y)
        return cohort, plain, wrapped

    def test_it_has_the_same_posterior(self):
        cohort, plain, wrapped = self.fitted()
        assert isinstance(plain.posterior_.network, MLP)
        assert isinstance(wrapped.posterior_.normaliser, Constant)
        assert np.isclose(plain.elbo_[-1], wrapped.elbo_[-1], atol=1e-4)
        times = np.linspace(0.1, 2, 5)
        for a, b in zip(
            (plain.predict_survival(cohort.x, times).mean, *plain.predict_survival(cohort.x, times).interval(0.9)),
            (wrapped.predict_survival(cohort.x, times).mean, *wrapped.predict_survival(cohort.x, times).interval(0.9)),
            strict=True,
        ):
            assert np.allclose(a, b, atol=1e-4)


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Perceptron(3, (2,))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.inner(t, x) + 1.0


class TestTheNormaliser:
    def test_without_symmetry_it_is_the_average_over_the_prior(self):
        X = torch.from_numpy(Case("shifted", Shifted).inputs(2))
        network = wrap_module(Shifted(), table_layout(3), X)
        choices = resolve("paper")
        assert not network.symmetric
        normaliser = choose_normaliser(choices, network, WeightPrior.isotropic(network.size), seed=3)
        assert isinstance(normaliser, MonteCarlo)
        time = torch.tensor([0.1, 0.7]).double()
        draws = torch.from_numpy(np.random.default_rng(5).normal(size=(1000, network.size)))
        values = torch.stack([torch.sigmoid(network.value(theta, time, X)) for theta in draws])
        # Two independent averages over 1,000 draws each.
        error = values.std(0) * (2 / 1000) ** 0.5
        assert bool(((normaliser(time, X) - values.mean(0)).abs() < z_bound(2) * error).all())
        # Far from the half that a symmetric network has.
        assert bool((values.mean(0) > 0.55).all())

    def test_half_is_refused_without_symmetry(self):
        case = Case("shifted", Shifted)
        with pytest.raises(InputError, match="normaliser='half' is only right for a network whose prior is symmetric"):
            paper_model(case, normaliser="half").fit(case.inputs(30), outcome(30))

    def test_the_default_preset_measures_g_from_the_middle_of_the_prior(self):
        case = Case("shifted", Shifted)
        model = default_model(case).fit(case.inputs(30), outcome(30))
        assert model.posterior_.normaliser == Constant(1 / 30)
        network = model.posterior_.network
        x = torch.from_numpy(model.encoding_.transform(case.inputs(3)))
        middle = network.value(torch.zeros(network.size).double(), torch.tensor([0.1, 0.5, 1.0]).double(), x)
        assert torch.allclose(torch.sigmoid(middle), torch.full((3,), 1 / 30).double())


@pytest.mark.parametrize("make", [default_model, paper_model])
class TestSomeWeights:
    def test_only_the_head_is_bayesian(self, make):
        case = CASES[1]
        model = make(case, bayesian="head").fit(case.inputs(ROWS), outcome())
        network = model.posterior_.network
        inner = getattr(network, "inner", network)
        assert inner.names == ("head.weight", "head.bias")
        assert inner.size == 5
        assert "5 Bayesian of 53, 48 only trained, as if known exactly" in str(model.summary())

    def test_frozen_weights_stay_as_they_are(self, make):
        case = CASES[4]
        model = make(case).fit(case.inputs(ROWS), outcome())
        network = model.posterior_.network
        inner = getattr(network, "inner", network)
        before = case.make().encoder[0].weight.double()
        assert torch.equal(inner.module.encoder[0].weight, before)
        assert "6 Bayesian of" not in str(model.summary())
        assert "7 Bayesian of 27" in str(model.summary())


def test_bands_are_narrower_with_a_bayesian_head_alone():
    case = CASES[1]
    X, y = case.inputs(ROWS), outcome()
    far = {"X": 4 * X[:10], "times": [1.0]}
    models = [paper_model(case, bayesian=some).fit(X, y) for some in ("head", "all")]
    widths = [Predictor.from_fitted(model.fitted_, draws=300).g(**far).draws.std(0).mean() for model in models]
    assert widths[0] < 0.5 * widths[1]


class TestScikitLearn:
    def test_clone_copies_the_network_and_set_params_replaces_it(self):
        model = default_model(CASES[1])
        again = clone(model)
        assert again.network is not model.network
        assert all(
            torch.equal(a, b) for a, b in zip(again.network.parameters(), model.network.parameters(), strict=True)
        )
        other = CASES[1].make(1)
        assert again.set_params(network=other).network is other
        assert again.get_params()["network"] is other
        assert "network=Residual(" in repr(model)

    def test_fitting_leaves_the_network_alone_and_does_it_again(self):
        case = CASES[1]
        X, y = case.inputs(ROWS), outcome()
        model = default_model(case)
        before = [p.clone() for p in model.network.parameters()]
        first = model.fit(X, y).predict(X)
        assert all(torch.equal(a, b) for a, b in zip(before, model.network.parameters(), strict=True))
        assert np.array_equal(model.fit(X, y).predict(X), first)

    @pytest.mark.filterwarnings("ignore:the hazard comes close to its ceiling")
    def test_folds(self):
        cohort = small_cohort(60)
        torch.manual_seed(0)
        model = NeuralSurv(
            network=Perceptron(2, (3,)), epochs=1, average=False, quadrature_points=4, draws=20, random_state=0
        )
        assert (cross_val_score(model, cohort.x, cohort.y, cv=2) > 0.6).all()


@pytest.fixture(scope="module")
def fitted() -> tuple[NeuralSurv, dict[str, Any]]:
    X = CASES[5].inputs(ROWS)
    X["table"] = pd.DataFrame(X["table"], columns=["age", "dose"], index=[f"p{k}" for k in range(ROWS)])
    return default_model(CASES[5]).fit(X, outcome()), X


class TestTheDoors:
    """Everything that takes X takes parts."""

    def test_predictions(self, fitted):
        model, X = fitted
        few = {name: part[:4] for name, part in X.items()}
        assert list(model.predict_survival(few, TIMES).mean.index) == ["p0", "p1", "p2", "p3"]
        assert model.predict_median(few).mean.shape[0] == 4
        assert model.predict_rmst(few, 1.0).draws.shape[1] == 4
        assert np.isfinite(model.predict_hazard(few, [0.5]).mean.to_numpy()).all()
        one = {name: part[:1] for name, part in X.items()}
        assert abs(model.predict_difference(few, one, [1.0]).mean.iloc[0, 0]) < 1e-12
        assert len(model.predict_event_time(few).mean) == 4
        assert len(model.predict_survival_function(few)) == 4
        assert 0 <= model.score(X, outcome()) <= 1

    def test_parts_in_another_order_and_of_another_kind_are_the_same_parts(self, fitted):
        model, X = fitted
        turned = {name: X[name] for name in ("code", "table", "image")}
        tensors = turned | {"image": torch.from_numpy(X["image"]), "code": torch.from_numpy(X["code"])}
        assert np.array_equal(model.predict(X), model.predict(tensors))

    def test_the_order_of_rows_does_not_matter(self, fitted):
        model, X = fitted
        order = np.random.default_rng(0).permutation(ROWS)
        time, event = outcome()
        mixed = {name: part.iloc[order] if hasattr(part, "iloc") else part[order] for name, part in X.items()}
        again = default_model(CASES[5]).fit(mixed, (time[order], event[order]))
        assert np.allclose(model.predict(X), again.predict(X), rtol=1e-6)

    def test_rows_of_no_weight_are_not_there(self, fitted):
        X = fitted[1]
        weight = np.where(np.arange(ROWS) < 40, 1.0, 0.0)
        time, event = outcome()
        some = {name: part[:40] for name, part in X.items()}
        a = default_model(CASES[5]).fit(X, (time, event), weight=weight)
        b = default_model(CASES[5]).fit(some, (time[:40], event[:40]))
        assert np.allclose(a.predict(X), b.predict(X))

    def test_missing_parts_are_named(self, fitted):
        model, X = fitted
        with pytest.raises(InputError, match="part 'code' is missing"):
            model.predict({"image": X["image"], "table": X["table"]})
        with pytest.raises(InputError, match="comes as one table, but came as a dict"):
            model.predict(X["table"])

    def test_the_summary_names_the_network(self, fitted):
        text = str(fitted[0].summary())
        assert "ImageAndTable" in text
        assert "40 Bayesian of 40" in text
        assert "epochs of training" in text


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"hidden": (3,)}, r"hidden=\(3,\) does nothing for a network of your own"),
        ({"activation": "tanh"}, "activation='tanh' does nothing for a network"),
        ({"preset": "paper", "starts": 2}, "starts=2 does nothing for a network"),
        ({"preset": "paper", "epochs": 2}, "epochs=2 is not a choice of the preset 'paper'"),
        ({"epochs": -1}, "epochs=-1 must be a whole number of at least 0"),
        ({"learning_rate": 0}, "learning_rate=0 must be a positive number"),
        ({"network": "cnn"}, "network is a str; give a torch.nn.Module"),
        ({"network": None, "epochs": 2}, "epochs=2 only does something for a network of your own"),
        ({"network": None, "bayesian": "head"}, "bayesian='head' only does something for a network"),
        ({"network": None, "device": "cuda"}, "device='cuda' only does something for a network"),
    ],
)
def test_refused_settings(settings, words):
    case = CASES[1]
    with pytest.raises(InputError, match=words):
        NeuralSurv(**{"network": case.make(), **settings}).fit(case.inputs(ROWS), outcome())


def test_images_without_a_network_are_refused():
    with pytest.raises(InputError, match=r"X has rows of shape \(2, 2\), which the built-in network cannot read"):
        NeuralSurv().fit(np.random.default_rng(0).random((ROWS, 2, 2)), outcome())
