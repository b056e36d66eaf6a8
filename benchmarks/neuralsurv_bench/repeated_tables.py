"""The tables of the repeated experiment: means, paired differences, ranks and pooled calibration."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import pandas as pd

from neuralsurv.errors import InputError
from neuralsurv_bench.comparison import (
    ALL_COHORTS,
    NEARLY_ALL,
    PairedDifference,
    Ranking,
    paired_differences,
    pooled_d_calibration,
    rank_methods,
    score_frame,
)
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.methods.neuralsurv_default import NAME
from neuralsurv_bench.protocol import FOLDS
from neuralsurv_bench.results import (
    BRIER,
    CONCORDANCE,
    KM_CALIBRATION,
    LIKELIHOOD,
    REJECTED_BELOW,
    Metric,
    difference_text,
)
from neuralsurv_bench.store import Record
from neuralsurv_bench.table_text import Cell, Table, mark_best

HISTOGRAM = "d_calibration_histogram"


def reference_method(methods: Mapping[str, Method]) -> str:
    """Return the method that the others are compared with: the default preset, or else the first of ours."""
    ours = [method.name for method in methods.values() if method.family == "ours"]
    return NAME if NAME in ours else ours[0]


def repeated_tables(
    records: Sequence[Record], methods: Mapping[str, Method], reference: str | None = None
) -> Iterator[Table]:
    """Yield the tables of the repeated experiment, by our own definitions of the metrics."""
    chosen = reference_method(methods) if reference is None else reference
    for metric in (BRIER, CONCORDANCE, LIKELIHOOD, KM_CALIBRATION):
        frame = score_frame(records, metric.name)
        frame = frame[[name for name in methods if name in frame.columns]]
        if frame.empty:
            continue
        yield mean_table(frame, metric)
        if chosen in frame.columns:
            yield difference_table(paired_differences(frame, chosen), metric, chosen)
        yield from rank_tables(frame, metric)
    yield from calibration_tables(records, methods)


def mean_table(frame: pd.DataFrame, metric: Metric) -> Table:
    """Return the mean of each method in each cohort over the folds where it has a result."""
    cohorts = list(frame.index.unique("cohort"))
    means = frame.groupby(level="cohort").mean().loc[cohorts]
    means.loc[ALL_COHORTS] = means.mean(skipna=False)
    counts = frame.groupby(level="cohort").count().loc[cohorts]
    folds = frame.groupby(level="cohort").size().loc[cohorts]
    complete = counts.eq(folds, axis=0)
    # An average over cohorts is complete if all of them are.
    complete.loc[ALL_COHORTS] = complete.all()
    columns = []
    for cohort, line in means.iterrows():
        texts = []
        for method, value in line.items():
            some = cohort != ALL_COHORTS and not complete.loc[cohort, method]
            text = "–" if math.isnan(value) else f"{value:.4f}"
            texts.append(f"{text} ({counts.loc[cohort, method]} of {folds[cohort]})" if some else text)
        # A mean over other folds than the rest cannot be the best of them.
        values = [float(line[name]) if complete.loc[cohort, name] else None for name in frame.columns]
        columns.append(mark_best(values, texts, higher_is_better=bool(metric.higher_is_better)))
    rows = [[Cell(str(name)), *cells] for name, *cells in zip(frame.columns, *columns, strict=True)]
    subsamples = frame.index.droplevel("fold").unique().to_frame(index=False).groupby("cohort").size()
    note = (
        f"Mean over folds; so far {int(folds.sum())} folds, from at least {int(subsamples.min())} subsamples of each "
        "cohort. Our definitions of the metrics, repaired methods."
    )
    return Table(f"{metric.title}: means", ["method", *map(str, means.index)], rows, note)


def difference_table(differences: Sequence[PairedDifference], metric: Metric, reference: str) -> Table:
    """Return the paired differences with their confidence intervals."""
    cohorts = list(dict.fromkeys(one.cohort for one in differences))
    # The average belongs at the end, whichever method came first.
    cohorts = [c for c in cohorts if c != ALL_COHORTS] + [c for c in cohorts if c == ALL_COHORTS]
    found = {(one.method, one.cohort): one for one in differences}
    rows = [
        [Cell(method), *(Cell(_difference(found.get((method, cohort)))) for cohort in cohorts)]
        for method in dict.fromkeys(one.method for one in differences)
    ]
    note = (
        f"Method minus {reference} on the same folds, with 95 % intervals by a bootstrap of whole subsamples; an "
        f"interval without 0 is starred. {'Above' if metric.higher_is_better else 'Below'} 0 is better than "
        f"{reference}."
    )
    return Table(f"{metric.title}: paired differences", ["method", *cohorts], rows, note)


def _difference(one: PairedDifference | None) -> str:
    if one is None:
        return "–"
    mean, lower, upper = (difference_text(value, digits=4) for value in (one.mean, one.lower, one.upper))
    if math.isnan(one.lower):
        return mean
    return f"{mean} [{lower}, {upper}]{' *' if one.lower > 0 or one.upper < 0 else ''}"


def rank_tables(frame: pd.DataFrame, metric: Metric) -> Iterator[Table]:
    """Yield average ranks over cohorts: of all methods and, if some have few folds, of those that have nearly all."""
    for title, least_share in (("ranks", 0.0), ("ranks of the methods that have nearly all folds", NEARLY_ALL)):
        try:
            ranking = rank_methods(frame, higher_is_better=bool(metric.higher_is_better), least_share=least_share)
        except InputError:
            # Too little has run for ranks; the other tables show how much.
            return
        yield rank_table(ranking, f"{metric.title}: {title}")
        if ranking.folds >= NEARLY_ALL * len(frame):
            return


def rank_table(ranking: Ranking, title: str) -> Table:
    """Return a table of average ranks over cohorts."""
    rows = [[Cell(name), Cell(f"{rank:.2f}")] for name, rank in zip(ranking.methods, ranking.ranks, strict=True)]
    left_out = f" Left out, with too few results: {', '.join(ranking.left_out)}." if ranking.left_out else ""
    note = (
        f"Average rank over {ranking.cohorts} cohorts, by the {ranking.folds} folds that all of these methods have. "
        f"Friedman's test that all are alike: p = {ranking.friedman_p:.2g}; Nemenyi's critical difference at 5 %: "
        f"{ranking.critical_difference:.2f}.{left_out}"
    )
    return Table(title, ["method", "average rank"], rows, note)


def calibration_tables(records: Sequence[Record], methods: Mapping[str, Method]) -> Iterator[Table]:
    """Yield D-calibration with the histograms of all folds of a cohort added up."""
    histograms: dict[tuple[str, str], list[Sequence[float]]] = {}
    for record in records:
        histogram = record.scores.get("ours", {}).get(HISTOGRAM)
        if histogram:
            histograms.setdefault((record.key.method, record.key.cohort), []).append(histogram)
    if not histograms:
        return
    cohorts = list(dict.fromkeys(cohort for _, cohort in histograms))
    rows = []
    for method in methods:
        cells = [histograms.get((method, cohort)) for cohort in cohorts]
        if any(cells):
            pooled = [None if cell is None else pooled_d_calibration(cell) for cell in cells]
            texts = ["–" if one is None else f"{one.statistic / one.rows:.4f} ({one.p_value:.2g})" for one in pooled]
            rows.append([Cell(method), *(Cell(text) for text in texts)])
    note = (
        "Pearson's statistic of the pooled histogram divided by the number of rows (0 is perfect), with the p-value in "
        "brackets, as if every row were another person; with many subsamples people recur, so it is too small."
    )
    yield Table("D-calibration pooled over folds and subsamples", ["method", *cohorts], rows, note)
    yield _passed_table(records, methods, cohorts)


def _passed_table(records: Sequence[Record], methods: Mapping[str, Method], cohorts: Sequence[str]) -> Table:
    """Return in how many subsamples a method passes the test of D-calibration, their five folds added up."""
    cells: dict[tuple[str, str], dict[int, list[Sequence[float]]]] = {}
    for record in records:
        histogram = record.scores.get("ours", {}).get(HISTOGRAM)
        if histogram:
            subsamples = cells.setdefault((record.key.method, record.key.cohort), {})
            subsamples.setdefault(record.key.seed, []).append(histogram)
    rows = []
    for method in methods:
        passed = {
            cohort: [
                pooled_d_calibration(folds).p_value >= REJECTED_BELOW
                for folds in cells.get((method, cohort), {}).values()
                if len(folds) == FOLDS
            ]
            for cohort in cohorts
        }
        every = [one for found in passed.values() for one in found]
        if every:
            texts = [f"{sum(found)} of {len(found)}" if found else "–" for found in passed.values()]
            rows.append([Cell(method), *map(Cell, texts), Cell(f"{sum(every) / len(every):.1%}")])
    note = f"Subsamples with all folds done in which a test at {REJECTED_BELOW:.0%} does not reject; chance gives 95 %."
    return Table("D-calibration passed", ["method", *cohorts, ALL_COHORTS], rows, note)
