"""The covariates of a model for clients (values, training range, typical value), and people as rows of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.data.columns import Column
from neuralsurv.data.features import Encoding
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import ColumnError
from neuralsurv.names import listed, suggestion

Value = int | float | str | bool | None
_LARGEST = float(np.finfo(np.float64).max)
_LONGEST = 100


@dataclass(frozen=True)
class Covariate:
    """One covariate."""

    column: Column  # how it is encoded
    # Of its training values, for a number; 0 and 1 for a category.
    mean: float
    spread: float
    typical: float | str  # the mean of a number, rounded; the commonest category

    @property
    def is_flag(self) -> bool:
        """Whether it is a category that holds nothing but true and false."""
        return self.column.kind == "category" and set(self.column.levels) <= {"True", "False"}

    @property
    def levels(self) -> list[Any]:
        """The values of a category as they are sent: true and false where these are all there is."""
        return [level == "True" for level in self.column.levels] if self.is_flag else list(self.column.levels)

    @property
    def sent(self) -> Any:
        """The typical value as it is sent."""
        return self.typical == "True" if self.is_flag else self.typical

    def described(self) -> dict[str, Any]:
        """Return it as plain data for ``/model``."""
        column = self.column
        shared = {"name": column.name, "kind": column.kind, "typical": self.sent}
        shared["missing_in_training"] = column.has_missing
        if column.kind == "category":
            return {**shared, "levels": self.levels}
        span = None if column.low is None else {"low": column.low, "high": column.high}
        return {**shared, "training_range": span, "whole": column.whole, "mean": self.mean, "spread": self.spread}


def covariates_of(encoding: Encoding) -> tuple[Covariate, ...]:
    """Return the covariates of a model."""
    found, place = [], 0
    for column in encoding.columns:
        center, scale = float(encoding.center[place]), float(encoding.scale[place])
        if column.kind == "number":
            found.append(Covariate(column, center, scale, _rounded(column, center, scale)))
        else:
            # The means of indicators are shares; of two levels only the second has one.
            shares = encoding.center[place : place + len(column.shown)]
            every = [1 - float(shares[0]), float(shares[0])] if len(column.levels) == 2 else shares.tolist()
            found.append(Covariate(column, 0.0, 1.0, column.levels[int(np.argmax(every))]))
        place += len(column.outputs)
    return tuple(found)


def _rounded(column: Column, center: float, scale: float) -> float:
    """Return a mean with no more digits than its spread gives reason for."""
    if column.whole:
        return float(round(center)) + 0.0
    digits = 1 - int(np.floor(np.log10(scale))) if 1e-300 < scale < 1e300 else 0
    value = round(center, digits) if abs(digits) < 300 else center
    if column.low is not None and column.high is not None:
        value = min(max(value, column.low), column.high)
    return float(value) + 0.0  # without the sign of a zero


def people_columns(people: Sequence[dict[str, Value]], covariates: Sequence[Covariate]) -> list[np.ndarray]:
    """Return each covariate of people as a column, checked; a value that is None, or not there, is missing.

    Columns are what :func:`neuralsurv.data.columns.read_column` gives. That people have no other covariates has been
    checked (:func:`check_names`).
    """
    return [_column(people, covariate) for covariate in covariates]


def check_names(people: Iterable[dict[str, Any]], covariates: Sequence[Covariate]) -> None:
    """Refuse a covariate that the model does not have."""
    names = [covariate.column.name for covariate in covariates]
    known = set(names)
    for person in people:
        for name in person:
            if name not in known:
                shown = abbreviated(name)
                raise ColumnError(
                    f"there is no covariate {shown!r}; "
                    + suggestion(shown, names, f"The covariates are {listed(names)}."),
                    shown,
                )


def abbreviated(text: str) -> str:
    """Return what a client sent, short enough to be sent back."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _column(people: Sequence[dict[str, Value]], covariate: Covariate) -> np.ndarray:
    column = covariate.column
    values = [person.get(column.name) for person in people]
    left_out = np.array([column.name not in person for person in people])
    if left_out.any() and not column.has_missing:
        # No training row lacked it: it may have been forgotten. That it is not known has to be said.
        raise ColumnError(
            f"covariate {column.name!r} is missing in {rows_phrase(left_out)}; give a value, or null if it is not "
            "known.",
            column.name,
        )
    if column.kind == "number":
        _check_each(values, column, _is_number, "must be a finite number")
        return np.array([np.nan if value is None else value for value in values], dtype=np.float64)
    if covariate.is_flag:
        _check_each(values, column, lambda value: isinstance(value, bool), "must be true or false")
        values = [None if value is None else str(value) for value in values]
    else:
        _check_each(values, column, lambda value: isinstance(value, str), "must be text")
    unseen = np.array([value is not None and value not in column.levels for value in values])
    if unseen.any():
        name = abbreviated(str(values[int(unseen.argmax())]))
        raise ColumnError(
            f"covariate {column.name!r} has the value {name!r} in {rows_phrase(unseen)}, which the model does not "
            "know; " + suggestion(name, column.levels, f"It knows {listed(column.levels)}."),
            column.name,
        )
    table = np.empty(len(values), dtype=object)
    table[:] = values
    return table


def _is_number(value: Value) -> bool:
    # A whole number of JSON may have any number of digits.
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST


def _check_each(values: Sequence[Value], column: Column, right: Any, words: str) -> None:
    wrong = np.array([value is not None and not right(value) for value in values])
    if wrong.any():
        raise ColumnError(f"covariate {column.name!r} {words}, but is not in {rows_phrase(wrong)}.", column.name)


def outside_training(columns: Sequence[np.ndarray], covariates: Sequence[Covariate]) -> list[list[dict[str, Any]]]:
    """Return for each person the numbers that lie outside what the model was trained on.

    Each covariate is checked on its own: an unusual combination of usual values is not found.
    """
    found: list[list[dict[str, Any]]] = [[] for _ in columns[0]]
    for values, covariate in zip(columns, covariates, strict=True):
        low, high = covariate.column.low, covariate.column.high
        if low is None or high is None:
            continue
        for row in np.flatnonzero((values < low) | (values > high)):
            side = "below" if values[row] < low else "above"
            found[row].append({"column": covariate.column.name, "side": side, "low": low, "high": high})
    return found
