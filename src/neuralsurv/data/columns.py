"""One input column: read from a table, learned from the training rows, encoded as numbers."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import accumulate, pairwise
from numbers import Real

import numpy as np
import pandas as pd

from neuralsurv.data.comma_numbers import decimal_comma, is_comma_number
from neuralsurv.data.missing_codes import CodeCounts
from neuralsurv.data.row_values import refuse_dates_and_complex, refuse_infinite, rows_phrase
from neuralsurv.errors import InputError

# A category with more levels than this would not fit a model, nor the memory.
_MOST_LEVELS = 10_000
_NO_CODES = CodeCounts()


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

    def ranges(self) -> list[tuple[float | None, float | None]]:
        """Return the smallest and the largest training value of each encoded column, None where it is not known."""
        if self.kind == "array":
            return [(None, None)] * self.width
        own = [(self.low, self.high)] if self.kind == "number" else []
        return [*own, *[(0.0, 1.0)] * (self.width - len(own))]

    def encode(self, values: np.ndarray) -> np.ndarray:
        """Return what `read_column` gave as encoded columns, not standardised, shape (N, width), NaN where missing."""
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


@dataclass(frozen=True)
class ColumnFacts:
    """Summary of one covariate over some rows, from which its encoding is learned; those of parts add up."""

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
    comma_numbers: int = 0  # rows whose label came as text and is a number as written with a decimal comma

    @classmethod
    def of(cls, series: pd.Series, values: np.ndarray, name: str) -> ColumnFacts:
        """Look at some rows of a column, of which `values` is what `read_column` reads."""
        present = values[~pd.isna(values)]
        facts = cls(name, present=len(present), missing=len(values) - len(present))
        if len(present) == 0:
            return facts
        if kind_of(values) == "number":
            whole = bool((present == np.floor(present)).all())
            low, high = float(present.min()), float(present.max())
            return replace(facts, kind="number", low=low, high=high, whole=whole, codes=CodeCounts.of(series))
        order = tuple(map(str, series.cat.categories)) if isinstance(series.dtype, pd.CategoricalDtype) else None
        counts = Counter(present.tolist())
        numbers = sum(rows for level, rows in counts.items() if is_comma_number(level)) if order is None else 0
        return replace(facts, kind="category", levels=tuple(sorted(counts)), order=order, comma_numbers=numbers)

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
        orders = {facts.order for facts in (self, other) if facts.kind}
        return ColumnFacts(
            self.name,
            self.kind or other.kind,
            min(self.low, other.low),
            max(self.high, other.high),
            levels,
            orders.pop() if len(orders) == 1 else None,
            self.present + other.present,
            self.missing + other.missing,
            self.whole and other.whole,
            self.codes + other.codes,
            self.comma_numbers + other.comma_numbers,
        )

    def column(self, part: str = "") -> Column:
        """Return how the column, of a part of X, is encoded; refuse one without information or not what it seems."""
        name, rows = self.name, self.present + self.missing
        if self.present == 0:
            raise InputError(f"column {name!r} has no value in any of the {rows} rows; drop it.")
        if self.low == self.high or len(self.levels) == 1:
            value = f"{self.low:g}" if self.kind == "number" else self.levels[0]
            where = f"all {rows} rows"
            if self.missing:
                where = (
                    f"all {self.present} rows that have a value" if self.present > 1 else "the one row that has a value"
                )
            raise InputError(f"column {name!r} is constant ({value} in {where}); drop it.")
        if self.kind == "number":
            return Column(name, "number", (), self.missing > 0, self.low, self.high, self.whole, part)
        example = decimal_comma(self.levels, self.comma_numbers / self.present)
        if example is not None:
            raise InputError(
                f"column {name!r} holds numbers with a decimal comma, such as {example!r}, as text; make them "
                f"numbers: df[{name!r}] = df[{name!r}].str.replace(',', '.').astype(float), or pd.read_csv(…, "
                f"decimal=','). If they are categories: df[{name!r}] = df[{name!r}].astype('category')."
            )
        if len(self.levels) > max(20, rows / 2):
            raise InputError(
                f"column {name!r} has {len(self.levels)} different values in {rows} rows and looks like an identifier; "
                "drop it, or turn it into numbers."
            )
        seen = set(self.levels)
        levels = self.levels if self.order is None else tuple(x for x in dict.fromkeys(self.order) if x in seen)
        return Column(name, "category", levels, self.missing > 0, part=part)


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
