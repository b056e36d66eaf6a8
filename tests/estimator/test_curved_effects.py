"""The default model as a user meets it, with its curves: no chance in it, odd tables, a threshold, and no signal."""

import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from neuralsurv import NeuralSurv
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import NeuralSurvWarning
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.model.additive import Additive
from posteriors import g_moments
from small_cohort import small_cohort

COHORT = small_cohort(60)
TIMES = np.linspace(0.05, 1, 6) * COHORT.time.max()
ENTRY = np.where(np.arange(60) % 4 == 0, COHORT.time / 3, 0.0)
# Sums in another order move the top of a smooth function by about the root of what they are known to.
SAME_OPTIMUM = 1e-6


def model_of(**parameters: Any) -> NeuralSurv:
    return NeuralSurv(**{"neighbourhoods": 20, "draws": 200, "verbose": False, "random_state": 0} | parameters)


def fit(x: Any, time: np.ndarray, event: np.ndarray, **roles: Any) -> NeuralSurv:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NeuralSurvWarning)
        return model_of().fit(x, (time, event), **roles)


@pytest.fixture(scope="module")
def usual() -> NeuralSurv:
    return fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY)


def network_of(model: NeuralSurv) -> Additive:
    network = model.posterior_.network
    assert isinstance(network, Additive)
    return network


def log_hazard(model: NeuralSurv, x: pd.DataFrame = COHORT.x) -> np.ndarray:
    """Posterior mean and standard deviation of g over people and times; no draws."""
    people = torch.from_numpy(model.encoding_.transform(x))
    scaled = torch.from_numpy(TIMES / model.time_scale_)
    moments = g_moments(model.posterior_, scaled.repeat(len(people)), people.repeat_interleave(len(TIMES), 0))
    return np.stack([moments[0].numpy(), np.sqrt(moments[1].numpy())])


def assert_usable(model: NeuralSurv, x: Any) -> None:
    draws = model.predict_survival(x, np.array([0.0, 0.3, 1.0, 2.0]) * model.time_scale_).draws
    assert np.isfinite(draws).all()
    assert (draws[:, :, 0] == 1).all()
    assert (np.diff(draws, axis=2) <= 0).all()


# --------------------------------------------------------------------------------------------------- no chance in it


def test_the_seed_is_that_of_the_draws_alone(usual: NeuralSurv) -> None:
    other = model_of(random_state=1).fit(COHORT.x, (COHORT.time, COHORT.event), entry=ENTRY)
    assert network_of(usual).curves is not None
    np.testing.assert_allclose(log_hazard(other), log_hazard(usual), rtol=0, atol=1e-12)
    assert other.elbo_[-1] == pytest.approx(usual.elbo_[-1], rel=1e-12)
    one, another = (each.predict_survival(COHORT.x, TIMES).draws for each in (usual, other))
    assert not np.array_equal(one, another)
    # The averages of 200 draws are as far apart as draws make them; a part of little weight may be in one of them only.
    error = np.sqrt((one.var(0) + another.var(0)) / 200)
    assert (np.abs(one.mean(0) - another.mean(0)) < 6 * error + 1e-12).all()


def test_the_order_of_the_rows(usual: NeuralSurv) -> None:
    order = np.random.default_rng(0).permutation(60)
    other = fit(COHORT.x.iloc[order], COHORT.time[order], COHORT.event[order], entry=ENTRY[order])
    np.testing.assert_allclose(log_hazard(other), log_hazard(usual), rtol=0, atol=SAME_OPTIMUM)


def test_a_weight_written_as_two_rows(usual: NeuralSurv) -> None:
    weight = np.where(np.arange(60) < 10, 2.0, 1.0)
    rows = np.append(np.arange(60), np.arange(10))
    weighted = fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY, sample_weight=weight)
    doubled = fit(COHORT.x.iloc[rows], COHORT.time[rows], COHORT.event[rows], entry=ENTRY[rows])
    np.testing.assert_allclose(log_hazard(doubled), log_hazard(weighted), rtol=0, atol=SAME_OPTIMUM)
    assert np.abs(log_hazard(weighted) - log_hazard(usual)).max() > 1e-3


def test_a_unit_of_time_and_of_a_covariate(usual: NeuralSurv) -> None:
    x = COHORT.x.assign(age=12 * COHORT.x["age"] - 300)
    other = fit(x, 365.25 * COHORT.time, COHORT.event, entry=365.25 * ENTRY)
    assert other.elbo_[-1] == pytest.approx(usual.elbo_[-1], abs=SAME_OPTIMUM)
    one = usual.predict_survival(COHORT.x, TIMES).mean.to_numpy()
    np.testing.assert_allclose(other.predict_survival(x, 365.25 * TIMES).mean, one, rtol=0, atol=0.1)


