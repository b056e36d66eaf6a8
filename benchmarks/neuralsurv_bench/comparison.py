"""Compare methods over many subsamples: paired differences, ranks, and calibration pooled over folds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy import stats

from neuralsurv.errors import InputError
from neuralsurv_bench.methods.interface import Floats
from neuralsurv_bench.store import Record

# The name under which the average over cohorts is listed.
ALL_COHORTS = "all cohorts"
# Fewer subsamples than this say next to nothing about how much they differ.
FEWEST_SUBSAMPLES = 3
# A method with this share of the folds of every cohort has nearly all of them: in a few its score may be undefined.
NEARLY_ALL = 0.9
_BLOCK = ["cohort", "subsample", "fold"]


def score_frame(records: Iterable[Record], metric: str, definition: str = "ours") -> pd.DataFrame:
    """Return one metric as a table: a line for each (cohort, subsample, fold), a column for each method.

    A method that failed, or whose metric is not defined, has NaN there.
    """
    lines = [
        (record.key.cohort, record.key.seed, record.key.fold, record.key.method, value)
        for record in records
        if record.status == "finished" and (value := record.scores.get(definition, {}).get(metric)) is not None
    ]
    long = pd.DataFrame(lines, columns=[*_BLOCK, "method", "value"])
    return long.pivot(index=_BLOCK, columns="method", values="value").astype(float)


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference of a metric between a method and the reference, on the same folds.

    Attributes
    ----------
    cohort, method : str
        Where, and which method; `cohort` may be "all cohorts", the mean over cohorts.
    mean, lower, upper : float
        Method minus reference with its confidence interval; the ends are NaN if there are too few subsamples.
    subsamples, folds : int
        How much it is based on.
    """

    cohort: str
    method: str
    mean: float
    lower: float
    upper: float
    subsamples: int
    folds: int


def paired_differences(
    frame: pd.DataFrame, reference: str, *, level: float = 0.95, draws: int = 2000, seed: int = 0
) -> list[PairedDifference]:
    """Return the mean difference of every method to the reference, for each cohort and over all.

    The folds of a subsample share their rows, so whole subsamples are drawn in the bootstrap (percentile intervals,
    widened for few subsamples), apart in each cohort. The interval is about other subsamples of the same cohorts, not
    about other cohorts; where a cohort is hardly larger than its subsamples they overlap, and the interval is about the
    folds more than the rows.

    Parameters
    ----------
    frame : DataFrame
        From `score_frame`.
    reference : str
        The method that the others are compared with.
    level : float
        Level of the intervals.
    draws, seed : int
        Size and seed of the bootstrap.
    """
    if reference not in frame.columns:
        raise InputError(
            f"there is no result of the reference {reference!r}; the {len(frame.columns)} methods with results: "
            f"{', '.join(map(str, frame.columns))}."
        )
    found = []
    for method in frame.columns.drop(reference):
        difference = (frame[method] - frame[reference]).dropna()
        means, resampled = [], []
        for number, (cohort, values) in enumerate(difference.groupby(level="cohort", sort=False)):
            clusters = values.groupby(level="subsample").agg(["sum", "count"]).to_numpy()
            means.append(values.mean())
            resampled.append(_cluster_means(clusters, draws, np.random.default_rng([seed, number])))
            lower, upper = _interval(resampled[-1], level, len(clusters))
            found.append(
                PairedDifference(str(cohort), method, float(means[-1]), lower, upper, len(clusters), len(values))
            )
        if len(means) > 1:
            here = [one for one in found if one.method == method]
            fewest = min(one.subsamples for one in here)
            lower, upper = _interval(np.mean(resampled, axis=0), level, fewest)
            folds = sum(one.folds for one in here)
            found.append(PairedDifference(ALL_COHORTS, method, float(np.mean(means)), lower, upper, fewest, folds))
    return found


def _cluster_means(clusters: Floats, draws: int, generator: np.random.Generator) -> Floats:
    """Return the mean of each of `draws` resamples of whole clusters, given as (sum, count)."""
    chosen = generator.integers(len(clusters), size=(draws, len(clusters)))
    totals = clusters[chosen].sum(axis=1)
    return np.asarray(totals[:, 0] / totals[:, 1])


def _interval(resampled: Floats, level: float, subsamples: int) -> tuple[float, float]:
    if subsamples < FEWEST_SUBSAMPLES:
        return math.nan, math.nan
    # Percentiles alone are too narrow for few clusters; these tails make up for it as Student's t does (Hesterberg
    # 2015, "expanded percentile interval").
    t_quantile = stats.t.ppf((1 + level) / 2, subsamples - 1)
    tail = stats.norm.sf(math.sqrt(subsamples / (subsamples - 1)) * t_quantile)
    lower, upper = np.quantile(resampled, [tail, 1 - tail])
    return float(lower), float(upper)


