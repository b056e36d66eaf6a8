"""The Kaplan–Meier estimate against scikit-survival, a product written out, and duplicated rows."""

import math

import numpy as np
import pytest
from scipy.stats import norm
from sksurv.nonparametric import CensoringDistributionEstimator, kaplan_meier_estimator

from metrics.cohorts import censoring_loop
from metrics.other_software import structured, torchsurv_weights
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics import censoring_horizon
from neuralsurv.metrics.kaplan_meier import censoring_curve, kaplan_meier, survival_curve


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


def tied_rows(seed, n=40):
    rng = np.random.default_rng(seed)
    time, event = rng.integers(1, 12, n).astype(float), rng.random(n) < 0.5
    assert set(time[event]) & set(time[~event])
    return time, event


@pytest.mark.parametrize("seed", range(5))
def test_with_ties_against_other_software_and_a_loop(seed):
    time, event = tied_rows(seed)
    curve = censoring_curve(Outcome.from_arrays(time, event))
    at = np.unique(time)
    expected = CensoringDistributionEstimator().fit(structured(time, event)).predict_proba(at)
    assert curve.after(at) == pytest.approx(expected, rel=1e-12)
    assert curve.after(at) == pytest.approx([censoring_loop(time, event, t) for t in at], rel=1e-12)
    assert curve.before(at) == pytest.approx([censoring_loop(time, event, t, left=True) for t in at], rel=1e-12)
    alive = curve.after(at) > 0
    assert curve.after(at[alive]) == pytest.approx(1 / torchsurv_weights(time, event, at[alive]), rel=1e-6)


@pytest.mark.parametrize("seed", range(5))
def test_survival_times_censoring_is_the_share_still_watched(seed):
    """The identity that the tie rule is made for."""
    time, event = tied_rows(seed)
    outcome = Outcome.from_arrays(time, event)
    at = np.unique(np.append(time, time + 0.5))
    product = survival_curve(outcome).after(at) * censoring_curve(outcome).after(at)
    assert product == pytest.approx((time > at[:, None]).mean(axis=1), abs=1e-12)


def test_weights_and_late_entry():
    time, event = tied_rows(1)
    rng = np.random.default_rng(0)
    entry, copies = np.floor(rng.random(40) * time), rng.integers(0, 4, 40)
    weighted = censoring_curve(Outcome(time, event, entry, copies.astype(float)))
    rows = np.repeat(np.arange(40), copies)
    repeated = censoring_curve(Outcome.from_arrays(time[rows], event[rows], entry[rows]))
    assert weighted.times.tolist() == repeated.times.tolist()
    assert weighted.survival == pytest.approx(repeated.survival, rel=1e-12)
    expected, chance = [], 1.0
    for moment in repeated.times:
        there = (entry < moment) & ((time > moment) | ((time == moment) & ~event))
        chance *= 1 - copies[(time == moment) & ~event].sum() / copies[there].sum()
        expected.append(chance)
    assert weighted.survival == pytest.approx(expected, rel=1e-12)


def test_fractional_weights_come_down_to_exactly_zero():
    """All who are there at time 3 fall then, and others enter later: nobody is left, to the last bit."""
    rng = np.random.default_rng(3)
    weight = rng.random(40)
    time = np.concatenate([np.full(10, 3.0), rng.permutation(30) + 10.0])
    entry = np.concatenate([np.zeros(10), 3.0 + rng.permutation(30) / 10])
    late = weight[10:]
    sums = [np.cumsum(late[np.argsort(of[10:])][::-1])[-1] for of in (time, entry)]
    assert sums[0] != sums[1], "the sums do not differ here"
    for curve, event in ((survival_curve, True), (censoring_curve, False)):
        found = curve(Outcome(time, np.full(40, event), entry, weight))
        assert found.after(3.0) == 0.0
        assert found.variance(3.0) == 0.0


@pytest.mark.parametrize(
    ("time", "event", "horizon"),
    [
        ([1, 2, 3], [1, 0, 1], 3.0),
        ([1, 2, 3], [1, 0, 0], 2.0),
        ([1, 2, 2], [0, 1, 0], 1.0),
        ([1, 3, 3], [1, 0, 0], 1.0),
    ],
)
def test_horizon(time, event, horizon):
    assert censoring_horizon(time, event) == horizon


def test_horizon_leaves_out_rows_of_weight_zero():
    assert censoring_horizon([1, 2, 3], [1, 1, 1], train_weight=[1, 1, 0]) == 2.0


def test_no_horizon():
    with pytest.raises(InputError, match="all training rows are censored at time 2: no censoring weight is defined"):
        censoring_horizon([2, 2], [0, 0])
    with pytest.raises(InputError, match="column 'train_weight' is 0 in all 2 rows"):
        censoring_horizon([2, 2], [0, 0], train_weight=[0, 0])
