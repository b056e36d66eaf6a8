"""Antolini's concordance against a double loop, and against Harrell's where the two are the same thing.

Tie rules, for a pair in which i has the event: j counts as observed for longer if its time is later, or the same and
censored; two events at one time are not comparable; equal survival counts one half. scikit-survival's
``concordance_index_censored`` has the same rules for times, and counts equal risk scores one half. When the curves do
not cross, a lower curve is a higher risk at every time, so the two indices agree.
"""

import itertools
import math

import numpy as np
import pytest
from sksurv.metrics import concordance_index_censored

from neuralsurv.errors import InputError
from neuralsurv.metrics.discrimination import antolini_concordance


def double_loop(time, event, survival) -> float:
    """`survival` (n, n): that of everybody at the time of each row."""
    concordant, comparable = 0.0, 0
    for i, j in itertools.permutations(range(len(time)), 2):
        if event[i] and (time[j] > time[i] or (time[j] == time[i] and not event[j])):
            comparable += 1
            concordant += 1.0 if survival[i, j] > survival[i, i] else 0.5 if survival[i, j] == survival[i, i] else 0.0
    return concordant / comparable


@pytest.mark.parametrize("seed", range(10))
def test_against_a_double_loop_with_ties(seed):
    rng = np.random.default_rng(seed)
    n = 25
    time = rng.integers(1, 9, n).astype(float)
    event = rng.random(n) < 0.6
    survival = rng.integers(0, 6, (n, n)) / 5.0
    assert len(set(time[event])) < event.sum(), "no tied events"
    assert set(time[event]) & set(time[~event]), "no event tied with a censoring"
    found = antolini_concordance(time, event, survival[event])
    assert found == pytest.approx(double_loop(time, event, survival), rel=1e-14)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_equals_harrell_where_curves_do_not_cross(seed, tied):
    rng = np.random.default_rng(seed)
    n = 60
    risk = rng.integers(1, 8, n).astype(float) if tied else rng.exponential(size=n) + 0.1
    time = rng.integers(1, 15, n).astype(float) if tied else rng.exponential(size=n)
    event = rng.random(n) < 0.6
    survival = np.exp(-np.outer(time[event], risk) / 100)
    harrell, *_ = concordance_index_censored(event, time, risk)
    assert antolini_concordance(time, event, survival) == pytest.approx(harrell, rel=1e-12)


def test_crossing_curves_are_compared_at_the_time_of_each_event():
    """Person 0 has the lower curve at time 1 and the higher one at time 2: no single risk score says both."""
    time, event = np.array([1.0, 2.0, 3.0, 3.0]), np.array([True, True, False, False])
    survival = np.array([[0.5, 0.6, 0.7, 0.8], [0.45, 0.2, 0.3, 0.1]])
    # At time 1 all three pairs are concordant; at time 2 that with person 2 is, and that with person 3 is not.
    assert antolini_concordance(time, event, survival) == pytest.approx(4 / 5)


@pytest.mark.parametrize(
    ("own", "other", "index"), [(0.3, 0.4, 1.0), (0.4, 0.3, 0.0), (0.3, 0.3, 0.5), (0.0, 0.0, 0.5)]
)
def test_one_pair_by_hand(own, other, index):
    found = antolini_concordance(np.array([1.0, 2.0]), np.array([True, False]), np.array([[own, other]]))
    assert found == index


def test_a_censored_row_at_the_time_of_an_event_counts_as_longer():
    found = antolini_concordance(np.array([2.0, 2.0]), np.array([True, False]), np.array([[0.1, 0.9]]))
    assert found == 1.0


def test_two_events_at_one_time_are_not_comparable():
    time, event = np.array([2.0, 2.0, 3.0]), np.array([True, True, False])
    # Only the pairs with the third row count: one concordant, one not.
    found = antolini_concordance(time, event, np.array([[0.1, 0.9, 0.5], [0.1, 0.9, 0.5]]))
    assert found == 0.5


@pytest.mark.parametrize(
    ("time", "event"), [([1.0, 2.0], [False, True]), ([2.0, 2.0], [True, True]), ([1.0, 2.0], [False, False])]
)
def test_no_comparable_pair(time, event):
    event = np.array(event)
    survival = np.full((int(event.sum()), 2), 0.5)
    with pytest.raises(InputError, match=r"no pair of the 2 rows is comparable .*: the concordance index is not"):
        antolini_concordance(np.array(time), event, survival)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (3, 2)])
def test_survival_of_another_shape(shape):
    event = np.array([True, False, True])
    with pytest.raises(InputError, match=rf"survival has shape \({shape[0]}, {shape[1]}\); 3 rows with 2 events need"):
        antolini_concordance(np.arange(1.0, 4.0), event, np.full(shape, 0.5))


def test_relabelling_rows_changes_nothing():
    rng = np.random.default_rng(4)
    time, event = rng.integers(1, 9, 20).astype(float), rng.random(20) < 0.5
    survival = rng.random((20, 20))
    order = rng.permutation(20)
    shuffled = survival[np.ix_(order, order)]
    found = antolini_concordance(time[order], event[order], shuffled[event[order]])
    assert math.isclose(found, antolini_concordance(time, event, survival[event]), rel_tol=1e-14)


def test_who_has_not_entered_yet_is_not_compared():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, False, False])
    entry = np.array([0.0, 0.0, 0.0, 1.5])
    # At the first event the last row (survival 0.1, discordant) is not there yet; at the second it is.
    survival = np.array([[0.5, 0.8, 0.9, 0.1], [0.3, 0.5, 0.8, 0.1]])
    assert antolini_concordance(time, event, survival) == pytest.approx(3 / 5)
    assert antolini_concordance(time, event, survival, entry) == pytest.approx(3 / 4)
