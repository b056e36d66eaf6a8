"""What must not change a fit: the order of the rows, the unit of time, and how people are written down as rows.

These are fits of the paper preset, compared draw by draw; those of the default are in test_default_preset.py.
"""

from typing import Any

import numpy as np
import pandas as pd
import pytest

from neuralsurv import NeuralSurv
from small_cohort import quick_model, small_cohort

COHORT = small_cohort()
TIMES = np.linspace(0.05, 1, 8) * COHORT.time.max()
ENTRY = np.where(np.arange(40) % 4 == 0, COHORT.time / 3, 0.0)

# The covariates' means and spreads are sums of 40 terms, added up in another order: a few units in the last digit.
SAME_SUM = 1e-12
# The mode is where a smooth function is lowest. Its values, of size 100, are known to about 1e-14, so that the place
# is known to the square root of that, 1e-7, and g and the curves move by a few times as much. The sweeps, with their
# tolerance of 1e-10, add nothing to it. Anything that is really done differently shows at 1e-4 and above.
SAME_OPTIMUM = 2e-6


def fit(x: pd.DataFrame, time: np.ndarray, event: np.ndarray, **roles: Any) -> NeuralSurv:
    return tight_model().fit(x, (time, event), **roles)


def tight_model(**parameters: Any) -> NeuralSurv:
    # The trapezoid on the common grid cuts at every inner time without error.
    return quick_model(tolerance=1e-10, quadrature="trapezoid", quadrature_points=100, **parameters)


@pytest.fixture(scope="module")
def usual() -> NeuralSurv:
    return fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY)


def assert_same(model: NeuralSurv, other: NeuralSurv, unit: float = 1.0) -> None:
    """Assert that `other`, whose times are `unit` times as large, is the same fit."""
    assert other.encoding_.center == pytest.approx(model.encoding_.center, rel=SAME_SUM)
    assert other.encoding_.scale == pytest.approx(model.encoding_.scale, rel=SAME_SUM)
    assert other.time_scale_ == pytest.approx(unit * model.time_scale_, rel=SAME_SUM)
    assert other.elbo_[-1] == pytest.approx(model.elbo_[-1], abs=SAME_OPTIMUM)
    # Draws are compared one by one: the posterior's whole distribution is the same, and so is the seed.
    survival = model.predict_survival(COHORT.x, TIMES).draws
    assert np.abs(other.predict_survival(COHORT.x, unit * TIMES).draws - survival).max() < SAME_OPTIMUM
    hazard = model.predict_hazard(COHORT.x, TIMES).draws
    assert np.abs(unit * other.predict_hazard(COHORT.x, unit * TIMES).draws / hazard - 1).max() < 10 * SAME_OPTIMUM
    assert other.predict(COHORT.x) == pytest.approx(model.predict(COHORT.x), rel=10 * SAME_OPTIMUM)


def test_the_order_of_the_rows(usual: NeuralSurv) -> None:
    order = np.random.default_rng(0).permutation(40)
    shuffled = fit(COHORT.x.iloc[order], COHORT.time[order], COHORT.event[order], entry=ENTRY[order])
    assert_same(usual, shuffled)


@pytest.mark.parametrize("unit", [365.25, 1 / 3.7, 2.0**10])
def test_the_unit_of_time(usual: NeuralSurv, unit: float) -> None:
    other = fit(COHORT.x, unit * COHORT.time, COHORT.event, entry=unit * ENTRY)
    assert_same(usual, other, unit)
    median, other_median = (m.predict_median(COHORT.x).draws for m in (usual, other))
    assert (np.isinf(median) == np.isinf(other_median)).all()
    near = np.isfinite(median)
    assert other_median[near] == pytest.approx(unit * median[near], rel=1e-4)


def test_the_unit_of_time_with_another_baseline() -> None:
    models = [
        tight_model(rho=1.5).fit(COHORT.x, (unit * COHORT.time, COHORT.event), entry=unit * ENTRY)
        for unit in (1.0, 365.25)
    ]
    assert_same(*models, unit=365.25)


def test_the_unit_of_a_covariate(usual: NeuralSurv) -> None:
    months = COHORT.x.assign(age=12 * COHORT.x["age"] - 5)
    other = fit(months, COHORT.time, COHORT.event, entry=ENTRY)
    survival = usual.predict_survival(COHORT.x, TIMES).draws
    assert np.abs(other.predict_survival(months, TIMES).draws - survival).max() < SAME_OPTIMUM


def test_a_weight_of_two_is_the_row_twice() -> None:
    weight = np.where(np.arange(40) < 10, 2.0, 1.0)
    rows = np.append(np.arange(40), np.arange(10))
    weighted = fit(COHORT.x, COHORT.time, COHORT.event, entry=ENTRY, sample_weight=weight)
    doubled = fit(COHORT.x.iloc[rows], COHORT.time[rows], COHORT.event[rows], entry=ENTRY[rows])
    assert_same(weighted, doubled)


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_row_cut_in_two_is_the_row(usual: NeuralSurv, share: float) -> None:
    cut = ENTRY + share * (COHORT.time - ENTRY)
    pieces = fit(
        pd.concat([COHORT.x, COHORT.x]),
        np.append(cut, COHORT.time),
        np.append(np.zeros(40, dtype=bool), COHORT.event),
        entry=np.append(ENTRY, cut),
    )
    assert_same(usual, pieces)


def test_one_row_cut_in_many_is_the_row(usual: NeuralSurv) -> None:
    longest = int(np.argmax(COHORT.time))
    edges = np.linspace(ENTRY[longest], COHORT.time[longest], 12)
    others = np.delete(np.arange(40), longest)
    pieces = fit(
        pd.concat([COHORT.x.iloc[others], COHORT.x.iloc[[longest] * 11]]),
        np.append(COHORT.time[others], edges[1:]),
        np.append(COHORT.event[others], [False] * 10 + [COHORT.event[longest]]),
        entry=np.append(ENTRY[others], edges[:-1]),
    )
    assert_same(usual, pieces)


def test_what_is_really_another_fit_is_seen() -> None:
    # The comparison has teeth: a single event moved by a hundredth of the study is far outside of the tolerance.
    moved = COHORT.time.copy()
    moved[np.flatnonzero(COHORT.event)[0]] += COHORT.time.max() / 100
    first, second = (
        fit(COHORT.x, time, COHORT.event).predict_survival(COHORT.x, TIMES).draws for time in (COHORT.time, moved)
    )
    assert np.abs(first - second).max() > 100 * SAME_OPTIMUM
