import numpy as np
import pytest

from neuralsurv.metrics import harrell_concordance
from neuralsurv_bench.neutral.study_scores import brier_times, study_brier, study_concordance


@pytest.fixture
def outcomes():
    generator = np.random.default_rng(0)
    return [(generator.integers(1, 12, n).astype(float), generator.random(n) < 0.5) for n in (40, 25)]


def by_pairs(time, event, risk):
    found = [
        1.0 if risk[i] > risk[j] else 0.5 if risk[i] == risk[j] else 0.0
        for i in range(len(time))
        for j in range(len(time))
        if event[i] and time[j] > time[i]
    ]
    return sum(found) / len(found)


def test_concordance_compares_with_strictly_later_times_only(outcomes):
    time, event = outcomes[0]
    risk = np.random.default_rng(1).integers(0, 6, len(time)).astype(float)
    assert study_concordance(time, event, risk) == pytest.approx(by_pairs(time, event, risk), abs=1e-12)
    assert study_concordance(time, event, risk) != pytest.approx(harrell_concordance(time, event, risk), abs=1e-4)


def test_brier_times_end_when_more_than_four_fifths_have_left():
    # At 9 exactly 80 % have left, which is not more.
    assert brier_times(np.arange(1.0, 11)).tolist() == list(range(1, 11))
    assert brier_times(np.arange(1.0, 21)).tolist() == list(range(1, 19))


def test_the_brier_score_of_curves_is_that_of_loops(outcomes, brier_by_hand):
    train, (time, event) = outcomes
    rates = np.linspace(0.05, 0.3, len(time))
    curves = np.exp(-brier_times(time) * rates[:, None])
    by_hand = brier_by_hand(*train, time, event, lambda moment, row: np.exp(-moment * rates[row]))
    assert study_brier(train, (time, event), curves) == pytest.approx(by_hand, abs=1e-12)


def test_a_probability_of_being_uncensored_is_at_least_one_in_a_thousand():
    # All training rows are censored at 1, so that G is 0 from there on.
    train = np.array([1.0, 1.0]), np.array([False, False])
    test = np.array([2.0, 3.0]), np.array([True, True])
    # At 2 the first row has the event (0) and the second lives (1 - 0)² / 0.001; at 3 nobody lives.
    assert study_brier(train, test, np.zeros((1, 2))) == pytest.approx((1000 / 2 + 0) / 2)
