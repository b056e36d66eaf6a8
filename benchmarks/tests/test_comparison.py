import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from false_alarm import FALSE_ALARM
from neuralsurv.errors import InputError
from neuralsurv_bench.comparison import (
    ALL_COHORTS,
    Ranking,
    paired_differences,
    pooled_d_calibration,
    rank_methods,
    score_frame,
)
from neuralsurv_bench.store import Key, Record


def record(cohort, subsample, fold, method, ibs, status="finished"):
    key = Key("repeated", cohort, "", fold, method, "fair", subsample)
    return Record(key, status, {} if status == "failed" else {"ours": {"ibs": ibs}})


def frame_of(values):
    """A frame from {(cohort, subsample, fold): {method: value}}."""
    index = pd.MultiIndex.from_tuples(values, names=["cohort", "subsample", "fold"])
    return pd.DataFrame(list(values.values()), index=index)


def test_scores_become_a_line_a_fold_and_a_column_a_method():
    records = [
        record("A", 0, 0, "x", 0.1),
        record("A", 0, 0, "y", 0.2),
        record("A", 0, 1, "x", 0.3),
        record("A", 0, 1, "y", None),
        record("B", 2, 1, "y", 0.4, status="failed"),
        record("B", 2, 1, "x", 0.5),
    ]
    frame = score_frame(records, "ibs")
    assert frame.loc[("A", 0, 0)].to_dict() == {"x": 0.1, "y": 0.2}
    assert frame["x"].tolist() == [0.1, 0.3, 0.5]
    assert np.isnan(frame["y"]).tolist() == [False, True, True]


def test_paired_differences_by_hand():
    frame = frame_of(
        {
            ("A", 0, 0): {"ours": 0.2, "other": 0.3},
            ("A", 0, 1): {"ours": 0.2, "other": 0.2},
            ("A", 1, 0): {"ours": 0.4, "other": 0.2},
            ("A", 1, 1): {"ours": 0.4, "other": math.nan},
            ("B", 0, 0): {"ours": 0.1, "other": 0.6},
        }
    )
    by_cohort = {one.cohort: one for one in paired_differences(frame, "ours")}
    assert by_cohort["A"].mean == pytest.approx((0.1 + 0.0 - 0.2) / 3)
    assert (by_cohort["A"].subsamples, by_cohort["A"].folds) == (2, 3)
    assert by_cohort["B"].mean == pytest.approx(0.5)
    # Cohorts count alike, however many folds they have.
    assert by_cohort[ALL_COHORTS].mean == pytest.approx((-0.1 / 3 + 0.5) / 2)
    assert by_cohort[ALL_COHORTS].folds == 4
    assert math.isnan(by_cohort["B"].lower)
    assert math.isnan(by_cohort[ALL_COHORTS].upper)


def test_the_bootstrap_draws_whole_subsamples():
    # Folds of a subsample are alike, so ten subsamples hold ten independent numbers, not fifty.
    generator = np.random.default_rng(3)
    levels = generator.normal(size=10)
    frame = frame_of({("A", s, f): {"r": 0.0, "m": levels[s]} for s in range(10) for f in range(5)})
    (one,) = paired_differences(frame, "r", draws=20000)
    # The mean of a sample is close to normal, so the interval is close to Student's.
    student = stats.t.interval(0.95, 9, levels.mean(), levels.std(ddof=1) / math.sqrt(10))
    assert one.mean == pytest.approx(levels.mean())
    assert (one.upper - one.lower) == pytest.approx(student[1] - student[0], rel=0.1)


def test_the_average_over_cohorts_resamples_each_cohort_apart():
    generator = np.random.default_rng(4)
    values = {("A", s, 0): {"r": 0.0, "m": generator.normal()} for s in range(30)}
    values |= {("B", s, 0): {"r": 0.0, "m": generator.normal()} for s in range(30)}
    found = {one.cohort: one for one in paired_differences(frame_of(values), "r", draws=20000)}
    widths = {name: one.upper - one.lower for name, one in found.items()}
    # Independent cohorts: the variance of the mean of two is a quarter of the sum of theirs.
    assert widths[ALL_COHORTS] == pytest.approx(math.hypot(widths["A"], widths["B"]) / 2, rel=0.1)


def test_intervals_cover_as_often_as_they_say():
    runs, covered = 400, 0
    generator = np.random.default_rng(5)
    for _ in range(runs):
        levels = generator.normal(size=20)
        noise = generator.normal(size=(20, 5))
        frame = frame_of({("A", s, f): {"r": 0.0, "m": levels[s] + noise[s, f]} for s in range(20) for f in range(5)})
        (one,) = paired_differences(frame, "r", draws=300)
        covered += one.lower <= 0 <= one.upper
    assert stats.binomtest(covered, runs, 0.95).pvalue > FALSE_ALARM


