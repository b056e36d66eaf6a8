"""Kaplan–Meier of censoring against scikit-survival, torchsurv and a loop."""

import numpy as np
import pytest
from sksurv.nonparametric import CensoringDistributionEstimator

from metrics.cohorts import censoring_loop
from metrics.other_software import structured, torchsurv_weights
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics import censoring_horizon
from neuralsurv.metrics.kaplan_meier import censoring_curve, survival_curve


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
