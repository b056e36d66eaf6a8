"""Counts of times: exact while they are few, rounded when they are many, and the same in any order."""

import numpy as np
import pytest

from neuralsurv.data.stream import time_counts
from neuralsurv.data.stream.time_counts import TimeCounts

RANDOM = np.random.default_rng(0)
TIME, WEIGHT = RANDOM.exponential(size=3000), RANDOM.uniform(size=3000)


def in_parts(order, parts):
    return sum(
        (TimeCounts.of(TIME[part], WEIGHT[part]) for part in np.array_split(order, parts)),
        TimeCounts(np.empty(0), np.empty(0)),
    )


@pytest.mark.parametrize("most", [10_000, 500])
def test_parts_add_up_to_the_whole_in_any_order(most, monkeypatch):
    monkeypatch.setattr(time_counts, "_MOST_EXACT", most)
    whole = TimeCounts.of(TIME, WEIGHT)
    assert whole.rounded == (most < 3000)
    for parts in (2, 7):
        found = in_parts(np.random.default_rng(parts).permutation(3000), parts)
        np.testing.assert_array_equal(found.time, whole.time)
        np.testing.assert_allclose(found.weight, whole.weight, rtol=1e-12)
        assert found.rounded == whole.rounded


def test_quantiles_are_times_up_to_which_a_share_of_the_weight_lies():
    counts = TimeCounts.of(np.array([1.0, 2.0, 3.0, 4.0]), np.array([1.0, 1.0, 1.0, 1.0]))
    assert counts.quantiles((0.25, 0.5, 0.75)).tolist() == [1, 2, 3]
    heavy = TimeCounts.of(np.array([1.0, 2.0, 3.0]), np.array([1.0, 1.0, 6.0]))
    assert heavy.quantiles((0.25, 0.5, 0.75)).tolist() == [2, 3, 3]
    repeated = TimeCounts.of(np.repeat([1.0, 2.0, 3.0], [1, 1, 6]), np.ones(8))
    assert repeated.quantiles((0.25, 0.5, 0.75)).tolist() == [2, 3, 3]


@pytest.mark.parametrize(("most", "relative"), [(10_000, 0.0), (500, 2.0**-16)])
def test_weight_up_to_a_time(most, relative, monkeypatch):
    monkeypatch.setattr(time_counts, "_MOST_EXACT", most)
    counts = TimeCounts.of(TIME, WEIGHT)
    at = np.array([0.0, TIME[5], 0.3, 1.0, 100.0])
    low, high = ([WEIGHT[t * factor >= TIME].sum() for t in at] for factor in (1 - relative, 1 + relative))
    found = counts.up_to(at)
    assert (found >= np.array(low) - 1e-9).all()
    assert (found <= np.array(high) + 1e-9).all()


def test_memory_is_bounded_however_many_times_there_are():
    times = np.random.default_rng(1).uniform(1, 4, size=400_000)
    counts = TimeCounts.of(times, np.ones(len(times)))
    # Two powers of two, with 2**15 places each.
    assert counts.rounded
    assert len(counts.time) <= 2 * 2**15 + 1
    assert counts.weight.sum() == len(times)
