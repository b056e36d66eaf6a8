"""A table of covariates becomes a float matrix: names, categories, missing values, one scale for all columns.

Everything is learned from the training rows and kept as plain data, so that it can be stored and applied again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.frames import as_frame, is_table, part_columns
from neuralsurv.data.outcome import rows_phrase
from neuralsurv.data.parts import (
    Block,
    Layout,
    check_parts,
    check_shape,
    container_of,
    holds_arrays,
    named_parts,
    stack_cells,
    table_layout,
    whole_cells,
)
from neuralsurv.errors import InputError

# Encoded values beyond this are refused: products of two of them, and sums of those, must stay finite.
_FARTHEST = 1e100


@dataclass(frozen=True)
class Column:
    """How one input column is encoded.

    Attributes
    ----------
    name : str
        Name of the column, or its position in a matrix as ``x0``, ``x1``, …
    kind : {"number", "category", "array"}
        Numbers are scaled; categories (text, category and bool columns) become indicators; the arrays of a part that is
        no table are laid out flat, as they are.
    levels : tuple of str
        The values of a category, as text; of two levels only the second gets an indicator.
    has_missing : bool
        Whether training rows lacked a value: then an indicator says so, and the mean stands in.
    low, high : float, optional
        Smallest and largest training value of a number; None for a category, and where an older model file lacks them.
    whole : bool
        Whether all training values of a number were whole, as counts and years are; of arrays, whether they hold codes
        that are given out as whole numbers.
    part : str
        The part of X that the column belongs to; empty where X is one table.
    shape : tuple of int
        Shape of one array.
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

    @property
    def shown(self) -> tuple[str, ...]:
        """The levels that get an indicator."""
        return self.levels[1:] if len(self.levels) == 2 else self.levels

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        if self.kind == "array":
            return tuple(f"{self.name}{list(place)}" for place in np.ndindex(self.shape))
        names = (self.name,) if self.kind == "number" else tuple(f"{self.name}={level}" for level in self.shown)
        return (*names, f"{self.name} missing") if self.has_missing else names


def _read(values: pd.Series, name: str) -> np.ndarray:
    """Return a column of numbers as float64, NaN where missing, and any other as text (object), None where missing."""
    dtype = values.dtype
    if holds_arrays(values):
        stacked = stack_cells(values, name)
        return stacked.reshape(len(stacked), -1).astype(np.float64)
    if pd.api.types.is_object_dtype(dtype):
        return _read_objects(values, name)
    if isinstance(dtype, pd.CategoricalDtype) or pd.api.types.is_bool_dtype(dtype):
        return _labels(values)
    return _labels(values) if pd.api.types.is_string_dtype(dtype) else _numbers(values, name)


def _read_objects(values: pd.Series, name: str) -> np.ndarray:
    present = values.dropna()
    if len(present) and all(isinstance(value, (Real, Decimal)) and not isinstance(value, bool) for value in present):
        return _numbers(values, name)
    if all(isinstance(value, (str, bool, np.bool_)) for value in present):
        return _labels(values)
    kinds = sorted({type(value).__name__ for value in present})
    raise InputError(
        f"column {name!r} holds values of type {', '.join(kinds)}; every argument must be a string or a number, and "
        "all of a column the same: convert the column first."
    )


def _labels(values: pd.Series) -> np.ndarray:
    missing = values.isna().to_numpy()
    return np.array([None if gone else str(value) for value, gone in zip(values, missing, strict=True)], dtype=object)


def _numbers(values: pd.Series, name: str) -> np.ndarray:
    if pd.api.types.is_datetime64_any_dtype(values.dtype) or pd.api.types.is_timedelta64_dtype(values.dtype):
        raise InputError(f"column {name!r} holds dates; turn it into a number first, for example days since entry.")
    if values.dtype.kind == "c":
        raise InputError(f"Complex data not supported: column {name!r} holds complex numbers; give real ones.")
    try:
        with np.errstate(over="ignore"):
            numbers = np.array(values.to_numpy(dtype=np.float64, na_value=np.nan))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(
            f"column {name!r} of type {values.dtype} cannot be read as numbers: {error}. Convert the column first."
        ) from error
    if np.isinf(numbers).any():
        raise InputError(f"column {name!r} is infinite in {rows_phrase(np.isinf(numbers))}; correct or drop them.")
    return numbers