@dataclass(frozen=True)
class Ranking:
    """Average ranks over cohorts with Nemenyi's critical difference.

    Attributes
    ----------
    methods : tuple of str
        From the best average rank to the worst.
    ranks : tuple of float
        Their average ranks; 1 is best.
    critical_difference : float
        Two average ranks must differ by more than this to be told apart.
    friedman_p : float
        p-value of Friedman's test that all methods are alike.
    cohorts : int
        Number of cohorts, the blocks of the test.
    left_out : tuple of str
        Methods with too few results in some cohort to be ranked.
    folds : int
        Number of folds in which all ranked methods have a result.
    """

    methods: tuple[str, ...]
    ranks: tuple[float, ...]
    critical_difference: float
    friedman_p: float
    cohorts: int
    left_out: tuple[str, ...]
    folds: int

    def groups(self) -> list[tuple[int, int]]:
        """Return the largest runs (first, last) of methods that cannot be told apart, of two or more each."""
        runs: list[tuple[int, int]] = []
        for first, rank in enumerate(self.ranks):
            last = max(i for i, other in enumerate(self.ranks) if other - rank <= self.critical_difference)
            if last > first and (not runs or last > runs[-1][1]):
                runs.append((first, last))
        return runs


def rank_methods(
    frame: pd.DataFrame, *, higher_is_better: bool, least_share: float = 0.0, alpha: float = 0.05
) -> Ranking:
    """Rank the methods in every cohort and average the ranks (Friedman; Nemenyi, after Demšar 2006).

    A cohort is one block: its subsamples overlap and its folds share training rows, so they do not count as
    independent data. A fold counts only if every ranked method has a result there.

    Parameters
    ----------
    frame : DataFrame
        From `score_frame`.
    higher_is_better : bool
        Which way the metric goes.
    least_share : float
        A method is ranked if it has some results in every cohort, and at least this share of the cohort's folds.
    alpha : float
        Level of the critical difference.
    """
    shares = frame.notna().groupby(level="cohort").mean()
    everywhere = [str(name) for name in frame if (shares[name] > 0).all() and (shares[name] >= least_share).all()]
    left_out = tuple(str(name) for name in frame.columns if name not in everywhere)
    common = frame[everywhere].dropna()
    means = common.groupby(level="cohort").mean()
    if len(everywhere) < 3 or len(means) < 2:
        raise InputError(
            f"{len(everywhere)} methods have results in all of {len(means)} cohorts; a ranking needs at least 3 "
            "methods and 2 cohorts. Run more of the experiment first."
        )
    signed = -means if higher_is_better else means
    ranks = signed.rank(axis=1).mean().sort_values(kind="stable")
    number = len(everywhere)
    quantile = stats.studentized_range.ppf(1 - alpha, number, np.inf) / math.sqrt(2)
    critical = quantile * _rank_error(number, len(means))
    friedman = stats.friedmanchisquare(*(means[name] for name in everywhere))
    return Ranking(
        tuple(ranks.index), tuple(ranks), float(critical), float(friedman.pvalue), len(means), left_out, len(common)
    )


def bonferroni_dunn(methods: int, cohorts: int, alpha: float = 0.05) -> float:
    """Return the critical difference between the average ranks of one control and of any other method (Demšar 2006).

    It is smaller than Nemenyi's, because fewer pairs are compared.

    Parameters
    ----------
    methods, cohorts : int
        Number of ranked methods, the control included, and of blocks.
    alpha : float
        Level of all comparisons with the control together.

    Examples
    --------
    >>> round(bonferroni_dunn(methods=4, cohorts=14), 3)
    1.168
    """
    return float(stats.norm.ppf(1 - alpha / (2 * (methods - 1))) * _rank_error(methods, cohorts))


def _rank_error(methods: int, cohorts: int) -> float:
    """Return the standard deviation of the difference of two average ranks if all methods are alike."""
    return math.sqrt(methods * (methods + 1) / (6 * cohorts))


@dataclass(frozen=True)
class PooledCalibration:
    """D-calibration of many folds together.

    Attributes
    ----------
    statistic, p_value : float
        Pearson's statistic against equal bins and its p-value, as if all rows were different people.
    rows : float
        Number of rows in the histogram.
    """

    statistic: float
    p_value: float
    rows: float


def pooled_d_calibration(histograms: Sequence[Sequence[float]]) -> PooledCalibration:
    """Add up the D-calibration histograms of several folds and test the sum.

    A method calibrated in every fold is calibrated in the sum, and a fold of 25 rows has no power of its own.
    """
    if not histograms:
        raise InputError("there is no histogram to pool; run the experiment first.")
    total = np.sum(np.asarray(histograms, dtype=np.float64), axis=0)
    expected = total.sum() / len(total)
    statistic = float(((total - expected) ** 2 / expected).sum())
    return PooledCalibration(statistic, float(stats.chi2.sf(statistic, len(total) - 1)), float(total.sum()))
