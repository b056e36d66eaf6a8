"""A table of covariates becomes a float matrix: names, categories, missing values, one scale for all columns.

Everything is learned from the training rows and kept as plain data, so that it can be stored and applied again.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from neuralsurv.data.comma_numbers import decimal_comma
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
# The scale of a column of two values is at least this share of their distance. With its own spread, the one row in 200
# that differs would lie 14 standard deviations out, and the prior of its effect would be as many times too wide.
_LEAST_SPREAD = 0.25
# A gap gets an indicator where about this many events are expected among the rows that have it, as the rule of thumb
# of ten events per variable asks; with fewer it would fit the outcomes of a handful of rows.
_EVENTS_FOR_INDICATOR = 10.0
# Values that stand in for a missing one in a prediction; the posterior draws share them out.
COMPLETIONS = 20


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
        Whether training rows lacked a value.
    low, high : float, optional
        Smallest and largest training value of a number; None for a category, and where an older model file lacks them.
    whole : bool
        Whether all training values of a number were whole, as counts and years are; of arrays, whether they hold codes
        that are given out as whole numbers.
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
        Weighted mean and spread of each encoded column in training; the spread of a column of two values is at least a
        quarter of their distance. The mean stands in for a missing value of a training row.
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

    def __post_init__(self) -> None:
        """Refuse columns that could not be told apart once they are encoded."""
        owner: dict[str, str] = {}
        for column in self.columns:
            for name in column.outputs if column.kind != "array" else (column.name,):
                if name in owner:
                    raise InputError(
                        f"columns {owner[name]!r} and {column.name!r} would both be encoded as {name!r}; rename one."
                    )
                owner[name] = column.name

    @property
    def outputs(self) -> tuple[str, ...]:
        """Names of the encoded columns."""
        return tuple(name for column in self.columns for name in column.outputs)

    @property
    def layout(self) -> Layout:
        """Where the parts of X are among the encoded columns."""
        if self.container == "table":
            return table_layout(sum(column.width for column in self.columns))
        ends = np.cumsum([0, *(column.width for column in self.columns)]).tolist()
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
                what = {"array": "X has rows", "table": f"column {column.name!r} holds arrays"}.get(
                    self.container, f"part {column.name!r} of X has rows"
                )
                raise InputError(
                    f"{what} of shape {column.shape}, which the built-in network cannot read: give a network of your "
                    "own (network=…), or a table of two dimensions, rows and columns."
                )

    @classmethod
    def fit(
        cls, X: Any, weight: np.ndarray, *, events: float = math.inf, standardise: bool = True, like: Any = None
    ) -> Encoding:
        """Learn the encoding from training rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        weight : ndarray of shape (N,)
            How much each row counts in means and spreads.
        events : float
            Total weight of the events, which decides whether there are enough gaps in a column for an indicator.
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
        whole = cls(columns, center, scale, bool(standardise), container, tuple(parts))
        return whole.without_rare_gaps(events)

    def without_rare_gaps(self, events: float) -> Encoding:
        """Return the encoding without the indicators of gaps that too few rows have to learn from.

        What counts is the number of events expected among the rows with a gap. Unlike the number of rows it does not
        change when a row is cut into episodes.
        """
        kept, columns, place = [], [], 0
        for column in self.columns:
            places = list(range(place, place + len(column.outputs)))
            place += len(places)
            if column.has_missing and self.center[places[-1]] < _EVENTS_FOR_INDICATOR / events:
                column = replace(column, gap_indicator=False)
                places.pop()
            columns.append(column)
            kept += places
        return replace(self, columns=tuple(columns), center=self.center[kept], scale=self.scale[kept])

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of training rows, shape (N, p), float64; means stand in for missing values."""
        encoded = self.with_gaps(X)
        return np.where(np.isnan(encoded), 0.0 if self.standardise else self.center, encoded)

    def with_gaps(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of shape (N, p), float64, with NaN where a value is missing."""
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
        encoded = self._standardised(raw) if self.standardise else raw
        self._refuse_far(encoded, ~np.isnan(raw))
        return encoded

    def filled(self, encoded: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """Return for each encoded row the covariates it lacks; nothing at all if no row lacks any."""
        gaps = np.isnan(encoded)
        if not gaps.any():
            return ()
        names = np.array([column.name for column in self.columns for _ in column.outputs], dtype=object)
        return tuple(tuple(dict.fromkeys(names[row])) for row in gaps)

    def completions(self) -> np.ndarray:
        """Return encoded values that may stand in for missing ones, shape (COMPLETIONS, p).

        They are spread like the training values of their column: evenly over the quantiles of a normal distribution
        with its mean and spread, cut to its range, or over the shares of its levels. The order differs from column to
        column, so that several missing values vary independently. How a column depends on the others is not used,
        which makes the spread too wide rather than too narrow.
        """
        quantiles = (np.arange(COMPLETIONS) + 0.5) / COMPLETIONS
        values = np.tile(self.center, (COMPLETIONS, 1))
        place = 0
        for number, column in enumerate(self.columns):
            order = quantiles[np.random.default_rng(number).permutation(COMPLETIONS)]
            if column.kind == "number":
                values[:, place] = self._stand_ins(column, place, order)
            elif column.kind == "category":
                shares = np.cumsum(self.center[place : place + len(column.shown)])
                # Of two levels only the second has an indicator, and its share begins where that of the first ends.
                first = 1 - shares[-1] if len(column.levels) == 2 else 0.0
                level = np.minimum(np.searchsorted(first + shares, order), len(shares) - 1)
                values[:, place : place + len(shares)] = np.eye(len(shares))[level] * (order >= first)[:, None]
            place += len(column.outputs)
        return np.asarray(self._standardised(values) if self.standardise else values)

    def _stand_ins(self, column: Column, place: int, quantiles: np.ndarray) -> np.ndarray:
        """Return values of a number at quantiles of its training values."""
        center, scale = self.center[place], self.scale[place]
        if column.low is None or column.high is None:  # an older file does not know the range
            return np.asarray(center + scale * ndtri(quantiles))
        if _two_valued(scale, center - column.low, column.high - center):
            share = (center - column.low) / (column.high - column.low)
            return np.where(quantiles < 1 - share, column.low, column.high)
        with np.errstate(over="ignore"):
            return np.asarray(np.clip(center + scale * ndtri(quantiles), column.low, column.high))

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

    def _refuse_far(self, encoded: np.ndarray, there: np.ndarray) -> None:
        bad = ~(np.abs(encoded) <= _FARTHEST) & there
        if bad.any():
            which = int(np.flatnonzero(bad.any(0))[0])
            trouble = "far from the training data to be scaled" if self.standardise else "large to be computed with"
            raise InputError(
                f"column {self.outputs[which]!r} is too {trouble} in {rows_phrase(bad[:, which])}; correct these "
                "values."
            )


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
    spread = bounded_spread(spread, mean, np.ldexp(half_range, -exponent))
    return middle + np.ldexp(mean, exponent), scale_of(spread, exponent)


def scale_of(spread: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return spread · 2^exponent as a positive, finite number."""
    limits = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(np.ldexp(spread, exponent), limits.smallest_subnormal, limits.max))


def bounded_spread(spread: np.ndarray, mean: np.ndarray, half_range: np.ndarray) -> np.ndarray:
    """Return spreads, of columns of two values at least a quarter of their distance; means are from the middle."""
    least = np.where(_two_valued(spread, half_range + mean, half_range - mean), 2 * _LEAST_SPREAD * half_range, 0.0)
    return np.asarray(np.maximum(spread, least))


def _two_valued(spread: Any, below: Any, above: Any) -> Any:
    """Return whether all values lie at one of two ends, which are `below` and `above` away from their mean.

    No other distribution between these ends has a spread as large (Bhatia and Davis 2000).
    """
    return spread >= (1 - 1e-6) * np.sqrt(np.maximum(below, 0.0)) * np.sqrt(np.maximum(above, 0.0))


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
    if not isinstance(series.dtype, pd.CategoricalDtype) and (example := decimal_comma(present)) is not None:
        raise InputError(
            f"column {name!r} holds numbers with a decimal comma, such as {example!r}, as text; make them numbers: "
            f"df[{name!r}] = df[{name!r}].str.replace(',', '.').astype(float), or pd.read_csv(…, decimal=','). If they "
            f"are categories: df[{name!r}] = df[{name!r}].astype('category')."
        )
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
    return np.hstack([encoded, gone.astype(np.float64)]) if column.marks_gaps else encoded
