"""The nine methods of pycox behind the interface: curves, seeds, stopping, and both variants against pycox itself."""

import pickle
from functools import cache
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from sksurv.metrics import concordance_index_censored

from neuralsurv.errors import InputError
from neuralsurv_bench.methods import pycox_training
from neuralsurv_bench.methods.interface import Rows, Settings, Split
from neuralsurv_bench.methods.pycox_cox import LogRisk, log_baseline, partial_likelihood_loss
from neuralsurv_bench.methods.pycox_discrete import (
    CUTS,
    DiscreteCurves,
    constant_hazard,
    start_without_covariates,
)
from neuralsurv_bench.methods.pycox_training import (
    as_input,
    batch_size,
    find_rate,
    mlp,
    pycox_models,
    pycox_session,
    rows_to_stop_by,
    train,
)

DISCRETE = {
    "MTLR": "mtlr",
    "DeepHit": "deephit",
    "Logistic Hazard": "logistic_hazard",
    "PMF": "pmf",
    "PCHazard": "pchazard",
    "BCESurv": "bcesurv",
}
COX = {"DeepSurv": "deepsurv", "CoxTime": "coxtime", "CoxCC": "coxcc"}
FILES = DISCRETE | COX
VARIANTS = ("as-published", "fair")


def method(name):
    (found,) = import_module(f"neuralsurv_bench.methods.{FILES[name]}").METHODS
    return found


def simulated(rows, seed, slope=1.5):
    """Return rows with an exponential time whose log hazard is `slope` times the first of three covariates."""
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, 3))
    event_time = generator.exponential(100.0 * np.exp(-slope * x[:, 0]))
    censoring = generator.uniform(20.0, 400.0, rows)
    # whole days, so that some times are shared
    return Rows(x, np.ceil(np.minimum(event_time, censoring)), event_time <= censoring)


NOBODY = Rows(np.empty((0, 3)), np.empty(0), np.empty(0, dtype=bool))
SPLIT = Split(simulated(80, 1), simulated(20, 2), simulated(25, 3), ("a", "b", "c"))
GRID = np.linspace(0.0, 450.0, 181)  # beyond the last training time


RANGE_TEST = pycox_training.find_rate


@pytest.fixture(autouse=True)
def known_rate(monkeypatch):
    """Leave out the 100 steps of the range test but where they matter."""
    monkeypatch.setattr(pycox_training, "find_rate", lambda *arguments: 0.01)


@pytest.fixture
def range_test(monkeypatch, known_rate):
    monkeypatch.setattr(pycox_training, "find_rate", RANGE_TEST)


@cache
def fitted(name, variant, seed=0, epochs=8):
    return method(name).fit(SPLIT, Settings(variant=variant, seed=seed), epochs=epochs)


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", FILES)
def test_curves_are_probabilities_and_rows_keep_their_order(name, variant):
    fit = fitted(name, variant)
    x = SPLIT.test.x
    curves = fit.survival(x, GRID)
    assert curves.shape == (25, len(GRID))
    assert fit.risk(x) is None
    known = curves[~np.isnan(curves)]
    assert known.min() >= 0
    assert known.max() <= 1
    assert np.ptp(curves[:, GRID == 100.0]) > 1e-4, "the curves are the same for everybody"
    order = np.random.default_rng(0).permutation(25)
    np.testing.assert_allclose(fit.survival(x[order], GRID), curves[order], atol=1e-6)
    np.testing.assert_allclose(fit.survival(x[7:8], GRID), curves[7:8], atol=1e-6)


@pytest.mark.parametrize("name", FILES)
def test_fair_curves_start_at_one_and_never_rise(name):
    curves = fitted(name, "fair").survival(SPLIT.test.x, GRID)
    assert not np.isnan(curves).any()
    np.testing.assert_array_equal(curves[:, 0], 1.0)
    assert np.diff(curves, axis=1).max() <= 0


@pytest.mark.parametrize("name", COX)
def test_published_cox_curves_are_unknown_before_the_first_training_time(name):
    first = SPLIT.train.time.min()
    times = np.array([0.0, first / 2, np.nextafter(first, 0), first, first + 1, 450.0])
    published = fitted(name, "as-published").survival(SPLIT.test.x, times)
    assert np.isnan(published[:, :3]).all()
    assert not np.isnan(published[:, 3:]).any()
    np.testing.assert_array_equal(fitted(name, "fair").survival(SPLIT.test.x, times)[:, :3], 1.0)


