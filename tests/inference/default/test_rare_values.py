"""Values that few rows hold have no rank of their own, and so neither a curve nor a neighbourhood."""

import numpy as np
import pytest
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.curve_choice import choose_curves
from neuralsurv.inference.default.neighbourhood_choice import rank_tables


def ranks_of(column, events=None, expected=None):
    """The rank of every value, where each of its rows has one event unless given."""
    values = torch.tensor(column, dtype=torch.float64)[:, None]
    one = torch.ones(len(values), dtype=torch.float64)
    events = one if events is None else torch.tensor(events, dtype=torch.float64)
    expected = 0 * one if expected is None else torch.tensor(expected, dtype=torch.float64)
    found, ranks = rank_tables(values, one, events, expected)
    return dict(zip(found[0].tolist(), ranks[0].tolist(), strict=True))


@pytest.mark.parametrize(
    ("column", "same"),
    [
        ([0] * 90 + [1, 2, 30], [(0, 1, 2, 30)]),  # a count that is nearly always 0
        ([0] * 90 + [1] * 9, [(0, 1)]),
        ([0] * 40 + [1] * 4 + [2] * 50, [(1, 2)]),  # the indicator of a level, in the middle of which are rare ones
        ([0] * 190 + [1] * 12 + [2] * 200, [(1, 2)]),  # even if these have ten events together
        ([0] * 30 + [1] * 30 + [2] * 30 + [3, 4, 5], [(2, 3, 4, 5)]),  # the tail of a count
    ],
)
def test_rare_values_are_ranked_with_a_frequent_one(column, same):
    ranks = ranks_of(column)
    for values in same:
        assert len({ranks[value] for value in values}) == 1
    assert len(set(ranks.values())) == len(ranks) - sum(len(values) - 1 for values in same)


@pytest.mark.parametrize(
    "column",
    [
        [0] * 390 + [1] * 10,  # ten events are enough for a rank of their own
        [0] * 30 + [1] * 12 + [2] * 30,
        list(range(100)),  # no value is frequent
        [0] * 50 + list(range(1, 51)),
        [0, 0, 0, 5],
    ],
)
def test_others_keep_their_ranks(column):
    ranks = ranks_of(column)
    values, counts = np.unique(column, return_counts=True)
    middle = (counts.cumsum() - counts / 2) / len(column)
    np.testing.assert_allclose([ranks[value] for value in values], middle)


def test_expected_events_count_where_there_are_more():
    column = [0] * 50 + [1] * 8
    alive = [1.0] * 50 + [0.0] * 8
    assert len(set(ranks_of(column, alive, [1.0] * 50 + [1.2] * 8).values())) == 1
    assert len(set(ranks_of(column, alive, [1.0] * 50 + [1.3] * 8).values())) == 2


def test_a_count_that_is_nearly_always_zero_has_no_curve():
    rng = np.random.default_rng(0)
    rows, one = 300, torch.ones(300)
    count, age = np.zeros(rows), rng.normal(size=rows)
    count[:4] = [1, 2, 3, 30]
    x = torch.from_numpy(np.column_stack([count, age]))
    time = torch.from_numpy(rng.exponential(size=rows) + 0.01)
    assert choose_curves(Cohort.of(time, one > 0, 0 * one, one, x), products=False).which.tolist() == [1]
    assert choose_curves(Cohort.of(time, one > 0, 0 * one, one, x[:, :1]), products=False) is None
