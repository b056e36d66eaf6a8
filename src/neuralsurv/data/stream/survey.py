"""The survey of a cohort before its rows are encoded, accumulated over chunks in two passes.

The first pass finds the outcome's totals and the kinds, ranges and levels of the covariates; the second their means and
spreads, for which a row counts as often as it was at risk at an event. The result is the encoding that
:meth:`neuralsurv.data.features.Encoding.fit` learns from the whole table.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.column_moments import bounded_spread, events_at_rarer, scale_of
from neuralsurv.data.columns import Column, in_order_of, kind_of, read_column, refuse_identifier, refuse_uninformative
from neuralsurv.data.features import Encoding, refuse_repeated
from neuralsurv.data.missing_codes import CodeCounts, MissingCode
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.stream.time_counts import TimeCounts
from neuralsurv.errors import InputError
from neuralsurv.names import counted

# A category with more levels than this would not fit a model, nor the memory.
_MOST_LEVELS = 10_000
_NO_CODES = CodeCounts()
_NO_TIMES = TimeCounts(np.empty(0), np.empty(0))
# Times are counted in batches of this many.
_COUNTED_AT_ONCE = 500_000


@dataclass(frozen=True)
class ColumnFacts:
    """Summary of one covariate over the rows so far."""

    name: str
    kind: str = ""  # "number" or "category"; empty if there is no value yet
    # Smallest and largest number.
    low: float = np.inf
    high: float = -np.inf
    levels: tuple[str, ...] = ()  # different labels, sorted, so that they do not depend on how the rows are divided
    # The order of the levels in the table; None if there is none, or if it differs between chunks.
    order: tuple[str, ...] | None = None
    # Rows with and without a value.
    present: int = 0
    missing: int = 0
    whole: bool = True  # whether all numbers so far are whole
    codes: CodeCounts = _NO_CODES  # numbers that could be codes for missing values

    @classmethod
    def of(cls, series: pd.Series, name: str) -> ColumnFacts:
        """Look at the values of one chunk."""
        values = read_column(series, name)
        if kind_of(values) == "array":
            raise InputError(
                f"column {name!r} holds a list or an array in each of its cells, of shape {np.shape(series.iloc[0])}; "
                "give every number a column of its own, or leave this one out (features=…)."
            )
        gone = np.asarray(pd.isna(values))
        present = values[~gone]
        facts = cls(name, present=len(present), missing=int(gone.sum()))
        if len(present) == 0:
            return facts
        if kind_of(values) == "number":
            whole = bool((present == np.floor(present)).all())
            low, high = float(present.min()), float(present.max())
            return replace(facts, kind="number", low=low, high=high, whole=whole, codes=CodeCounts.of(series))
        order = tuple(map(str, series.cat.categories)) if isinstance(series.dtype, pd.CategoricalDtype) else None
        return replace(facts, kind="category", levels=tuple(sorted(set(present.tolist()))), order=order)

    def __add__(self, other: ColumnFacts) -> ColumnFacts:
        """Return the summary of both parts."""
        if self.name != other.name:
            raise InputError(
                f"the batches have different columns: {self.name!r} and {other.name!r} are at the same place; give "
                "every batch the same columns in the same order."
            )
        if self.kind and other.kind and self.kind != other.kind:
            raise InputError(
                f"column {self.name!r} is a {self.kind} in one batch and a {other.kind} in another; give it one type."
            )
        levels = tuple(sorted({*self.levels, *other.levels}))
        if len(levels) > _MOST_LEVELS:
            raise InputError(
                f"column {self.name!r} has more than {_MOST_LEVELS} different values and looks like an identifier; "
                "drop it, or turn it into numbers."
            )
        if not self.kind or not other.kind:
            order = self.order if self.kind else other.order
        else:
            order = self.order if self.order == other.order else None
        return ColumnFacts(
            self.name,
            self.kind or other.kind,
            min(self.low, other.low),
            max(self.high, other.high),
            levels,
            order,
            self.present + other.present,
            self.missing + other.missing,
            self.whole and other.whole,
            self.codes + other.codes,
        )

    def column(self) -> Column:
        """Return how the column is encoded, by the rules and with the messages of the in-memory encoding."""
        rows = self.present + self.missing
        values: list[Any] = [self.low, self.high] if self.kind == "number" else list(self.levels)
        refuse_uninformative(self.name, self.kind, values, self.present, rows)
        if self.kind == "number":
            return Column(self.name, "number", (), self.missing > 0, self.low, self.high, self.whole)
        if self.order is not None:
            values = in_order_of(self.order, self.levels)
        refuse_identifier(self.name, len(values), rows)
        return Column(self.name, "category", tuple(values), self.missing > 0)

    def ranges(self) -> list[tuple[float, float]]:
        """Return the range of each encoded column; indicators run from 0 to 1."""
        column = self.column()
        own = [(self.low, self.high)] if self.kind == "number" else [(0.0, 1.0)] * len(column.shown)
        return [*own, (0.0, 1.0)] if column.has_missing else own


@dataclass(frozen=True)
class Survey:
    """Totals of the outcome and summaries of the covariates: the first pass."""

    # Rows with a positive weight, those of them with an event, and those with late entry.
    rows: int
    events: int
    truncated: int
    weightless: int  # rows with a weight of zero, which are left out
    # Sum of the weights of the events, and of weight times time at risk.
    weighted_events: float
    exposure: float
    last_time: float
    # Weights of the times of events, and numbers of rows with each time.
    event_times: TimeCounts
    times: TimeCounts
    columns: tuple[ColumnFacts, ...]

    def __add__(self, other: Survey) -> Survey:
        """Return the summary of both parts."""
        if self.columns and other.columns and len(self.columns) != len(other.columns):
            raise InputError(
                f"the batches have different columns: {counted(len(self.columns), 'covariate')} in one and "
                f"{len(other.columns)} in another; give every batch the same columns in the same order."
            )
        both = [a + b for a, b in zip(self.columns, other.columns, strict=False)]
        return Survey(
            self.rows + other.rows,
            self.events + other.events,
            self.truncated + other.truncated,
            self.weightless + other.weightless,
            self.weighted_events + other.weighted_events,
            self.exposure + other.exposure,
            max(self.last_time, other.last_time),
            self.event_times + other.event_times,
            self.times + other.times,
            tuple(both) or self.columns or other.columns,
        )

    def missing_codes(self) -> list[MissingCode]:
        """Return the values of the covariates that look like codes for missing ones."""
        return [found for column in self.columns for found in column.codes.codes(column.name)]

    def check_fittable(self) -> None:
        """Refuse a cohort from which no hazard can be learned."""
        if self.rows + self.weightless == 0:
            raise InputError("there are no rows to fit.")
        if self.rows == 0:
            raise InputError(f"every one of the {self.weightless} rows has a weight of zero; there is nothing to fit.")
        if self.rows == 1:
            raise InputError("there is only 1 row (n_samples=1); a survival model needs at least 2.")
        if self.events == 0:
            raise InputError(
                f"none of the {self.rows} rows has an event: a hazard cannot be learned. Check that the event column "
                "codes the event as 1, and censoring as 0."
            )


def nothing_seen() -> Survey:
    """Return the survey of no rows."""
    return Survey(0, 0, 0, 0, 0.0, 0.0, 0.0, _NO_TIMES, _NO_TIMES, ())


class SurveyAccumulator:
    """Accumulates the survey over chunks: the first pass."""

    def __init__(self) -> None:
        self._found = nothing_seen()
        self._waiting: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def add(self, covariates: pd.DataFrame, outcome: Outcome) -> None:
        """Add the rows of one chunk."""
        present = outcome.weight > 0
        absent = int((~present).sum())
        outcome, covariates = outcome.select(present), covariates[present]
        if len(outcome) == 0:
            self._found += replace(nothing_seen(), weightless=absent)
            return
        names = [str(name) for name in covariates.columns]
        if not names:
            raise InputError("no column is left for the covariates; a minimum of 1 is required.")
        refuse_repeated(names, names)
        self._found += Survey(
            len(outcome),
            int(outcome.event.sum()),
            int((outcome.entry > 0).sum()),
            absent,
            float(outcome.weight[outcome.event].sum()),
            float((outcome.weight * (outcome.time - outcome.entry)).sum()),
            float(outcome.time.max()),
            _NO_TIMES,
            _NO_TIMES,
            tuple(ColumnFacts.of(covariates.iloc[:, k], name) for k, name in enumerate(names)),
        )
        self._waiting.append((outcome.time, outcome.time[outcome.event], outcome.weight[outcome.event]))
        if sum(len(times) for times, _, _ in self._waiting) >= _COUNTED_AT_ONCE:
            self._count()

    def _count(self) -> None:
        times, event_times, event_weight = (np.concatenate(parts) for parts in zip(*self._waiting, strict=True))
        self._found = replace(
            self._found,
            times=self._found.times + TimeCounts.of(times, np.ones(len(times))),
            event_times=self._found.event_times + TimeCounts.of(event_times, event_weight),
        )
        self._waiting = []

    def finish(self) -> Survey:
        """Return the survey of all chunks."""
        if self._waiting:
            self._count()
        return self._found


@dataclass(frozen=True)
class Moments:
    """Weighted means and sums of squares of the encoded columns, merged without cancellation (Chan et al. 1983)."""

    # shape (p,): total weight of the values that are there, their mean, and the weighted sum of squared distances from
    # it; the values are seen from the middle of their range, with it as the unit.
    weight: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    # Weight of the events of rows whose value is there, and the sum of the values at them.
    events: np.ndarray
    event_sum: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both parts."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.weight * share
        events, event_sum = self.events + other.events, self.event_sum + other.event_sum
        return Moments(weight, self.mean + gap * share, squares, events, event_sum)


class MomentAccumulator:
    """Accumulates the moments of the covariates over chunks: the second pass."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._columns = tuple(facts.column() for facts in survey.columns)
        ranges = np.array([pair for facts in survey.columns for pair in facts.ranges()]).reshape(-1, 2)
        self._low, self._high = ranges[:, 0], ranges[:, 1]
        self._middle = self._low / 2 + self._high / 2
        self._exponent = np.frexp(self._high / 2 - self._low / 2)[1]
        self.found = Moments(*np.zeros((5, len(ranges))))

    def add(self, covariates: pd.DataFrame, outcome: Outcome) -> None:
        """Add the rows of one chunk."""
        present = outcome.weight > 0
        outcome, covariates = outcome.select(present), covariates[present]
        if len(outcome) == 0:
            return
        counts = self._survey.event_times
        weight = outcome.weight * (counts.up_to(outcome.time) - counts.up_to(outcome.entry))
        blocks = []
        for k, column in enumerate(self._columns):
            values = read_column(covariates.iloc[:, k], column.name)
            blocks.append(column.encode(values))
        raw = np.hstack(blocks)
        there = ~np.isnan(raw)
        values = np.ldexp(np.where(there, raw - self._middle, 0.0), -self._exponent)
        each = np.where(there, weight[:, None], 0.0)
        total = each.sum(0)
        mean = np.divide((each * values).sum(0), total, out=np.zeros_like(total), where=total > 0)
        squares = (each * (values - mean) ** 2).sum(0)
        events = np.where(there, outcome.event_weight()[:, None], 0.0)
        self.found += Moments(total, mean, squares, events.sum(0), (events * values).sum(0))

    def encoding(self, moments: Moments, *, standardise: bool) -> Encoding:
        """Return the encoding for the moments of all rows."""
        total = np.where(moments.weight > 0, moments.weight, 1.0)
        spread = np.sqrt(moments.squares / total)
        ends = np.stack([np.ldexp(end - self._middle, -self._exponent) for end in (self._low, self._high)])
        # As in memory: a column that only varies among rows that were never at risk at an event has its range.
        spread = np.where(spread > 1e-12, spread, np.abs(ends - moments.mean).max(0))
        shown = events_at_rarer(moments.mean, ends[1], moments.events, moments.event_sum)
        spread = bounded_spread(spread, moments.mean, ends[1], shown)
        scale = scale_of(spread, self._exponent)
        center = self._middle + np.ldexp(moments.mean, self._exponent)
        whole = Encoding(self._columns, center, scale, bool(standardise))
        return whole.without_rare_gaps(self._survey.weighted_events)