@pytest.mark.parametrize(("name", "variant"), [*((name, "fair") for name in FILES), ("CoxCC", "as-published")])
def test_the_same_seed_gives_the_same_curves(name, variant, range_test):
    curves = []
    for seed in (0, 0, 1):
        torch.manual_seed(len(curves))
        np.random.seed(len(curves))  # noqa: NPY002 - what pycox draws from
        fit = method(name).fit(SPLIT, Settings(variant=variant, seed=seed), epochs=4)
        curves.append(fit.survival(SPLIT.test.x, GRID))
    np.testing.assert_array_equal(curves[0], curves[1])
    assert np.nanmax(np.abs(curves[2] - curves[0])) > 1e-4


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("name", FILES)
def test_a_strong_signal_is_learnt(name, variant):
    split = Split(
        simulated(150, 4, slope=2.0), simulated(60, 5, slope=2.0), simulated(100, 6, slope=2.0), ("a", "b", "c")
    )
    fit = method(name).fit(split, Settings(variant=variant, seed=3), epochs=80)
    at_median = np.array([np.median(split.train.time)])
    concordance = concordance_index_censored(
        split.test.event, split.test.time, -fit.survival(split.test.x, at_median)[:, 0]
    )[0]
    assert concordance > 0.7


def test_published_training_runs_all_epochs_and_fair_stops():
    published = fitted("PMF", "as-published", epochs=30).model
    assert len(published.log.to_pandas()) == 30
    stopped = method("PMF").fit(SPLIT, Settings(seed=0), epochs=300, patience=5).model
    assert 5 < len(stopped.log.to_pandas()) < 300


@pytest.mark.parametrize(
    ("values", "best"),
    [([5.0, 4.0, 3.0, 6.0, 2.5, 7.0, 8.0, 9.0, 1.0], 4), ([5.0, np.nan, 4.0, np.nan, 6.0, 7.0, 1.0], 2)],
)
def test_the_weights_of_the_lowest_validation_loss_come_back(values, best):
    weights = []

    def validation_loss(model):
        weights.append({name: value.clone() for name, value in model.net.state_dict().items()})
        return values[len(weights) - 1]

    def make_model(rate):
        network = mlp(3, 1, (4,), bias=False)
        return pycox_models().CoxPH(network, pycox_training.adam(rate), "cpu")

    rows = SPLIT.train
    target = (as_input(rows.time), as_input(rows.event))
    with pycox_session():
        model = train(
            make_model, as_input(rows.x), target, Settings(seed=0), validation_loss=validation_loss, patience=3
        )
    assert len(weights) == best + 3 + 1, "stops three epochs after the best"
    assert not model.net.training
    for name, value in model.net.state_dict().items():
        torch.testing.assert_close(value, weights[best][name], rtol=0, atol=0)
    assert not torch.equal(weights[best]["net.0.linear.weight"], weights[-1]["net.0.linear.weight"])


def test_training_starts_where_the_range_test_started(range_test):
    starts = []

    def make_model(rate):
        network = mlp(3, 1, (4,), bias=False)
        starts.append({name: value.clone() for name, value in network.state_dict().items()})
        return pycox_models().CoxPH(network, pycox_training.adam(rate), "cpu")

    rows = SPLIT.train
    with pycox_session():
        train(
            make_model,
            as_input(rows.x),
            (as_input(rows.time), as_input(rows.event)),
            Settings(seed=0),
            validation_loss=None,
            epochs=1,
        )
    searched, trained = starts
    assert all(torch.equal(searched[name], trained[name]) for name in trained)


@pytest.mark.parametrize("name", FILES)
def test_fair_stops_by_the_validation_rows(name):
    contrary = simulated(40, 7, slope=-3.0)
    split = Split(SPLIT.train, contrary, SPLIT.test, SPLIT.columns)
    agreeing = Split(SPLIT.train, simulated(40, 7, slope=1.5), SPLIT.test, SPLIT.columns)
    spread = {}
    for which, rows in {"contrary": split, "agreeing": agreeing}.items():
        curves = method(name).fit(rows, Settings(seed=2), epochs=40).survival(SPLIT.test.x, np.array([80.0]))
        spread[which] = np.corrcoef(SPLIT.test.x[:, 0], -curves[:, 0])[0, 1] * curves.std()
    assert spread["contrary"] < 0.7 * spread["agreeing"], "rows that contradict the training rows stop it sooner"