# -------------------------------------------------------------------------------------------------------- odd tables


def test_tied_values() -> None:
    x = COHORT.x.assign(age=10 * np.round(COHORT.x["age"] / 10), dose=np.where(np.arange(60) < 45, 0.0, COHORT.x.dose))
    model = fit(x, np.ceil(4 * COHORT.time), COHORT.event)
    assert network_of(model).curves is not None
    assert_usable(model, x)


def test_a_covariate_that_varies_in_a_few_rows_only() -> None:
    x = COHORT.x.assign(rare=np.where(np.arange(60) < 57, 0.0, np.arange(60.0)))
    model = fit(x, COHORT.time, COHORT.event)
    curves = network_of(model).curves
    assert curves is not None
    # Three rows are too few for a curve of their own.
    assert curves.which.tolist() == [0, 1]
    assert_usable(model, x)


def test_two_values_and_no_more() -> None:
    x = (COHORT.x > COHORT.x.median()).astype(float)
    model = fit(x, COHORT.time, COHORT.event)
    assert network_of(model).curves is None
    assert "changes of curves" not in model.diagnostics_.scales
    assert_usable(model, x)


def test_one_covariate_of_two_values_beside_one_of_many() -> None:
    x = COHORT.x.assign(dose=(COHORT.x["dose"] > 0).astype(float))
    model = fit(x, COHORT.time, COHORT.event)
    curves = network_of(model).curves
    assert curves is not None
    assert curves.which.tolist() == [0]


def test_one_covariate() -> None:
    model = fit(COHORT.x[["age"]], COHORT.time, COHORT.event)
    assert not network_of(model).pairs
    assert_usable(model, COHORT.x[["age"]])


def test_seventy_covariates() -> None:
    x = np.random.default_rng(0).normal(size=(60, 70))
    model = fit(x, COHORT.time, COHORT.event)
    network = network_of(model)
    assert network.curves is not None
    assert len(network.curves.which) == 64
    assert network.near is None
    assert not network.pairs
    assert_usable(model, x)


def test_more_columns_than_rows() -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(80, 300))
    time = rng.exponential(np.exp(-x[:, 0]))
    model = fit(x, time, np.ones(80, dtype=bool))
    network = network_of(model)
    assert network.size > 900
    # Each function of time has no more directions of a feature than there are rows.
    assert model.diagnostics_.rank <= 3 * 80 + 3 * 80 + network.basis.size + 1
    assert_usable(model, x)


# ------------------------------------------------------------------------------------------- a threshold, and no signal


def step_cohort(n: int, seed: int, effect: float) -> tuple[pd.DataFrame, np.ndarray, np.ndarray]:
    """Exponential times whose rate jumps by exp(effect) where `marker` passes 0.3; four covariates of noise."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(n, 5)), columns=["marker", "a", "b", "c", "d"])
    death = rng.exponential(np.exp(-effect * (x["marker"] > 0.3)))
    leave = rng.exponential(2.0, size=n)
    return x, np.minimum(death, leave), death <= leave


def test_a_threshold_in_survival_curves() -> None:
    """A line has to spread the jump over all values of the marker: people just beside it are told apart too little."""
    x, time, event = step_cohort(500, seed=3, effect=1.8)
    model = NeuralSurv(average=False, draws=200, verbose=False, random_state=0).fit(x, (time, event))
    line = NeuralSurv(hidden=(), average=False, draws=200, verbose=False, random_state=0).fit(x, (time, event))
    people = pd.DataFrame(0.0, index=range(41), columns=x.columns).assign(marker=np.linspace(-2, 2, 41))
    times = np.array([0.1, 0.3, 0.6])
    truth = np.exp(-np.exp(1.8 * (people["marker"].to_numpy() > 0.3))[:, None] * times)
    miss, miss_of_line = (
        np.abs(each.predict_survival(people, times).mean.to_numpy() - truth).mean() for each in (model, line)
    )
    assert miss < 0.6 * miss_of_line
    assert miss < 0.06


def test_without_a_signal_curves_stay_near_kaplan_meier() -> None:
    x, time, event = step_cohort(400, seed=4, effect=0.0)
    model = NeuralSurv(draws=200, verbose=False, random_state=0).fit(x, (time, event))
    times = np.quantile(time, [0.2, 0.5, 0.8])
    curve = survival_curve(Outcome(time, event, np.zeros(400), np.ones(400))).after(times)
    found = model.predict_survival(x, times).mean.to_numpy()
    # The estimate has a standard error of 0.025; people must not be scattered about it much more than that.
    assert np.abs(found.mean(0) - curve).max() < 0.03
    assert np.abs(found - curve).mean() < 0.05
    assert found.std(0).max() < 0.06