@dataclass(frozen=True)
class Encoding:
    """A fitted encoding.

    Attributes
    ----------
    columns : tuple of Column
        The input columns, in order.
    center, scale : ndarray of shape (p,)
        Weighted mean and spread of each encoded column in training. The mean stands in for a missing value.
    standardise : bool
        Whether the mean is taken off and the spread divided by.
    container, parts : str, tuple of str
        What X came in (see :func:`neuralsurv.data.parts.container_of`), and the names of its parts in their order.
    """

    columns: tuple[Column, ...]
    center: np.ndarray
    scale: np.ndarray
    standardise: bool = True
    container: str = "table"
    parts: tuple[str, ...] = ()

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def layout(self) -> Layout:
        """Where the parts of X are among the encoded columns."""
        if self.container == "table":
            return table_layout(len(self.outputs))
        ends = np.cumsum([0, *(len(column.outputs) for column in self.columns)]).tolist()
        blocks = []
        for part in self.parts:
            own = [k for k, column in enumerate(self.columns) if column.part == part]
            if not own:
                raise InputError(f"part {part!r} of X has no column left that is a covariate; leave the part out.")
            column = self.columns[own[0]]
            shape = column.shape if column.kind == "array" else None
            blocks.append(Block(part, ends[own[0]], ends[own[-1] + 1], shape, shape is not None and column.whole))
        return Layout(self.container, tuple(blocks))

    def check_flat(self) -> None:
        """Refuse arrays where only columns of a table can be used."""
        for column in self.columns:
            if column.kind == "array":
                raise InputError(
                    f"{'X' if self.container == 'array' else f'part {column.name!r} of X'} has rows of shape "
                    f"{column.shape}, which the built-in network cannot read: give a network of your own (network=…), "
                    "or a table of two dimensions, rows and columns."
                )

    @classmethod
    def fit(cls, X: Any, weight: np.ndarray, *, standardise: bool = True, like: Any = None) -> Encoding:
        """Learn the encoding from training rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        weight : ndarray of shape (N,)
            How much each row counts in means and spreads.
        standardise : bool
            Whether to center and scale; if not, only gaps are filled.
        like : optional
            What X was before it became a table, where it came in parts.
        """
        frame = as_frame(X)
        source = X if like is None else like
        container = container_of(source)
        names = [str(name) for name in frame.columns]
        if len(names) == 0:
            raise InputError("X has 0 feature(s) (columns); a minimum of 1 is required.")
        _refuse_repeated(names, names)
        values = [_read(frame.iloc[:, k], name) for k, name in enumerate(names)]
        parts = {} if container == "table" else named_parts(source)
        owner = {column: name for name, part in parts.items() for column in part_columns(name, part)}
        columns = tuple(_learn(frame.iloc[:, k], values[k], name, owner.get(name, "")) for k, name in enumerate(names))
        raw = np.hstack([_encode(one, column) for one, column in zip(values, columns, strict=True)])
        center, scale = _moments(raw, weight)
        as_they_are = np.repeat([c.kind == "array" for c in columns], [len(c.outputs) for c in columns])
        center, scale = np.where(as_they_are, 0.0, center), np.where(as_they_are, 1.0, scale)
        return cls(columns, center, scale, bool(standardise), container, tuple(parts))

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of shape (N, p), float64."""
        if not (isinstance(X, pd.DataFrame) and self.container != "table" and self._joined(X)):
            check_parts(X, self.container, self.parts)
        frame = as_frame(X)
        place = self._place(X, [str(name) for name in frame.columns])
        blocks = []
        for column in self.columns:
            values = frame.iloc[:, place[column.name]]
            numbers = _read(values, column.name)
            if column.kind == "array" and _kind(numbers) == "array":
                check_shape(stack_cells(values, column.name), column.name, column.shape)
                blocks.append(numbers)
                continue
            _check_like_training(numbers, column, str(values.dtype))
            blocks.append(_encode(numbers, column))
        raw = np.hstack(blocks)
        filled = np.where(np.isnan(raw), self.center, raw)
        return self._refuse_far(self._standardised(filled) if self.standardise else filled)

    def _place(self, X: Any, names: list[str]) -> dict[str, int]:
        """Return where each column is: found by its name in a table, by its position in a matrix."""
        expected = [column.name for column in self.columns]
        if not is_table(X) and self.container == "table":
            if len(names) != len(expected):
                raise InputError(
                    f"X has {len(names)} features, but this model is expecting {len(expected)} features as input."
                )
            return {name: k for k, name in enumerate(expected)}
        place = {name: k for k, name in enumerate(names)}
        missing = [name for name in expected if name not in place]
        if missing:
            raise InputError(
                f"column {missing[0]!r} is missing ({len(missing)} of {len(expected)} columns are); the model was "
                f"fitted with {', '.join(expected)}."
            )
        _refuse_repeated(names, expected)
        return {name: place[name] for name in expected}

    def _joined(self, X: pd.DataFrame) -> bool:
        """Return whether a table is one that `as_frame` made of the parts."""
        return set(X.columns) >= {column.name for column in self.columns}

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        # Moving the exponents first changes no digit, and keeps differences of huge numbers from overflowing.
        exponent = -np.frexp(self.scale)[1]
        with np.errstate(over="ignore", invalid="ignore"):
            away = np.ldexp(values, exponent) - np.ldexp(self.center, exponent)
            return np.asarray(away / np.ldexp(self.scale, exponent))

    def _refuse_far(self, encoded: np.ndarray) -> np.ndarray:
        bad = ~(np.abs(encoded) <= _FARTHEST)
        if bad.any():
            which = int(np.flatnonzero(bad.any(0))[0])
            trouble = "far from the training data to be scaled" if self.standardise else "large to be computed with"
            raise InputError(
                f"column {self.outputs[which]!r} is too {trouble} in {rows_phrase(bad[:, which])}; correct these "
                "values."
            )
        return encoded


def _refuse_repeated(names: list[str], needed: list[str]) -> None:
    count = Counter(names)
    repeated = [name for name in needed if count[name] > 1]
    if repeated:
        raise InputError(f"column {repeated[0]!r} occurs more than once; give every column its own name.")


def _exact_sum(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sum of counts × values of each column, rounded once.

    So it is the same to the last bit in any order of the rows, for a row written twice and for a row cut in two. The
    values, at most about 1, are split in halves of few digits, whose products with counts are exact.
    """
    high = values.astype(np.float32).astype(np.float64)
    parts = np.concatenate([counts * high, counts * (values - high)])
    return np.array([math.fsum(column) for column in parts.T.tolist()])