@pytest.mark.parametrize("name", DISCRETE)
def test_published_discrete_curves_are_those_of_pycox_at_the_last_cut(name):
    fit = fitted(name, "as-published")
    frame = fit.model.predict_surv_df(as_input(SPLIT.test.x))
    assert len(frame) == CUTS + (name == "PCHazard")
    times = np.unique(np.concatenate([GRID, frame.index]))
    expected = frame.reindex(times, method="ffill").to_numpy().T
    np.testing.assert_allclose(fit.survival(SPLIT.test.x, times), np.clip(expected, 0, 1), atol=1e-7)


@pytest.mark.parametrize("name", sorted(set(DISCRETE) - {"BCESurv"}))
def test_fair_discrete_curves_are_those_of_pycox_interpolated(name):
    fit = fitted(name, "fair")
    if name == "PCHazard":
        fit.model.sub = 10
        frame = fit.model.predict_surv_df(as_input(SPLIT.test.x))
        fit.model.sub = 1
    else:
        frame = fit.model.interpolate(10).predict_surv_df(as_input(SPLIT.test.x))
    times = np.asarray(frame.index, dtype=float)
    ours = fit.survival(SPLIT.test.x, times)
    # before the second cut ours comes from S(0) = 1, whatever mass the model has at time 0
    later = times >= fit.cuts[1]
    np.testing.assert_allclose(ours[:, later], frame.to_numpy().T[:, later], atol=2e-6)
    halfway = fit.survival(SPLIT.test.x, fit.cuts[1:2] / 2)[:, 0]
    at_second = fit.survival(SPLIT.test.x, fit.cuts[1:2])[:, 0]
    np.testing.assert_allclose(halfway, np.sqrt(at_second) if name == "PCHazard" else (1 + at_second) / 2)


def test_fair_curves_beyond_the_last_training_time():
    last = SPLIT.train.time.max()
    times = np.array([last, last + 10, last + 500])
    for name in set(FILES) - {"PCHazard"}:
        curves = fitted(name, "fair").survival(SPLIT.test.x, times)
        np.testing.assert_array_equal(curves[:, 1:], curves[:, :1].repeat(2, axis=1))
    cuts, values = np.array([0.0, 1.0, 3.0]), np.array([[1.0, 0.8, 0.2], [1.0, 0.5, 0.0]])
    read = constant_hazard(cuts, values, np.array([0.5, 2.0, 3.0, 5.0]))
    np.testing.assert_allclose(read[0], [0.8**0.5, 0.4, 0.2, 0.05])
    np.testing.assert_allclose(read[1], [0.5**0.5, 0.0, 0.0, 0.0], atol=1e-12)


def test_curves_of_bcesurv_that_rise_are_left_or_levelled():
    rising = np.array([[0.9, 0.5, 0.7, 0.6, 0.3]])
    model = SimpleNamespace(predict_surv=lambda x, numpy: rising.copy())
    cuts = np.arange(5.0)
    published = DiscreteCurves(model, cuts, "as-published", "density").survival(np.zeros((1, 2)), cuts + 0.5)
    fair = DiscreteCurves(model, cuts, "fair", "density").survival(np.zeros((1, 2)), cuts + 0.5)
    np.testing.assert_array_equal(published, rising)
    np.testing.assert_allclose(fair, [[0.75, 0.5, 0.5, 0.4, 0.3]])


@pytest.mark.parametrize("name", COX)
def test_cox_curves_are_those_of_pycox(name):
    fit = fitted(name, "as-published")
    rows = SPLIT.train
    # pycox starts CoxTime's risk set at the first event of a time: who is censored then has to come after it
    order = np.lexsort([~rows.event, rows.time])
    x, time, event = as_input(rows.x[order]), rows.time[order], rows.event[order]
    labels = fit.log_risk.labels
    models = pycox_models()
    if name == "CoxTime":
        model = models.CoxTime(fit.log_risk.network, device="cpu", labtrans=labels)
        target = labels.transform(time, event)
    else:
        model = models.CoxPH(fit.log_risk.network, device="cpu")
        target = (time, event.astype(np.float32))
    model.compute_baseline_hazards(x, target)
    frame = model.predict_surv_df(as_input(SPLIT.test.x))
    np.testing.assert_array_equal(frame.index, np.unique(time))
    expected = frame.reindex(GRID, method="ffill").to_numpy().T
    np.testing.assert_allclose(fit.survival(SPLIT.test.x, GRID), expected, atol=2e-6)

    held_out = SPLIT.validation
    stop_target = labels.transform(held_out.time, held_out.event) if labels else (held_out.time, held_out.event)
    expected_loss = -model.partial_log_likelihood(as_input(held_out.x), stop_target).mean()
    assert partial_likelihood_loss(held_out, fit.log_risk) == pytest.approx(expected_loss, abs=2e-6)


