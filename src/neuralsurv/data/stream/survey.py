"""The survey of a cohort before its rows are encoded, accumulated over chunks in two passes.

The first pass finds the outcome's totals and the kinds, ranges and levels of the covariates; the second their means and
spreads, for which a row counts as often as it was at risk at an event. The result is the encoding that
:meth:`neuralsurv.data.features.Encoding.fit` learns from the whole table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from neuralsurv.data.cohort import coarse
from neuralsurv.data.column_moments import center_and_scale
from neuralsurv.data.columns import ColumnFacts, kind_of, read_column
from neuralsurv.data.features import Encoding, refuse_repeated
from neuralsurv.data.missing_codes import MissingCode
from neuralsurv.data.outcome import Outcome, check_fittable
from neuralsurv.errors import InputError
from neuralsurv.names import counted

# Times are counted in batches of this many.
_COUNTED_AT_ONCE = 500_000
_MOST_EXACT = 2**17
_DIGITS = 16


@dataclass(frozen=True)
class TimeCounts:
    """Weights of times, in bounded memory.

    Up to 131,072 different times are kept as they are. If there are more, all are rounded to 16 binary digits (a
    relative 8e-6), so that even times over ten powers of two take at most some megabytes. Whether they are rounded, and
    what to, depends on the times alone and not on their order, so counts of parts of the rows can be added up.
    """

    time: np.ndarray  # different times, increasing, shape (k,)
    weight: np.ndarray  # weight of each, shape (k,)
    rounded: bool = False  # whether the times have been rounded

    @classmethod
    def of(cls, time: np.ndarray, weight: np.ndarray) -> TimeCounts:
        """Count times."""
        return _limited(*_counted(time, weight), rounded=False)

    def __add__(self, other: TimeCounts) -> TimeCounts:
        """Return the counts of both."""
        rounded = self.rounded or other.rounded
        time, weight = np.concatenate([self.time, other.time]), np.concatenate([self.weight, other.weight])
        return _limited(*_counted(coarse(time, _DIGITS) if rounded else time, weight), rounded=rounded)

    def up_to(self, time: np.ndarray) -> np.ndarray:
        """Return the weight of all times that are not after each of the given ones."""
        cumulative = np.concatenate([[0.0], np.cumsum(self.weight)])
        at = coarse(time, _DIGITS) if self.rounded else time
        return np.asarray(cumulative[np.searchsorted(self.time, at, side="right")])

    def quantiles(self, shares: Sequence[float]) -> np.ndarray:
        """Return, for each share, the first time up to which at least that share of the weight lies."""
        cumulative = np.cumsum(self.weight)
        # A sum that rounding puts just below a share reaches it.
        wanted = np.asarray(shares) * cumulative[-1] * (1 - 1e-12)
        return np.asarray(self.time[np.searchsorted(cumulative, wanted)])


def _counted(time: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, which = np.unique(time, return_inverse=True)
    return distinct, np.bincount(which.reshape(-1), weights=weight, minlength=len(distinct)).astype(np.float64)


def _limited(time: np.ndarray, weight: np.ndarray, *, rounded: bool) -> TimeCounts:
    if rounded or len(time) <= _MOST_EXACT:
        return TimeCounts(time, weight, rounded)
    return TimeCounts(*_counted(coarse(time, _DIGITS), weight), rounded=True)


_NO_TIMES = TimeCounts(np.empty(0), np.empty(0))


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

    @classmethod
    def of(cls, outcome: Outcome) -> Survey:
        """Survey the outcome of some rows; of those with a weight of zero it has only the number."""
        there = outcome.select(outcome.weight > 0)
        event_time, event_weight = there.time[there.event], there.weight[there.event]
        return cls(
            len(there),
            len(event_time),
            int((there.entry > 0).sum()),
            len(outcome) - len(there),
            float(event_weight.sum()),
            float((there.weight * (there.time - there.entry)).sum()),
            float(there.time.max(initial=0.0)),
            TimeCounts.of(event_time, event_weight),
            TimeCounts(*np.unique(there.time, return_counts=True)),
            (),
        )

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
        check_fittable(self.rows, self.events, self.weightless)


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
        # Times are counted in larger batches.
        found = replace(Survey.of(outcome), event_times=_NO_TIMES, times=_NO_TIMES)
        present = outcome.weight > 0
        outcome, covariates = outcome.select(present), covariates[present]
        names = [str(name) for name in covariates.columns]
        if len(outcome) == 0:
            self._found += found
            return
        if not names:
            raise InputError("no column is left for the covariates; a minimum of 1 is required.")
        refuse_repeated(names, names)
        columns = tuple(_facts(covariates.iloc[:, k], name) for k, name in enumerate(names))
        self._found += replace(found, columns=columns)
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


def _facts(series: pd.Series, name: str) -> ColumnFacts:
    values = read_column(series, name)
    if kind_of(values) == "array":
        raise InputError(
            f"column {name!r} holds a list or an array in each of its cells, of shape {np.shape(series.iloc[0])}; "
            "give every number a column of its own, or leave this one out (features=…)."
        )
    return ColumnFacts.of(series, values, name)


@dataclass(frozen=True)
class Moments:
    """Weighted means and sums of squares of the encoded columns, merged without cancellation (Chan et al. 1983)."""

    # shape (p,): total weight of the values that are there, their mean, and the weighted sum of squared distances from
    # it; the values are seen from the middle of their range, with it as the unit.
    weight: np.ndarray
    mean: np.ndarray
    squares: np.ndarray
    # Weight of the events of rows whose value is there.
    events: np.ndarray
    # shape (2, p): weight, and weight of the events, of rows at the lower and at the upper end of the range.
    weight_at_ends: np.ndarray
    events_at_ends: np.ndarray

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of both parts."""
        weight = self.weight + other.weight
        share = np.divide(other.weight, weight, out=np.zeros_like(weight), where=weight > 0)
        gap = other.mean - self.mean
        squares = self.squares + other.squares + gap**2 * self.weight * share
        return Moments(
            weight,
            self.mean + gap * share,
            squares,
            self.events + other.events,
            self.weight_at_ends + other.weight_at_ends,
            self.events_at_ends + other.events_at_ends,
        )


