"""The outcome of each row (time, event, entry, weight), read from every accepted form of y."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.cause_values import causes_note, read_causes
from neuralsurv.data.outcome_advice import codes_advice, is_word, words_advice, zero_advice
from neuralsurv.data.row_values import as_numbers, as_vector, check_finite, rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.names import check_known, counted

_NAMES = ("time", "event", "entry", "weight")
# The largest time lies between these, so that twice the time and the rate per unit of time are finite.
_LEAST_TIME, _MOST_TIME = 1e-300, 1e300
# Weights count rows; with more of them than this in all, a row of weight 1 is lost in the rounding.
_MOST_WEIGHT = 1e12


def _event_flags(values: Any, name: str) -> np.ndarray:
    label = f"column {name!r}"
    array = as_vector(values, label)
    if array.dtype == np.bool_:
        return array.copy()
    _refuse_words(array, name)
    numbers = as_numbers(array, label)
    check_finite(numbers, name)
    bad = (numbers != 0) & (numbers != 1)
    if bad.any():
        example = numbers[bad][0]
        raise InputError(
            f"{label} must be 0/1 or True/False, but holds {example:g} and the like in {rows_phrase(bad)}; "
            f"{codes_advice(name, numbers)}."
        )
    return np.asarray(numbers == 1)


def _refuse_words(array: np.ndarray, name: str) -> None:
    if array.dtype.kind not in "OU":
        return
    words = sorted({str(value) for value in array if isinstance(value, str) and is_word(value)})
    if words:
        # Checked first: the advice below compares with a word, and would turn a missing value into a censored row.
        check_finite(np.where(pd.isna(array), np.nan, 0.0), name)
        shown = ", ".join(map(repr, words[:10])) + (", …" if len(words) > 10 else "")
        raise InputError(
            f"column {name!r} must be 0/1 or True/False, but holds words ({shown}); {words_advice(name, words)}."
        )


def _check_signs(time: np.ndarray, entry: np.ndarray, weight: np.ndarray, names: Sequence[str]) -> None:
    """Refuse rows without time under observation, and negative numbers."""
    label = [f"column {name!r}" for name in names]
    if (time <= 0).any():
        raise InputError(
            f"{label[0]} is zero or negative in {rows_phrase(time <= 0)}; a row must be observed for some time. "
            f"{zero_advice(names[0], time)}"
        )
    if (entry < 0).any():
        raise InputError(f"{label[2]} is negative in {rows_phrase(entry < 0)}; time starts at 0.")
    if (entry >= time).any():
        raise InputError(
            f"{label[2]} is not before {label[0]} in {rows_phrase(entry >= time)}; "
            "a row must be observed for some time after it enters. Drop or correct these rows."
        )
    if (weight < 0).any():
        raise InputError(f"{label[3]} is negative in {rows_phrase(weight < 0)}; weights count rows and start at 0.")


def _check_sizes(time: np.ndarray, entry: np.ndarray, weight: np.ndarray, names: Sequence[str]) -> None:
    """Refuse numbers that are too large or too small: times are divided by the largest, weights are added up."""
    label = [f"column {name!r}" for name in names]
    longest = time.max()
    if not _LEAST_TIME <= longest <= _MOST_TIME:
        raise InputError(
            f"the largest value of {label[0]} is {longest:g}; it must lie between {_LEAST_TIME:g} and {_MOST_TIME:g}. "
            "Count time in another unit."
        )
    lost = entry / longest >= time / longest
    if lost.any():
        raise InputError(
            f"{label[0]} is so small beside the largest, {longest:g}, or so close to {label[2]} that no time under "
            f"observation is left of {rows_phrase(lost)}; check the unit of these rows, or drop them."
        )
    with np.errstate(over="ignore"):
        total = weight.sum()
    if total > _MOST_WEIGHT:
        raise InputError(
            f"{label[3]} adds up to {total:g}; weights count rows, and more than {_MOST_WEIGHT:g} rows in all are not "
            "possible. Divide the weights by a common number."
        )


def check_fittable(rows: int, events: int, weightless: int) -> None:
    """Refuse a cohort from which no hazard can be learned; `weightless` rows have a weight of zero and do not count."""
    if rows + weightless == 0:
        raise InputError("there are no rows to fit.")
    if rows == 0:
        raise InputError(f"every one of the {weightless} rows has a weight of zero; there is nothing to fit.")
    weighed = " with a weight" if weightless else ""
    if rows == 1:
        raise InputError(f"there is only 1 row{weighed} (n_samples=1); a survival model needs at least 2.")
    if events == 0:
        raise InputError(
            f"none of the {rows} rows{weighed} has an event: a hazard cannot be learned. Check that the event column "
            "codes the event as 1, and censoring as 0."
        )


@dataclass(frozen=True)
class Outcome:
    """Checked outcomes of N rows, in the user's unit of time.

    Attributes
    ----------
    time : ndarray of shape (N,)
        When observation of the row ends, greater than entry.
    event : bool ndarray of shape (N,)
        Whether it ends with the event.
    entry : ndarray of shape (N,)
        When observation begins; 0 unless left-truncated.
    weight : ndarray of shape (N,)
        Row weight, 0 or more: a weight of 2 counts as the row twice.
    causes : tuple of int or str
        The causes of events, where there are several; else empty.
    cause : int ndarray of shape (N,), or None
        The number of the cause of each event, 0 without one; None where there is one cause.
    note : str
        How the values of the event column were read, where it holds several causes.

    Examples
    --------
    >>> from neuralsurv.data.outcome import Outcome
    >>> outcome = Outcome.from_arrays(time=[5, 8, 3], event=[1, 0, 1])
    >>> outcome.event.sum()
    np.int64(2)
    """

    time: np.ndarray
    event: np.ndarray
    entry: np.ndarray
    weight: np.ndarray
    causes: tuple[int | str, ...] = ()
    cause: np.ndarray | None = None
    note: str = ""

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.time)

    @classmethod
    def from_arrays(
        cls,
        time: Any,
        event: Any,
        entry: Any = None,
        weight: Any = None,
        *,
        names: Sequence[str] = _NAMES,
        several: bool = False,
    ) -> Outcome:
        """Check and bundle arrays.

        Parameters
        ----------
        time, event : array-like of shape (N,)
            Follow-up times (finite, positive) and event flags (0/1 or bool).
        entry, weight : array-like of shape (N,), optional
            Entry times (0 by default) and row weights (1 by default).
        names : sequence of str
            What to call the four columns in messages.
        several : bool
            Whether the events may have several causes; they are refused otherwise.
        """
        label = [f"column {name!r}" for name in names]
        times = as_numbers(time, label[0])
        if len(times) == 0:
            raise InputError(f"{label[0]} is empty: there are no rows to fit.")
        read = read_causes(event, names[1]) if several else None
        flags = _event_flags(event, names[1]) if read is None else read.event
        entries = np.zeros_like(times) if entry is None else as_numbers(entry, label[2])
        weights = np.ones_like(times) if weight is None else as_numbers(weight, label[3])
        for values, name in ((flags, label[1]), (entries, label[2]), (weights, label[3])):
            if len(values) != len(times):
                raise InputError(
                    f"{name} has {counted(len(values), 'row')} but {label[0]} has {len(times)}; both need one value "
                    "per row."
                )
        for values, name in ((times, names[0]), (entries, names[2]), (weights, names[3])):
            check_finite(values, name)
        _check_signs(times, entries, weights, names)
        _check_sizes(times, entries, weights, names)
        if read is None:
            return cls(times, flags, entries, weights)
        counts = {cause: int((flags & (read.cause == k)).sum()) for k, cause in enumerate(read.names)}
        note = causes_note(names[1], counts, read.censoring, int((~flags).sum()))
        return cls(times, flags, entries, weights, read.names, read.cause, note)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        time: str,
        event: str,
        entry: str | None = None,
        weight: str | None = None,
        *,
        several: bool = False,
    ) -> Outcome:
        """Read an outcome from named columns of a DataFrame; `several` as in :meth:`from_arrays`."""
        columns = []
        for name in (time, event, entry, weight):
            if name is not None:
                check_known(name, list(frame.columns), what="column")
            columns.append(None if name is None else frame[name])
        names = [name or default for name, default in zip((time, event, entry, weight), _NAMES, strict=True)]
        return cls.from_arrays(*columns, names=names, several=several)

    @classmethod
    def from_any(cls, y: Any, *, entry: Any = None, weight: Any = None, several: bool = False) -> Outcome:
        """Read an outcome from any accepted form of y.

        Parameters
        ----------
        y : Outcome, structured ndarray, DataFrame, or tuple
            A structured array with one bool field (the event) and one numeric field (the time), as in
            scikit-survival; a DataFrame with columns time and event, and optionally entry and weight; a pair
            ``(time, event)``; or a triple ``(entry, time, event)``.
        entry, weight : array-like of shape (N,), optional
            Entry times and row weights; they take the place of those that a DataFrame or an Outcome holds.
        several : bool
            As in :meth:`from_arrays`.
        """
        if isinstance(y, pd.DataFrame):
            found = {name: (name if name in y.columns else None) for name in ("entry", "weight")}
            y = cls.from_frame(y, "time", "event", found["entry"], found["weight"], several=several)
        if isinstance(y, Outcome):
            if y.causes and not several:
                raise InputError(
                    f"the outcome has {len(y.causes)} causes, and one is needed here; give the events of a single "
                    "cause as True or 1, all others as censored."
                )
            if entry is None and weight is None:
                return y
            read = cls.from_arrays(
                y.time, y.event, y.entry if entry is None else entry, y.weight if weight is None else weight
            )
            return replace(read, causes=y.causes, cause=y.cause, note=y.note)
        if isinstance(y, np.ndarray) and y.dtype.names is not None:
            flags = [name for name in y.dtype.names if y.dtype[name].kind == "b"]
            others = [name for name in y.dtype.names if name not in flags]
            if len(flags) != 1 or len(others) != 1:
                raise InputError(
                    f"the structured array y has fields {', '.join(y.dtype.names)}; it needs exactly two, one bool "
                    "(the event) and one numeric (the time)."
                )
            names = (others[0], flags[0], "entry", "weight")
            return cls.from_arrays(y[others[0]], y[flags[0]], entry, weight, names=names)
        if isinstance(y, tuple) and len(y) in (2, 3):
            *own_entry, time, event = y
            if own_entry and entry is not None:
                raise InputError("entry is given twice: in the triple (entry, time, event) and as an argument.")
            return cls.from_arrays(time, event, own_entry[0] if own_entry else entry, weight, several=several)
        raise InputError(
            f"y of type {type(y).__name__} is not understood. Give a structured array with a bool event field and a "
            "time field, a pair (time, event), a triple (entry, time, event), or a DataFrame with columns "
            "'time' and 'event'."
        )

    def check_fittable(self) -> None:
        """Refuse a cohort with too few rows or no event."""
        there = self.weight > 0
        check_fittable(int(there.sum()), int((self.event & there).sum()), int((~there).sum()))

    def select(self, rows: np.ndarray) -> Outcome:
        """Return the outcome of the given rows."""
        cause = None if self.cause is None else self.cause[rows]
        kept = (self.time[rows], self.event[rows], self.entry[rows], self.weight[rows])
        return Outcome(*kept, self.causes, cause, self.note)

    def by_frequency(self) -> Outcome:
        """Return the outcome with the causes in the order of the weight of their events, the largest first.

        Two of the same weight are in the order of their event times, so that what causes are called does not matter.
        """
        if self.cause is None:
            return self
        own = [self.event & (self.cause == k) for k in range(len(self.causes))]
        for name, rows in zip(self.causes, own, strict=True):
            if not (self.weight[rows] > 0).any():
                raise InputError(
                    f"no row with a weight has an event of cause {name!r}; mark its rows as censored, or leave them "
                    "out."
                )
        keys = [(-self.weight[rows].sum(), *np.sort(self.time[rows])) for rows in own]
        order = sorted(range(len(keys)), key=keys.__getitem__)
        return replace(
            self, causes=tuple(self.causes[k] for k in order), cause=np.argsort(order)[self.cause] * self.event
        )

    def cause_events(self) -> dict[int | str, int]:
        """Return the number of events of each cause; empty where there is one cause."""
        if self.cause is None:
            return {}
        return {name: int((self.event & (self.cause == k)).sum()) for k, name in enumerate(self.causes)}

    def event_weight(self) -> np.ndarray:
        """Return the weight of the event of each row, 0 without one."""
        return np.where(self.event, self.weight, 0.0)

    def risk_weight(self) -> np.ndarray:
        """Return how much each row counts when covariates are averaged: weight × events while it was at risk.

        The count adds up over the pieces of a row that is split in two, and it changes neither with the order of
        the rows nor with the unit of time, so an encoding fitted with it does not either.
        """
        order = np.argsort(self.time[self.event], kind="stable")
        event_times = self.time[self.event][order]
        cumulative = np.concatenate([[0.0], np.cumsum(self.weight[self.event][order])])
        upto = cumulative[np.searchsorted(event_times, self.time, side="right")]
        before = cumulative[np.searchsorted(event_times, self.entry, side="right")]
        return np.asarray(self.weight * (upto - before))