def test_huge_log_risks_do_not_overflow():
    class Huge(torch.nn.Module):
        def forward(self, x):
            return 1000.0 + 200.0 * x[:, :1]

    log_risk = LogRisk(Huge(), None)
    times, log_hazard = log_baseline(SPLIT.train, log_risk)
    shifted = np.exp(log_hazard + 1000.0)
    score = 200.0 * np.float32(SPLIT.train.x[:, 0]).astype(float)
    for k, time in enumerate(times):
        at_risk = SPLIT.train.time >= time
        deaths = np.sum(SPLIT.train.event & (SPLIT.train.time == time))
        assert shifted[k] == pytest.approx(deaths / np.exp(score[at_risk]).sum(), rel=1e-3)
    assert np.isfinite(partial_likelihood_loss(SPLIT.train, log_risk))


def test_a_log_risk_leaves_the_mode_of_the_network_alone():
    network = mlp(3, 1, (4,), bias=False)
    log_risk = LogRisk(network, None)
    first, second = (log_risk(SPLIT.test.x, np.array([1.0])) for _ in range(2))
    np.testing.assert_array_equal(first, second)  # no dropout
    assert network.training


def test_given_validation_rows_are_what_is_stopped_by():
    assert rows_to_stop_by(SPLIT, 0) == (SPLIT.train, SPLIT.validation)


@pytest.mark.parametrize("censored_only", [False, True])
def test_a_fifth_of_the_training_rows_is_held_out_where_validation_says_nothing(censored_only):
    silent = Rows(SPLIT.validation.x, SPLIT.validation.time, np.zeros(20, dtype=bool)) if censored_only else NOBODY
    split = Split(SPLIT.train, silent, SPLIT.test, SPLIT.columns)
    rows, held_out = rows_to_stop_by(split, 5)
    assert held_out.event.sum() == round(0.2 * SPLIT.train.event.sum())
    assert (~held_out.event).sum() == round(0.2 * (~SPLIT.train.event).sum())
    together = rows + held_out
    order, expected = np.lexsort(together.x.T), np.lexsort(SPLIT.train.x.T)
    np.testing.assert_array_equal(together.x[order], SPLIT.train.x[expected])
    np.testing.assert_array_equal(together.time[order], SPLIT.train.time[expected])
    np.testing.assert_array_equal(together.event[order], SPLIT.train.event[expected])
    np.testing.assert_array_equal(rows_to_stop_by(split, 5)[1].x, held_out.x)
    assert not np.array_equal(rows_to_stop_by(split, 6)[1].x, held_out.x)


@pytest.mark.parametrize("name", ["PMF", "CoxCC"])
def test_fits_without_validation_rows(name, range_test):
    split = Split(SPLIT.train, NOBODY, SPLIT.test, SPLIT.columns)
    for variant in VARIANTS:
        curves = method(name).fit(split, Settings(variant=variant), epochs=3).survival(SPLIT.test.x, np.array([100.0]))
        assert np.isfinite(curves).all()


def test_stopping_needs_two_events():
    few = Rows(SPLIT.train.x, SPLIT.train.time, np.arange(80) == 3)
    with pytest.raises(
        InputError, match=r"there are 1 among the 80 training rows and none among the 0 validation rows"
    ):
        rows_to_stop_by(Split(few, NOBODY, SPLIT.test, SPLIT.columns), 0)


def test_one_event_is_held_out_even_where_a_fifth_rounds_to_none():
    few = Rows(SPLIT.train.x, SPLIT.train.time, np.isin(np.arange(80), [3, 9]))
    rows, held_out = rows_to_stop_by(Split(few, NOBODY, SPLIT.test, SPLIT.columns), 0)
    assert rows.event.sum() == held_out.event.sum() == 1


def test_no_batch_has_a_single_row():
    assert batch_size(80) == batch_size(256) == batch_size(1000) == 256
    for rows in range(2, 3000):
        assert rows % batch_size(rows) != 1