def _moments(raw: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted mean and spread of each column, of the values that are there."""
    low, high = np.nanmin(raw, axis=0), np.nanmax(raw, axis=0)
    middle, half_range = low / 2 + high / 2, high / 2 - low / 2
    # Seen from the middle and with exponents moved, values are at most about 1: squares neither overflow nor vanish.
    exponent = np.frexp(half_range)[1]
    values = np.ldexp(np.nan_to_num(raw - middle), -exponent)
    counts = np.where(np.isnan(raw), 0.0, weight[:, None])
    total = np.where(counts.any(0), counts.sum(0), 1.0)
    mean = _exact_sum(counts, values) / total
    spread = np.sqrt(_exact_sum(counts, (values - mean) ** 2) / total)
    # A column that only varies among rows that were never at risk at an event has no spread; its range is used.
    spread = np.where(spread > 1e-12, spread, np.abs(values - mean).max(0, where=~np.isnan(raw), initial=0.0))
    scale = np.maximum(np.ldexp(spread, exponent), np.finfo(np.float64).smallest_subnormal)
    return middle + np.ldexp(mean, exponent), scale


def _kind(values: np.ndarray) -> str:
    if values.ndim == 2:
        return "array"
    return "number" if values.dtype == np.float64 else "category"


def _learn(series: pd.Series, values: np.ndarray, name: str, part: str = "") -> Column:
    if _kind(values) == "array":
        codes = whole_cells(series)
        return Column(name, "array", (), False, whole=codes, part=part, shape=np.shape(series.iloc[0]))
    present = values[~pd.isna(values)]
    if len(present) == 0:
        raise InputError(f"column {name!r} has no value in any of the {len(values)} rows; drop it.")
    has_missing = len(present) < len(values)
    if (present == present[0]).all():
        value = f"{present[0]:g}" if _kind(values) == "number" else present[0]
        rows = f"{len(present)} rows that have a value" if has_missing else f"{len(values)} rows"
        raise InputError(f"column {name!r} is constant ({value} in all {rows}); drop it.")
    if _kind(values) == "number":
        whole = bool((present == np.floor(present)).all())
        return Column(name, "number", (), has_missing, float(present.min()), float(present.max()), whole, part)
    levels = sorted(set(present))
    if isinstance(series.dtype, pd.CategoricalDtype):
        seen = set(levels)
        levels = [level for level in dict.fromkeys(map(str, series.cat.categories)) if level in seen]
    if len(levels) > max(20, len(values) / 2):
        raise InputError(
            f"column {name!r} has {len(levels)} different values in {len(values)} rows and looks like an "
            "identifier; drop it, or turn it into numbers."
        )
    return Column(name, "category", tuple(levels), has_missing, part=part)


def _check_like_training(values: np.ndarray, column: Column, dtype: str) -> None:
    gone = np.asarray(pd.isna(values))
    if gone.any() and not column.has_missing:
        raise InputError(
            f"column {column.name!r} is missing in {rows_phrase(gone)}, but had no gap (NaN) when the model was "
            "fitted, so nothing is known of such rows; fill them in."
        )
    if _kind(values) != column.kind and not gone.all():
        raise InputError(
            f"column {column.name!r} is of type {dtype}, but was a {column.kind} when the model was fitted; "
            "convert it to the same type."
        )
    if column.kind == "category":
        unseen = ~gone & ~np.asarray(pd.Series(values, dtype=object).isin(column.levels))
        if unseen.any():
            raise InputError(
                f"column {column.name!r} has the value {values[unseen][0]!r} in {rows_phrase(unseen)}, which was not "
                f"seen in training; known are {', '.join(column.levels)}."
            )


def _encode(values: np.ndarray, column: Column) -> np.ndarray:
    """Return the raw encoding of one column, shape (N, len(column.outputs)), NaN where a value is missing."""
    if column.kind == "array":
        return values
    gone = np.asarray(pd.isna(values))[:, None]
    if column.kind == "number":
        encoded = values.astype(np.float64)[:, None]
    else:
        shown = np.array(column.shown, dtype=object)
        encoded = np.where(gone, np.nan, (values[:, None] == shown).astype(np.float64))
    return np.hstack([encoded, gone.astype(np.float64)]) if column.has_missing else encoded
