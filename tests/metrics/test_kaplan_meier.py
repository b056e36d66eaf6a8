"""The Kaplan–Meier estimate against scikit-survival, a product written out, and duplicated rows."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from sksurv.nonparametric import kaplan_meier_estimator

from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics.kaplan_meier import kaplan_meier


def cohort(seed: int, n: int = 40, *, entry: bool = False) -> Outcome:
    rng = np.random.default_rng(seed)
    time = rng.integers(2, 16, n).astype(float)
    start = np.floor(rng.random(n) * time * 0.8) if entry else None
    return Outcome.from_arrays(time, rng.random(n) < 0.6, start)


@pytest.mark.parametrize("seed", range(5))
def test_against_scikit_survival(seed):
    outcome = cohort(seed)
    times, survival, limits = kaplan_meier_estimator(outcome.event, outcome.time, conf_level=0.9, conf_type="log-log")
    compared = 0
    for k, moment in enumerate(times):
        found, low, high = kaplan_meier(outcome, moment)
        assert found == pytest.approx(survival[k], rel=1e-12)
        if 0 < survival[k] < 1:
            compared += 1
            assert (low, high) == pytest.approx(tuple(limits[:, k]), rel=1e-9)
    assert compared > 5


def test_between_two_events_the_estimate_is_that_of_the_earlier():
    outcome = Outcome.from_arrays([1, 3, 5, 6], [1, 1, 0, 1])
    assert kaplan_meier(outcome, 0.5) == (1.0, 0.0, 1.0)
    assert kaplan_meier(outcome, 1)[0] == 0.75
    assert kaplan_meier(outcome, 2.99) == kaplan_meier(outcome, 1)
    assert kaplan_meier(outcome, 3)[0] == pytest.approx(0.5)
    assert kaplan_meier(outcome, 5.5)[0] == pytest.approx(0.5)
    assert kaplan_meier(outcome, 6) == (0.0, 0.0, 1.0)


def brute_force(outcome: Outcome, time: float) -> tuple[float, float, float]:
    """Take the product and Greenwood's sum over whole steps of time, looking at every row in each."""
    survival, greenwood = 1.0, 0.0
    for step in range(1, int(time) + 1):
        rows = range(len(outcome))
        at_risk = sum(1 for i in rows if outcome.entry[i] < step <= outcome.time[i])
        deaths = sum(1 for i in rows if outcome.time[i] == step and outcome.event[i])
        if deaths:
            survival *= (at_risk - deaths) / at_risk
            greenwood += deaths / (at_risk * (at_risk - deaths)) if at_risk > deaths else math.inf
    if not 0 < survival < 1:
        return survival, 0.0, 1.0
    z = norm.ppf(0.95) * math.sqrt(greenwood) / math.log(survival)
    return survival, survival ** math.exp(-z), survival ** math.exp(z)


@pytest.mark.parametrize("seed", range(6))
def test_left_truncation_by_brute_force(seed):
    outcome = cohort(seed, entry=True)
    assert (outcome.entry > 0).sum() > 10
    differs = False
    for time in range(1, 17):
        found = kaplan_meier(outcome, time)
        assert found == pytest.approx(brute_force(outcome, time), rel=1e-12)
        at_once = Outcome.from_arrays(outcome.time, outcome.event)
        differs |= found[0] != pytest.approx(kaplan_meier(at_once, time)[0], abs=1e-3)
    assert differs, "entry times make no difference here"


def test_a_row_that_enters_at_an_event_is_not_at_risk_of_it():
    outcome = Outcome.from_arrays([2, 3, 4], [1, 0, 0], entry=[0, 0, 2])
    assert kaplan_meier(outcome, 2)[0] == 0.5


@pytest.mark.parametrize("entry", [False, True])
def test_weights_count_as_duplicated_rows(entry):
    outcome = cohort(3, entry=entry)
    copies = np.random.default_rng(0).integers(0, 4, len(outcome))
    repeated = outcome.select(np.repeat(np.arange(len(outcome)), copies))
    weighted = Outcome(outcome.time, outcome.event, outcome.entry, copies.astype(float))
    for time in range(1, 17):
        assert kaplan_meier(weighted, time) == pytest.approx(kaplan_meier(repeated, time), rel=1e-12)


def test_an_event_of_weight_zero_is_not_there():
    outcome = Outcome.from_arrays([1, 2, 3], [1, 1, 0], weight=[1, 1, 1])
    padded = Outcome.from_arrays([1, 2, 3, 4], [1, 1, 0, 1], weight=[1, 1, 1, 0])
    assert kaplan_meier(padded, 9) == kaplan_meier(outcome, 9)