def test_the_learning_rate_is_a_tenth_of_the_best_and_within_bounds():
    lrs = np.geomspace(1e-7, 10.0, 100)

    def with_losses(losses):
        def fit(x, target, size, epochs, callbacks, verbose):
            callbacks[0].scheduler = SimpleNamespace(lrs=lrs)
            callbacks[0].batch_loss = losses

        return lambda rate: SimpleNamespace(fit=fit)

    x = np.zeros((80, 3), dtype=np.float32)
    # falls so fast that the smoothed loss is lowest at the lowest
    losses = [1000.0] * 60 + [-1e6] * 5 + [1e9] * 35
    found = find_rate(with_losses(losses), x, (), (1e-4, 1.0))
    assert found == pytest.approx(lrs[64] / 10)
    assert find_rate(with_losses(losses), x, (), (0.5, 1.0)) == 0.5
    assert find_rate(with_losses(losses), x, (), (1e-6, 1e-5)) == 1e-5
    assert find_rate(with_losses(losses[:70] + [np.nan] * 30), x, (), (1e-4, 1.0)) == pytest.approx(found)


def test_the_bounds_of_the_rate_are_those_of_the_variant(monkeypatch):
    seen = []
    monkeypatch.setattr(pycox_training, "find_rate", lambda *arguments: seen.append(arguments[-1]) or 0.003)
    for variant in VARIANTS:
        model = method("PMF").fit(SPLIT, Settings(variant=variant), epochs=1).model
        assert model.optimizer.param_groups[0]["lr"] == 0.003
        assert isinstance(model.optimizer.optimizer, torch.optim.Adam)
    assert seen == [(1e-4, 1.0), (1e-4, 1e-2)]


@pytest.mark.parametrize("name", FILES)
def test_the_network_is_that_of_the_settings(name):
    fit = method(name).fit(SPLIT, Settings(hidden=(6, 5, 4)), epochs=1)
    network = fit.log_risk.network if name in COX else fit.model.net
    layers = list(network.modules())
    outputs = 1 if name in COX else CUTS
    assert [layer.out_features for layer in layers if isinstance(layer, torch.nn.Linear)] == [6, 5, 4, outputs]
    assert sum(isinstance(layer, torch.nn.BatchNorm1d) for layer in layers) == 3
    assert [layer.p for layer in layers if isinstance(layer, torch.nn.Dropout)] == [0.1] * 3
    assert sum(isinstance(layer, torch.nn.ReLU) for layer in layers) == 3


def test_deephit_has_the_loss_of_the_paper():
    loss = fitted("DeepHit", "fair").model.loss
    assert (loss.alpha, loss.sigma) == (0.2, 0.1)


def test_the_start_without_covariates_is_the_actuarial_curve():
    kind = pycox_models().LogisticHazard
    labels = kind.label_transform(CUTS)
    index, event = labels.fit_transform(SPLIT.train.time, SPLIT.train.event)
    model = kind(mlp(3, CUTS, (16, 16)), device="cpu", duration_index=labels.cuts)
    with pycox_session():
        start_without_covariates(model, (index, event))
        hazards = model.predict_hazard(as_input(SPLIT.train.x))
    np.testing.assert_array_equal(hazards, hazards[:1].repeat(80, axis=0))
    # pycox counts a row in every interval up to its own
    for k in range(1, 6):
        expected = event[index == k].sum() / np.sum(index >= k)
        assert hazards[0, k] == pytest.approx(expected, abs=0.002)
    assert hazards[0, 0] < 0.02  # nobody dies at time 0


def test_a_fit_leaves_threads_and_files_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        method("DeepSurv").fit(SPLIT, Settings(), epochs=2)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(threads)
    assert list(tmp_path.iterdir()) == []


def test_a_row_at_time_zero_is_no_hindrance():
    rows = SPLIT.train
    at_zero = Rows(rows.x, np.where(np.arange(80) == 0, 0.0, rows.time), rows.event & (np.arange(80) != 0))
    split = Split(at_zero, SPLIT.validation, SPLIT.test, SPLIT.columns)
    for name in FILES:
        fit = method(name).fit(split, Settings(), epochs=2)
        assert np.isfinite(fit.survival(SPLIT.test.x, GRID)).all()


@pytest.mark.parametrize("name", FILES)
def test_names_and_variants(name):
    found = method(name)
    assert found.name == name
    assert found.family == "deep"
    assert set(found.variants) == set(VARIANTS)
    assert found.variants["fair"] != found.variants["as-published"]
    assert pickle.loads(pickle.dumps(found)) == found


def test_pandas_reads_the_published_step_as_we_do():
    # the oracle of the tests above: the last index that is not after the time
    frame = pd.DataFrame({"a": [1.0, 0.5]}, index=[0.0, 2.0]).reindex([1.0, 2.0, 3.0], method="ffill")
    assert frame["a"].tolist() == [1.0, 0.5, 0.5]