def test_differences_need_the_reference():
    frame = frame_of({("A", 0, 0): {"x": 0.1, "y": 0.2}})
    with pytest.raises(InputError, match="no result of the reference 'ours'; the 2 methods with results: x, y"):
        paired_differences(frame, "ours")


def ranked_frame():
    generator = np.random.default_rng(6)
    worth = {"a": 0.0, "b": 0.1, "c": 0.2, "d": 0.9}
    return frame_of(
        {
            (f"cohort {c}", s, f): {name: value + 0.02 * generator.normal() for name, value in worth.items()}
            for c, s, f in itertools.product(range(6), range(2), range(2))
        }
    )


def test_ranks_agree_with_a_count_by_hand():
    frame = ranked_frame()
    ranking = rank_methods(frame, higher_is_better=False)
    assert ranking.methods == ("a", "b", "c", "d")
    means = frame.groupby(level="cohort").mean()
    by_hand = [
        np.mean([sum(line[other] < line[name] for other in means) + 1 for _, line in means.iterrows()])
        for name in "abcd"
    ]
    assert ranking.ranks == pytest.approx(by_hand)
    assert ranking.cohorts == 6
    up = rank_methods(frame, higher_is_better=True)
    assert up.methods == ("d", "c", "b", "a")
    assert up.ranks == pytest.approx([5 - rank for rank in reversed(by_hand)])


def test_critical_difference_is_the_tabulated_one():
    # Demšar (2006), table 5a: q = 2.569 for four methods at 5 %.
    ranking = rank_methods(ranked_frame(), higher_is_better=False)
    assert ranking.critical_difference == pytest.approx(2.569 * math.sqrt(4 * 5 / (6 * 6)), abs=1e-3)


def test_friedman_agrees_with_its_formula():
    frame = ranked_frame()
    ranking = rank_methods(frame, higher_is_better=False)
    k, n = 4, 6
    statistic = 12 * n / (k * (k + 1)) * (sum(rank**2 for rank in ranking.ranks) - k * (k + 1) ** 2 / 4)
    assert ranking.friedman_p == pytest.approx(stats.chi2.sf(statistic, k - 1))


def test_a_method_without_results_in_a_cohort_is_left_out_and_a_missing_fold_is_dropped_for_all():
    frame = ranked_frame()
    frame["e"] = np.where(frame.index.get_level_values("cohort") == "cohort 2", np.nan, 0.0)
    # Without this fold, "a" would still be best; with the others of it alone, it would be worst.
    frame.loc[("cohort 1", 0, 0), ["a", "b", "c"]] = [math.nan, -100.0, -100.0]
    ranking = rank_methods(frame, higher_is_better=False)
    assert ranking.left_out == ("e",)
    assert ranking.folds == 23
    assert ranking.ranks[0] == 1.0
    assert ranking.methods[0] == "a"


def test_a_method_with_few_folds_can_be_left_out_so_that_the_others_keep_theirs():
    frame = ranked_frame()
    frame["e"] = [0.0, math.nan, math.nan, math.nan] * 6
    few, most = (rank_methods(frame, higher_is_better=False, least_share=share) for share in (0.25, 0.26))
    assert (few.folds, few.left_out, few.methods[0]) == (6, (), "e")
    assert (most.folds, most.left_out, most.methods) == (24, ("e",), ("a", "b", "c", "d"))


def test_runs_of_methods_that_cannot_be_told_apart():
    ranking = Ranking(tuple("abcde"), (1.0, 1.5, 2.4, 4.0, 4.9), 1.0, 0.01, 8, (), 40)
    assert ranking.groups() == [(0, 1), (1, 2), (3, 4)]
    assert Ranking(tuple("abc"), (1.0, 2.0, 3.0), 5.0, 0.5, 8, (), 40).groups() == [(0, 2)]
    assert Ranking(tuple("abc"), (1.0, 2.0, 3.0), 0.5, 0.5, 8, (), 40).groups() == []


def test_a_ranking_needs_three_methods_and_two_cohorts():
    frame = frame_of({("A", 0, 0): {"x": 0.1, "y": 0.2, "z": 0.3}})
    with pytest.raises(InputError, match="3 methods have results in all of 1 cohorts; a ranking needs at least 3"):
        rank_methods(frame, higher_is_better=False)


def test_pooled_calibration_is_pearsons_test_of_the_sum():
    histograms = [[5, 0, 0, 0], [0, 5, 1, 0], [0, 0, 4, 5]]
    pooled = pooled_d_calibration(histograms)
    expected = stats.chisquare([5, 5, 5, 5])
    assert (pooled.statistic, pooled.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    skewed = pooled_d_calibration([[8, 2, 2.5, 1.5], [7, 1, 1, 1]])
    expected = stats.chisquare([15, 3, 3.5, 2.5])
    assert (skewed.statistic, skewed.p_value) == pytest.approx((expected.statistic, expected.pvalue))
    assert skewed.rows == 24


def test_nothing_to_pool_is_refused():
    with pytest.raises(InputError, match="there is no histogram to pool"):
        pooled_d_calibration([])
