"""The tree of draws: groups and dimensions, log-likelihoods against an integral of the predicted hazard; readers."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import arviz_stats
import numpy as np
import pandas as pd
import pytest
import xarray
from scipy.integrate import simpson

from false_alarm import z_bound
from neuralsurv import NeuralSurv
from neuralsurv.errors import InputError
from neuralsurv.inference.check.pareto import smooth_weights
from neuralsurv.prediction.predictor import Predictor
from small_cohort import quick_model, small_cohort

COHORT = small_cohort()
ENTRY = np.where(np.arange(40) % 3 == 0, COHORT.time / 4, 0.0)
WEIGHT = 1.0 + np.arange(40) % 3


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    return quick_model(rho=1.5, draws=200).fit(COHORT.x, COHORT.y, entry=ENTRY, sample_weight=WEIGHT)


@pytest.fixture(scope="module")
def data(fitted: NeuralSurv) -> Any:
    return fitted.to_inference_data(COHORT.x, COHORT.y, entry=ENTRY)


def test_groups_and_dimensions(fitted: NeuralSurv, data: Any) -> None:
    assert isinstance(data, xarray.DataTree)
    assert set(data.children) == {
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
    g = Predictor.from_fitted(fitted.fitted_, fitted.draws).g(COHORT.x.head(1), [0.7]).draws[:, 0, 0]
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
        COHORT.x, (unit * COHORT.time, COHORT.event), entry=unit * ENTRY, sample_weight=WEIGHT
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


# arviz-stats warns where a row has much influence, as some of 40 have.
@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto distribution:UserWarning")
def test_arviz_stats_leaves_rows_out(data: Any) -> None:
    found = data.log_likelihood["time"].to_numpy()[0]
    loo = arviz_stats.loo(data, pointwise=True)
    assert loo.n_data_points == 40
    # By hand: the harmonic mean of the densities, with the largest of the raw weights smoothed.
    by_hand = [np.log(smooth_weights(-row).weights @ np.exp(row)) for row in found.T]
    assert loo.elpd_i.to_numpy() == pytest.approx(by_hand, abs=1e-9)
    assert loo.elpd == pytest.approx(sum(by_hand), abs=1e-8)
    # Leaving a row out costs something, and about as much by the other approximation, WAIC.
    density, variance = np.log(np.exp(found).mean(axis=0)).sum(), found.var(axis=0).sum()
    assert loo.elpd < density
    assert loo.elpd == pytest.approx(density - variance, abs=2 * variance)


def test_arviz_stats_checks_predictions(data: Any) -> None:
    time = data.posterior_predictive["time"].to_numpy()[0]
    found = arviz_stats.metrics(data, kind="mae", round_to="none")
    assert float(found.mean) == pytest.approx(np.abs(time.mean(axis=0) - COHORT.time).mean())


def test_as_many_rows_as_outcomes(fitted: NeuralSurv) -> None:
    with pytest.raises(InputError, match="X has 39 rows but y has 40"):
        fitted.to_inference_data(COHORT.x.head(39), COHORT.y)


def test_without_arviz_base_the_message_says_what_to_install(
    fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "arviz_base", None)
    with pytest.raises(InputError, match=r"needs arviz-base: pip install 'neuralsurv\[arviz\]'"):
        fitted.to_inference_data(COHORT.x, COHORT.y)


def test_draws_and_diagnostics_leave_nothing_in_the_home(tmp_path: Path) -> None:
    # Two processes that write one file there, as ArviZ 0.23 did once a day, get into each other's way.
    home, pictures = tmp_path / "home", tmp_path / "pictures"
    home.mkdir()
    code = (
        "import numpy as np, torch; from small_cohort import quick_model, small_cohort; "
        "from neuralsurv.inference.exact.chains import diagnose_chains; cohort = small_cohort(); "
        "quick_model(draws=10).fit(cohort.x, cohort.y).to_inference_data(cohort.x, cohort.y); "
        "diagnose_chains({'phi': torch.rand(2, 9, 1)}, latent_points=1, slide_acceptance=1, interrupted=False)"
    )
    kept = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")}
    # arviz-base looks whether Matplotlib is there, and that makes a folder of its own.
    own = {"HOME": str(home), "MPLCONFIGDIR": str(pictures), "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-W", "error", "-c", code], env=kept | own, check=True)
    assert not [*home.rglob("*")]
