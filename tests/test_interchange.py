"""What is handed to ArviZ: groups and dimensions, and log-likelihoods against an integral of the predicted hazard."""

import sys
from typing import Any

import arviz
import matplotlib as mpl
import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from scipy.integrate import simpson

from false_alarm import z_bound
from neuralsurv import NeuralSurv
from neuralsurv.errors import InputError
from small_cohort import quick_model, small_cohort

mpl.use("Agg")
COHORT = small_cohort()
ENTRY = np.where(np.arange(40) % 3 == 0, COHORT.time / 4, 0.0)
WEIGHT = 1.0 + np.arange(40) % 3


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    return quick_model(rho=1.5, draws=200).fit(COHORT.x, COHORT.y, entry=ENTRY, weight=WEIGHT)


@pytest.fixture(scope="module")
def data(fitted: NeuralSurv) -> Any:
    return fitted.to_inference_data(COHORT.x, COHORT.y, entry=ENTRY)


def test_groups_and_dimensions(fitted: NeuralSurv, data: Any) -> None:
    assert set(data.groups()) == {
        "posterior",
        "log_likelihood",
        "posterior_predictive",
        "observed_data",
        "constant_data",
    }
    weights = fitted.posterior_.network.size
    assert dict(data.posterior.sizes) == {"chain": 1, "draw": 200, "parameter": weights}
    assert data.posterior["phi"].dims == ("chain", "draw")
    assert data.posterior["theta"].dims == ("chain", "draw", "parameter")
    assert data.log_likelihood["time"].dims == ("chain", "draw", "row")
    assert data.posterior_predictive["time"].dims == ("chain", "draw", "row")
    assert data.observed_data["time"].dims == ("row",)
    assert (data.observed_data["time"].to_numpy() == COHORT.time).all()
    assert (data.constant_data["event"].to_numpy() == COHORT.event).all()
    assert (data.constant_data["entry"].to_numpy() == ENTRY).all()
    assert (data.constant_data["weight"].to_numpy() == 1).all()


def test_the_draws_are_those_behind_the_predictions(fitted: NeuralSurv, data: Any) -> None:
    # g is linear in theta: the predicted g of every draw is its theta times one row, plus one number.
    theta = data.posterior["theta"].to_numpy()[0]
    g = fitted.predict_g(COHORT.x.head(1), [0.7]).draws[:, 0, 0]
    design = np.column_stack([theta, np.ones(200)])
    assert design @ np.linalg.lstsq(design, g, rcond=None)[0] == pytest.approx(g, abs=1e-9)
    phi = fitted.posterior_.phi
    drawn = data.posterior["phi"].to_numpy()[0]
    # The hazard is phi · t^(rho−1) · sigma(g) / (1/2), with t and the hazard in units of the last training time.
    t = 0.7 / fitted.time_scale_
    by_hand = drawn * t**0.5 * 2 / (1 + np.exp(-g)) / fitted.time_scale_
    assert fitted.predict_hazard(COHORT.x.head(1), [0.7]).draws[:, 0, 0] == pytest.approx(by_hand, rel=1e-10)
    assert abs(drawn.mean() - phi.mean) < z_bound() * np.sqrt(phi.shape) / phi.rate / np.sqrt(200)


def log_likelihood_by_hand(model: NeuralSurv, row: int, entry: float) -> np.ndarray:
    """Return the log-likelihood of a row for each draw: log hazard at an event, minus the hazard's integral."""
    grid = np.linspace(max(entry, 1e-9), COHORT.time[row], 2001)
    hazard = model.predict_hazard(COHORT.x.iloc[[row]], grid).draws[:, 0]
    at_end = np.log(hazard[:, -1]) if COHORT.event[row] else 0.0
    return at_end - simpson(hazard, x=grid, axis=1)


def test_log_likelihood_is_the_integral_of_the_predicted_hazard(fitted: NeuralSurv, data: Any) -> None:
    rows = [0, 1, 2, 3, 6, 9, 12]
    assert {(bool(COHORT.event[k]), bool(ENTRY[k] > 0)) for k in rows} == {(a, b) for a in (0, 1) for b in (0, 1)}
    found = data.log_likelihood["time"].to_numpy()[0]
    for row in rows:
        # From time 0 on the root in the hazard costs Simpson's rule some digits.
        tolerance = 1e-8 if ENTRY[row] > 0 else 1e-5
        assert found[:, row] == pytest.approx(log_likelihood_by_hand(fitted, row, ENTRY[row]), abs=tolerance)


