"""The tables about the default preset: its ingredients, and whole cohorts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from neuralsurv_bench.comparison import paired_differences, score_frame
from neuralsurv_bench.methods import neuralsurv_default
from neuralsurv_bench.methods.interface import Method
from neuralsurv_bench.repeated_tables import difference_table, mean_table
from neuralsurv_bench.results import BRIER, CONCORDANCE, LIKELIHOOD, Metric
from neuralsurv_bench.store import Record
from neuralsurv_bench.table_text import Cell, Table

_METRICS = (BRIER, CONCORDANCE, LIKELIHOOD)


def ingredients_tables(records: Sequence[Record], methods: Mapping[str, Method]) -> Iterator[Table]:
    """Yield the default preset with one change at a time: means, and paired differences to the preset."""
    by_change = [replace(one, key=replace(one.key, method=one.key.setting)) for one in records]
    reference = next(iter(neuralsurv_default.CHANGES))
    for metric in _METRICS:
        frame = score_frame(by_change, metric.name)
        frame = frame[[change for change in neuralsurv_default.CHANGES if change in frame.columns]]
        if reference in frame.columns:
            yield mean_table(frame, metric)
            yield difference_table(paired_differences(frame, reference), metric, reference)


def full_tables(records: Sequence[Record], methods: Mapping[str, Method]) -> Iterator[Table]:
    """Yield means over the folds of whole cohorts, and which methods are within a standard error of the best."""
    for metric in _METRICS:
        frame = score_frame(records, metric.name)
        frame = frame[[name for name in methods if name in frame.columns]]
        if not frame.empty:
            yield mean_table(frame, metric)
            yield error_table(frame, metric)


def error_table(frame: pd.DataFrame, metric: Metric) -> Table:
    """Return each method's paired difference to the best one of each cohort, with its standard error over the folds."""
    sign = -1 if metric.higher_is_better else 1
    columns = {}
    for cohort, values in frame.groupby(level="cohort", sort=False):
        complete = values.dropna(axis=1)
        best = (sign * complete.mean()).idxmin()
        away = complete.sub(complete[best], axis=0)
        error = away.std() / len(away) ** 0.5
        within = sign * away.mean() <= error
        columns[str(cohort)] = {
            name: "best" if name == best else _away(away[name].mean(), error[name], within=bool(within[name]))
            for name in complete
        }
    rows = [[Cell(str(name)), *(Cell(column.get(name, "–")) for column in columns.values())] for name in frame.columns]
    note = "Difference to the best method on the same folds ± its standard error; ✓ where it is no larger than that."
    return Table(f"{metric.title}: behind the best", ["method", *columns], rows, note)


def _away(difference: float, error: float, *, within: bool) -> str:
    """Return a difference in words; a single fold has no standard error."""
    if math.isnan(error):
        return f"{difference:+.4f}"
    return f"{difference:+.4f} ± {error:.4f}{' ✓' if within else ''}"
