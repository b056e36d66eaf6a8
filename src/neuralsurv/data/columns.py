"""One input column: read from a table, learned from the training rows, encoded as numbers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import accumulate, pairwise
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.comma_numbers import decimal_comma
from neuralsurv.data.parts import holds_codes
from neuralsurv.data.row_values import refuse_dates_and_complex, refuse_infinite, rows_phrase
from neuralsurv.errors import InputError


@dataclass(frozen=True)
class Column:
    """How one input column is encoded.

    Attributes
    ----------
    name : str
        Name of the column, or its position in a matrix as ``x0``, ``x1``, …
    kind : {"number", "category", "array"}
        Numbers are scaled; categories (text, category and bool columns) become indicators; arrays, of a part of X that
        is not a table, are flattened and left as they are.
    levels : tuple of str
        The values of a category, as text; of two levels only the second gets an indicator.
    has_missing : bool
        Whether training rows lacked a value.
    low, high : float, optional
        Smallest and largest training value of a number; None for a category, and where an older model file lacks them.
    whole : bool
        Whether all training values of a number were whole, as counts and years are; of arrays, whether they hold codes
        that are passed to the network as whole numbers.
    part : str
        The part of X that the column belongs to; empty where X is one table.
    shape : tuple of int
        Shape of one array.
    gap_indicator : bool
        Whether an encoded column says that the value is missing; there is none where too few training rows lack it.
    """

    name: str
    kind: str
    levels: tuple[str, ...]
    has_missing: bool
    low: float | None = None
    high: float | None = None
    whole: bool = False
    part: str = ""
    shape: tuple[int, ...] = ()
    gap_indicator: bool = True

    @classmethod
    def learn(cls, series: pd.Series, values: np.ndarray, name: str, part: str = "") -> Column:
        """Learn from training rows how a column is encoded.

        Parameters
        ----------
        series : Series of length N
            The column.
        values : ndarray of shape (N,) or (N, k)
            What :func:`read_column` reads from it.
        name, part : str
            Its name, and the part of X that it belongs to.
        """
        if kind_of(values) == "array":
            codes = holds_codes(series.iloc[0])
            return cls(name, "array", (), False, whole=codes, part=part, shape=np.shape(series.iloc[0]))
        present = values[~pd.isna(values)]
        has_missing = len(present) < len(values)
        if kind_of(values) == "number":
            ends = [float(end) for end in (present.min(), present.max())] if len(present) else []
            refuse_uninformative(name, "number", ends, len(present), len(values))
            whole = bool((present == np.floor(present)).all())
            return cls(name, "number", (), has_missing, ends[0], ends[1], whole, part)
        levels = sorted(set(present))
        refuse_uninformative(name, "category", levels, len(present), len(values))
        if isinstance(series.dtype, pd.CategoricalDtype):
            levels = in_order_of(series.cat.categories, levels)
        else:
            _refuse_decimal_comma(name, present)
        refuse_identifier(name, len(levels), len(values))
        return cls(name, "category", tuple(levels), has_missing, part=part)

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels that get an indicator."""
        return self.levels[1:] if len(self.levels) == 2 else self.levels

    @property
    def width(self) -> int:
        """Number of encoded columns."""
        if self.kind == "array":
            return math.prod(self.shape)
        return (1 if self.kind == "number" else len(self.shown)) + self.marks_gaps

    @property
    def marks_gaps(self) -> bool:
        """Whether the last of the encoded columns says that the value is missing."""
        return self.has_missing and self.gap_indicator

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.kind == "array":
            return tuple(f"{self.name}{list(place)}" for place in np.ndindex(self.shape))
        names = (self.name,) if self.kind == "number" else tuple(f"{self.name}={level}" for level in self.shown)
        return (*names, f"{self.name} missing") if self.marks_gaps else names

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return the encoded column before it is standardised, shape (N, width), NaN where a value is missing.

        Parameters
        ----------
        values : ndarray of shape (N,) or (N, k)
            What :func:`read_column` reads from the column.
        """
        if self.kind == "array":
            return values
        gone = np.asarray(pd.isna(values))[:, None]
        if self.kind == "number":
            encoded = values.astype(np.float64)[:, None]
        else:
            shown = np.array(self.shown, dtype=object)
            encoded = np.where(gone, np.nan, (values[:, None] == shown).astype(np.float64))
        return np.hstack([encoded, gone.astype(np.float64)]) if self.marks_gaps else encoded

    def encode_new(self, series: pd.Series) -> np.ndarray:
        """Return the encoded column of new rows; refuse types and levels not seen in training."""
        values = read_column(series, self.name)
        if self.kind == "array" and kind_of(values) == "array":
            shape = np.shape(series.iloc[0])
            if shape != self.shape:
                raise InputError(
                    f"part {self.name!r} of X has rows of shape {shape}, but {self.shape} when the model was fitted."
                )
        else:
            self._check_like_training(values, str(series.dtype))
        return self.encode(values)

    def _check_like_training(self, values: np.ndarray, dtype: str) -> None:
        gone = np.asarray(pd.isna(values))
        if kind_of(values) != self.kind and not gone.all():
            raise InputError(
                f"column {self.name!r} is of type {dtype}, but was a {self.kind} when the model was fitted; "
                "convert it to the same type."
            )
        if self.kind == "category":
            unseen = ~gone & ~np.asarray(pd.Series(values, dtype=object).isin(self.levels))
            if unseen.any():
                raise InputError(
                    f"column {self.name!r} has the value {values[unseen][0]!r} in {rows_phrase(unseen)}, which was not "
                    f"seen in training; known are {', '.join(self.levels)}."
                )


def places(columns: Sequence[Column]) -> list[slice]:
    """Return where each input column lies among the encoded columns."""
    ends = accumulate((column.width for column in columns), initial=0)
    return [slice(start, stop) for start, stop in pairwise(ends)]


def read_column(series: pd.Series, name: str) -> np.ndarray:
    """Return the values of a column, shape (N,), or (N, k) for a column of arrays.

    Numbers are float64, NaN where missing; labels are text (dtype object), None where missing.
    """
    dtype = series.dtype
    if pd.api.types.is_object_dtype(dtype):
        return _read_objects(series, name)
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return _labels(series)
    return _labels(series) if pd.api.types.is_string_dtype(dtype) else _numbers(series, name)


def kind_of(values: np.ndarray) -> str:
    """Return the kind of column, as in :class:`Column`, that :func:`read_column` has read the values from."""
    if values.ndim == 2:
        return "array"
    return "number" if values.dtype == np.float64 else "category"


def in_order_of(categories: Iterable[object], levels: Iterable[str]) -> list[str]:
    """Return levels in the order in which a table lists its categories, as text."""
    seen = set(levels)
    return [level for level in dict.fromkeys(map(str, categories)) if level in seen]


def refuse_uninformative(name: str, kind: str, values: Sequence[Any], present: int, rows: int) -> None:
    """Refuse a column without values, or with the same one everywhere.

    `values` are the different values, sorted; of numbers the two ends of their range are enough.
    """
    if present == 0:
        raise InputError(f"column {name!r} has no value in any of the {rows} rows; drop it.")
    if values[0] == values[-1]:
        value = f"{values[0]:g}" if kind == "number" else values[0]
        where = f"all {rows} rows"
        if present < rows:
            where = f"all {present} rows that have a value" if present > 1 else "the one row that has a value"
        raise InputError(f"column {name!r} is constant ({value} in {where}); drop it.")


def refuse_identifier(name: str, levels: int, rows: int) -> None:
    """Refuse a category with about as many levels as rows."""
    if levels > max(20, rows / 2):
        raise InputError(
            f"column {name!r} has {levels} different values in {rows} rows and looks like an identifier; drop it, or "
            "turn it into numbers."
        )


def _refuse_decimal_comma(name: str, present: np.ndarray) -> None:
    example = decimal_comma(present)
    if example is not None:
        raise InputError(
            f"column {name!r} holds numbers with a decimal comma, such as {example!r}, as text; make them numbers: "
            f"df[{name!r}] = df[{name!r}].str.replace(',', '.').astype(float), or pd.read_csv(…, decimal=','). If they "
            f"are categories: df[{name!r}] = df[{name!r}].astype('category')."
        )


def _read_objects(series: pd.Series, name: str) -> np.ndarray:
    if len(series) and isinstance(series.iloc[0], np.ndarray):
        return _stacked(series, name)
    present = series.dropna()
    if len(present) and all(isinstance(value, (Real, Decimal)) and not isinstance(value, bool) for value in present):
        return _numbers(series, name)
    if all(isinstance(value, (str, bool, np.bool_)) for value in present):
        return _labels(series)
    kinds = sorted({type(value).__name__ for value in present})
    raise InputError(
        f"column {name!r} holds values of type {', '.join(kinds)}; every argument must be a string or a number, and "
        "all of a column the same: convert the column first."
    )


def _stacked(series: pd.Series, name: str) -> np.ndarray:
    """Return a column of arrays as numbers, shape (N, k)."""
    cells = series.to_numpy()
    shapes = {np.shape(cell) for cell in cells}
    if len(shapes) > 1:
        listed = " and ".join(str(shape) for shape in sorted(shapes, key=str)[:2])
        raise InputError(f"column {name!r} holds arrays of different shapes, {listed}; give all rows the same shape.")
    stacked = np.stack(list(cells))
    if stacked.dtype.kind not in "fiub":
        raise InputError(f"column {name!r} holds arrays of type {stacked.dtype}; give numbers.")
    return stacked.reshape(len(stacked), -1).astype(np.float64)


def _labels(series: pd.Series) -> np.ndarray:
    missing = series.isna().to_numpy()
    return np.array([None if gone else str(value) for value, gone in zip(series, missing, strict=True)], dtype=object)


def _numbers(series: pd.Series, name: str) -> np.ndarray:
    refuse_dates_and_complex(series.dtype, f"column {name!r}")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(series.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"column {name!r} of type {series.dtype} cannot be read as numbers: {error}. Convert the column first."
        ) from error
    refuse_infinite(numbers, name)
    return numbers