class MomentAccumulator:
    """Accumulates the moments of the covariates over chunks: the second pass."""

    def __init__(self, survey: Survey) -> None:
        self._survey = survey
        self._columns = tuple(facts.column() for facts in survey.columns)
        ranges = np.array([pair for column in self._columns for pair in column.ranges()], dtype=np.float64).reshape(
            -1, 2
        )
        self._low, self._high = ranges[:, 0], ranges[:, 1]
        self._middle = self._low / 2 + self._high / 2
        self._exponent = np.frexp(self._high / 2 - self._low / 2)[1]
        self.found = Moments(*np.zeros((4, len(ranges))), *np.zeros((2, 2, len(ranges))))

    def add(self, covariates: pd.DataFrame, outcome: Outcome) -> None:
        """Add the rows of one chunk."""
        present = outcome.weight > 0
        outcome, covariates = outcome.select(present), covariates[present]
        if len(outcome) == 0:
            return
        counts = self._survey.event_times
        weight = outcome.weight * (counts.up_to(outcome.time) - counts.up_to(outcome.entry))
        tables = [
            column.encode(read_column(covariates.iloc[:, k], column.name)) for k, column in enumerate(self._columns)
        ]
        raw = np.hstack(tables)
        there = ~np.isnan(raw)
        values = np.ldexp(np.where(there, raw - self._middle, 0.0), -self._exponent)
        each = np.where(there, weight[:, None], 0.0)
        total = each.sum(0)
        mean = np.divide((each * values).sum(0), total, out=np.zeros_like(total), where=total > 0)
        squares = (each * (values - mean) ** 2).sum(0)
        events = np.where(there, outcome.event_weight()[:, None], 0.0)
        at_ends = raw == np.stack([self._low, self._high])[:, None]
        self.found += Moments(total, mean, squares, events.sum(0), (each * at_ends).sum(1), (events * at_ends).sum(1))

    def encoding(self, moments: Moments, *, standardise: bool) -> Encoding:
        """Return the encoding for the moments of all rows."""
        total = np.where(moments.weight > 0, moments.weight, 1.0)
        spread = np.sqrt(moments.squares / total)
        ends = np.ldexp(np.stack([self._low, self._high]) - self._middle, -self._exponent)
        share, events = moments.weight_at_ends / total, (moments.events, moments.events_at_ends)
        center, scale = center_and_scale(self._middle, self._exponent, ends, moments.mean, spread, share, events)
        whole = Encoding(self._columns, center, scale, bool(standardise))
        return whole.without_rare_gaps(self._survey.weighted_events)
