"""NeuralSurv with a network of the user's own: every kind of network, every method."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from torch import Tensor, nn

from modules import CASES, Case, Perceptron
from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import InputError
from neuralsurv.inference.default.module_training import ModuleTraining
from neuralsurv.model.hazard import Constant
from small_cohort import small_cohort

ROWS = 50
TIMES = [0.0, 0.2, 0.5, 1.0, 2.0]


def outcome(rows: int = ROWS) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    return rng.exponential(1.0, rows), rng.random(rows) < 0.8


def own_model(case: Case, *, bayesian: Any = "all", **settings: Any) -> NeuralSurv:
    common = {"average": False, "quadrature_points": 5, "draws": 40, "verbose": False, "random_state": 0}
    network = OwnNetwork(case.make(), epochs=2, bayesian=bayesian)
    return NeuralSurv(**{"network": network} | common | settings)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_kind_gives_curves_and_a_bound_that_never_falls(case):
    X = case.inputs(ROWS)
    model = own_model(case).fit(X, outcome())
    curves = model.predict_survival(X, TIMES)
    values = curves.draws
    assert values.shape == (40, ROWS, len(TIMES))
    assert np.isfinite(values).all()
    assert (values[:, :, 0] == 1).all()
    assert (np.diff(values, axis=2) <= 0).all()
    assert (values > 0).all()
    assert (np.diff(model.elbo_) >= -1e-9 * np.abs(model.elbo_[1:])).all()
    assert len(curves.mean) == ROWS


class Shifted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Perceptron(3, (2,))

    def forward(self, t: Tensor, x: Tensor) -> Tensor:
        return self.inner(t, x) + 1.0


class TestTheOrigin:
    def test_g_is_measured_from_the_middle_of_the_prior(self):
        case = Case("shifted", Shifted)
        model = own_model(case).fit(case.inputs(30), outcome(30))
        assert model.posterior_.normaliser == Constant(1 / 100)
        network = model.posterior_.network
        x = torch.from_numpy(model.encoding_.transform(case.inputs(3)))
        middle = network.value(torch.zeros(network.size).double(), torch.tensor([0.1, 0.5, 1.0]).double(), x)
        assert torch.allclose(torch.sigmoid(middle), torch.full((3,), 1 / 100).double())


class TestSomeWeights:
    def test_only_the_head_is_bayesian(self):
        case = CASES[1]
        model = own_model(case, bayesian="head").fit(case.inputs(ROWS), outcome())
        network = model.posterior_.network
        inner = getattr(network, "inner", network)
        assert inner.names == ("head.weight", "head.bias")
        assert inner.size == 5
        assert "5 Bayesian of 53, 48 only trained, as if known exactly" in str(model.summary())

    def test_frozen_weights_stay_as_they_are(self):
        case = CASES[4]
        model = own_model(case).fit(case.inputs(ROWS), outcome())
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
    widths = [
        np.log(own_model(case, draws=300, bayesian=some).fit(X, y).predict_hazard(**far).draws).std(0).mean()
        for some in ("head", "all")
    ]
    assert widths[0] < widths[1]


class TestScikitLearn:
    def test_clone_copies_the_network_and_set_params_replaces_it(self):
        model = own_model(CASES[1])
        again = clone(model)
        copied, module = again.network.module, model.network.module
        assert copied is not module
        assert all(torch.equal(a, b) for a, b in zip(copied.parameters(), module.parameters(), strict=True))
        other = CASES[1].make(1)
        assert again.set_params(network=other).network is other
        assert again.get_params()["network"] is other
        assert "network=OwnNetwork(" in repr(model)

    def test_its_settings_can_be_searched_over(self):
        model = own_model(CASES[1]).set_params(network__epochs=1, network__learning_rate=0.01)
        assert model.network.training == ModuleTraining(1, 0.01)

    def test_a_bare_module_has_the_usual_settings(self):
        case = CASES[1]
        X, y = case.inputs(ROWS), outcome()
        bare, wrapped = (
            own_model(case, network=network).fit(X, y).predict(X) for network in (case.make(), OwnNetwork(case.make()))
        )
        assert np.array_equal(bare, wrapped)

    def test_fitting_leaves_the_network_alone_and_does_it_again(self):
        case = CASES[1]
        X, y = case.inputs(ROWS), outcome()
        model = own_model(case)
        before = [p.clone() for p in model.network.module.parameters()]
        first = model.fit(X, y).predict(X)
        assert all(torch.equal(a, b) for a, b in zip(before, model.network.module.parameters(), strict=True))
        assert np.array_equal(model.fit(X, y).predict(X), first)

    @pytest.mark.filterwarnings("ignore:the hazard comes close to its ceiling")
    def test_folds(self):
        cohort = small_cohort(60)
        torch.manual_seed(0)
        model = NeuralSurv(
            network=OwnNetwork(Perceptron(2, (3,)), epochs=1),
            average=False,
            quadrature_points=4,
            draws=20,
            random_state=0,
        )
        assert (cross_val_score(model, cohort.x, cohort.y, cv=2) > 0.6).all()


@pytest.fixture(scope="module")
def fitted() -> tuple[NeuralSurv, dict[str, Any]]:
    X = CASES[5].inputs(ROWS)
    X["table"] = pd.DataFrame(X["table"], columns=["age", "dose"], index=[f"p{k}" for k in range(ROWS)])
    return own_model(CASES[5]).fit(X, outcome()), X


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
        again = own_model(CASES[5]).fit(mixed, (time[order], event[order]))
        assert np.allclose(model.predict(X), again.predict(X), rtol=1e-6)

    def test_rows_of_no_weight_are_not_there(self, fitted):
        X = fitted[1]
        weight = np.where(np.arange(ROWS) < 40, 1.0, 0.0)
        time, event = outcome()
        some = {name: part[:40] for name, part in X.items()}
        a = own_model(CASES[5]).fit(X, (time, event), sample_weight=weight)
        b = own_model(CASES[5]).fit(some, (time[:40], event[:40]))
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
        ({"neighbourhoods": 3}, "neighbourhoods=3 does nothing for a network"),
        ({"network": OwnNetwork(Perceptron(3, (2,)), epochs=-1)}, "epochs=-1 must be a whole number of at least 0"),
        ({"network": OwnNetwork(Perceptron(3, (2,)), learning_rate=0)}, "learning_rate=0 must be a positive number"),
        ({"network": OwnNetwork(Perceptron(3, (2,)), device="gpu")}, "device='gpu' is not known to torch"),
        ({"network": OwnNetwork(Perceptron(3, (2,)), bayesian=3)}, "bayesian=3 must be 'all', a name of a part"),
        ({"network": "cnn"}, "network is a str; give a torch.nn.Module"),
    ],
)
def test_refused_settings(settings, words):
    case = CASES[1]
    with pytest.raises(InputError, match=words):
        NeuralSurv(**{"network": case.make(), **settings}).fit(case.inputs(ROWS), outcome())


def test_images_without_a_network_are_refused():
    with pytest.raises(InputError, match=r"X has rows of shape \(2, 2\), which the built-in network cannot read"):
        NeuralSurv().fit(np.random.default_rng(0).random((ROWS, 2, 2)), outcome())