def test_log_likelihood_is_counted_by_weight(fitted: NeuralSurv, data: Any) -> None:
    plain = data.log_likelihood["time"].to_numpy()
    weighted = fitted.to_inference_data(COHORT.x, COHORT.y, entry=ENTRY, weight=WEIGHT)
    assert weighted.log_likelihood["time"].to_numpy() == pytest.approx(plain * WEIGHT, rel=1e-12)
    assert (weighted.constant_data["weight"].to_numpy() == WEIGHT).all()
    table = pd.DataFrame({"time": COHORT.time, "event": COHORT.event, "entry": ENTRY, "weight": WEIGHT})
    from_table = fitted.to_inference_data(COHORT.x, table)
    assert (from_table.log_likelihood["time"].to_numpy() == weighted.log_likelihood["time"].to_numpy()).all()


def test_the_unit_of_time_adds_its_logarithm_for_every_event(fitted: NeuralSurv, data: Any) -> None:
    unit = 365.25
    days = quick_model(rho=1.5, draws=200).fit(
        COHORT.x, (unit * COHORT.time, COHORT.event), entry=unit * ENTRY, weight=WEIGHT
    )
    other = days.to_inference_data(COHORT.x, (unit * COHORT.time, COHORT.event), entry=unit * ENTRY)
    expected = data.log_likelihood["time"].to_numpy() - COHORT.event * np.log(unit)
    # Two fits of one problem: their modes agree to the square root of the rounding.
    assert other.log_likelihood["time"].to_numpy() == pytest.approx(expected, abs=1e-4)
    time = data.posterior_predictive["time"].to_numpy()
    assert other.posterior_predictive["time"].to_numpy() == pytest.approx(unit * time, rel=1e-4)


def test_predicted_times_come_after_the_entry_and_end_with_the_study(fitted: NeuralSurv, data: Any) -> None:
    time = data.posterior_predictive["time"].to_numpy()[0]
    assert (time > ENTRY).all()
    assert time.max() == fitted.time_scale_
    # Event times from the same chances and without entry are those of predict_event_time.
    fresh = fitted.to_inference_data(COHORT.x, COHORT.y).posterior_predictive["time"].to_numpy()[0]
    own = fitted.predict_event_time(COHORT.x).draws
    assert (fresh == np.minimum(own, fitted.time_scale_)).all()
    assert (time[:, ENTRY == 0] == fresh[:, ENTRY == 0]).all()


# ArviZ warns where a row has much influence, as some of 40 have.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution:UserWarning")
@pytest.mark.filterwarnings("ignore:For one or more samples the posterior variance:UserWarning")
def test_arviz_compares_models_with_it(data: Any) -> None:
    found = data.log_likelihood["time"].to_numpy()[0]
    density = np.log(np.exp(found).mean(axis=0)).sum()
    waic = arviz.waic(data)
    assert waic.n_data_points == 40
    assert waic.elpd_waic == pytest.approx(density - found.var(axis=0).sum(), abs=1e-6)
    loo = arviz.loo(data)
    assert loo.n_data_points == 40
    # Leaving a row out costs something, and about as much by either approximation.
    assert loo.elpd_loo < density
    assert loo.elpd_loo == pytest.approx(waic.elpd_waic, abs=2 * waic.p_waic)


# ArviZ calls Matplotlib in a way that newer versions announce the end of.
@pytest.mark.filterwarnings("ignore:Passing a dict or None as alias_mapping")
def test_arviz_draws_a_predictive_check(data: Any) -> None:
    axes = arviz.plot_ppc(data, num_pp_samples=10, random_seed=0)
    # Ten predicted samples, the observed times and the mean of the predictions.
    assert len(axes.lines) >= 12
    pyplot.close(axes.figure)


def test_as_many_rows_as_outcomes(fitted: NeuralSurv) -> None:
    with pytest.raises(InputError, match="X has 39 rows but y has 40"):
        fitted.to_inference_data(COHORT.x.head(39), COHORT.y)


def test_without_arviz_the_message_says_what_to_install(fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "arviz", None)
    with pytest.raises(InputError, match=r"needs ArviZ: pip install 'neuralsurv\[arviz\]'"):
        fitted.to_inference_data(COHORT.x, COHORT.y)
