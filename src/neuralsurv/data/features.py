"""A table of covariates becomes a float matrix: columns encoded and standardised, missing values imputed.

Everything is learned from the training rows and kept as plain data, so that it can be stored and applied again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtri

from neuralsurv.data.column_moments import EVENTS_FOR_EFFECT, LEAST_SPREAD, column_moments, is_two_valued
from neuralsurv.data.columns import Column, ColumnFacts, kind_of, places, read_column
from neuralsurv.data.frames import as_frame, part_columns
from neuralsurv.data.parts import (
    Layout,
    PartSlice,
    check_parts,
    container_of,
    holds_codes,
    is_data_frame,
    named_parts,
    table_layout,
)
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError

# Encoded values beyond this are refused: products of two of them, and sums of those, must stay finite.
_FARTHEST = 1e100
# In a row whose level is rare its own indicator is at least this, in spreads. If it were nearly 0 as well, the band
# would be narrower than that of a frequent level.
_LEAST_OWN = 1.0
# Values imputed for each missing one in a prediction; the posterior draws are divided among them.
IMPUTATIONS = 20


@dataclass(frozen=True)
class Encoding:
    """A fitted encoding.

    Attributes
    ----------
    columns : tuple of Column
        The input columns, in order.
    center, scale : ndarray of shape (p,)
        Weighted mean and spread of each encoded column in training; the spread of a column with a usual value (of two,
        the more frequent) is at least a quarter of the distance of the others from it, and larger where these have few
        events; where these are too few to learn from, the center is the usual value itself (see `unlearned`). The mean
        is imputed for a missing value of a training row.
    standardise : bool
        Whether the mean is subtracted and the result divided by the spread. The indicators of the other levels are then
        drawn to their means in a row whose level is rare: it says little, much as a missing value does.
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
        """Refuse columns whose encoded names are the same."""
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
        found = places(self.columns)
        if self.container == "table":
            return table_layout(found[-1].stop)
        parts = []
        for name in self.parts:
            own = [k for k, column in enumerate(self.columns) if column.part == name]
            if not own:
                raise InputError(f"part {name!r} of X has no column left that is a covariate; leave the part out.")
            first = self.columns[own[0]]
            shape = first.shape if first.kind == "array" else None
            whole = shape is not None and first.whole
            parts.append(PartSlice(name, found[own[0]].start, found[own[-1]].stop, shape, whole))
        return Layout(self.container, tuple(parts))

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
        cls,
        X: Any,
        weight: np.ndarray,
        *,
        events: np.ndarray | None = None,
        standardise: bool = True,
        like: Any = None,
    ) -> Encoding:
        """Learn the encoding from training rows.

        Parameters
        ----------
        X : DataFrame or array-like of shape (N, d)
            Covariates.
        weight : ndarray of shape (N,)
            How much each row counts in means and spreads.
        events : ndarray of shape (N,), optional
            Weight of the event of each row, 0 without one. It decides whether a column has enough missing values for an
            indicator, and how far the scale of a rare value is enlarged; neither if not given.
        standardise : bool
            Whether to center and scale; if not, missing values are still imputed.
        like : optional
            What X was before it became a table, where it came in parts.
        """
        frame = as_frame(X)
        source = X if like is None else like
        container = container_of(source)
        names = [str(name) for name in frame.columns]
        if len(names) == 0:
            raise InputError("X has 0 feature(s) (columns); a minimum of 1 is required.")
        refuse_repeated(names, names)
        parts = {} if container == "table" else named_parts(source)
        owner = {column: name for name, part in parts.items() for column in part_columns(name, part)}
        values = [read_column(frame.iloc[:, k], name) for k, name in enumerate(names)]
        columns = tuple(_learn(frame.iloc[:, k], values[k], name, owner.get(name, "")) for k, name in enumerate(names))
        raw = np.hstack([column.encode(one) for one, column in zip(values, columns, strict=True)])
        center, scale = column_moments(raw, weight, events)
        is_array = np.repeat([c.kind == "array" for c in columns], [c.width for c in columns])
        center, scale = np.where(is_array, 0.0, center), np.where(is_array, 1.0, scale)
        whole = cls(columns, center, scale, bool(standardise), container, tuple(parts))
        return whole if events is None else whole.without_rare_gaps(float(events.sum()))

    def without_rare_gaps(self, events: float) -> Encoding:
        """Return the encoding without indicators of missing values that are too rare to learn from.

        What counts is the number of events expected among the rows with a missing value. Unlike the number of rows it
        does not change when a row is cut into episodes.
        """
        kept, columns = [], []
        for column, place in zip(self.columns, places(self.columns), strict=True):
            own = list(range(place.start, place.stop))
            if column.has_missing and self.center[own[-1]] < EVENTS_FOR_EFFECT / events:
                column = replace(column, gap_indicator=False)
                own.pop()
            columns.append(column)
            kept += own
        return replace(self, columns=tuple(columns), center=self.center[kept], scale=self.scale[kept])

    def transform(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of training rows, shape (N, p), float64, with means for missing values.

        A value that is too rare to learn from is replaced by the usual one, a rare level by the commonest.
        """
        encoded = self.with_gaps(X)
        if not self.standardise:
            return np.where(np.isnan(encoded), self.center, encoded)
        unlearned = self.unlearned
        for own in self._levels():
            rows = (encoded[:, own] * unlearned[own] > 0).any(1)
            if rows.any():
                # Means in their place would tell these rows from all others by the products of two indicators.
                each = np.eye(own.stop - own.start)
                levels = self._drawn_in((each - self.center[own]) / self.scale[own], each == 1, own)
                encoded[rows, own] = levels[self.center[own].argmax()]
        return np.where(np.isnan(encoded) | unlearned, 0.0, encoded)

    @property
    def unlearned(self) -> np.ndarray:
        """Whether the values of an encoded column beside its usual one were too rare to learn from, shape (p,).

        Training rows then all have the usual value, which is the center, so that the posterior of such an effect is its
        prior: a new person with a rare value lies near the others, with a wider band.
        """
        ends = np.array([end for column in self.columns for end in column.ranges()], dtype=np.float64).reshape(-1, 2)
        return np.asarray((ends == self.center[:, None]).any(1))

    @property
    def rare_values(self) -> tuple[str, ...]:
        """What was too rare to learn from, as ``column=level`` or, of a number, ``column≠usual value``."""
        found: list[str] = []
        for column, place in zip(self.columns, places(self.columns), strict=True):
            rare = self.unlearned[place]
            if column.kind == "number":
                found += [f"{column.name}≠{self.center[place.start]:g}"] if rare[0] else []
            elif len(column.levels) == 2:
                found += [f"{column.name}={column.levels[int(self.center[place.start] == 0)]}"] if rare[0] else []
            else:
                found += [f"{column.name}={level}" for level, few in zip(column.shown, rare, strict=False) if few]
        return tuple(found)

    def with_gaps(self, X: Any) -> np.ndarray:
        """Return the encoded matrix of shape (N, p), float64, with NaN where a value is missing."""
        if not (isinstance(X, pd.DataFrame) and self.container != "table" and self._joined(X)):
            check_parts(X, self.container, self.parts)
        frame = as_frame(X)
        position = self._positions(X, [str(name) for name in frame.columns])
        return self._joined_columns(
            [column.encode_new(frame.iloc[:, position[column.name]]) for column in self.columns]
        )

    def of_columns(self, values: Sequence[np.ndarray]) -> np.ndarray:
        """Return what `with_gaps` does, from the columns as `read_column` gives them, which have been checked."""
        return self._joined_columns([column.encode(one) for column, one in zip(self.columns, values, strict=True)])

    def _joined_columns(self, encoded: Sequence[np.ndarray]) -> np.ndarray:
        raw = np.hstack(encoded)
        scaled = self._standardised(raw)
        self._refuse_far(scaled, ~np.isnan(raw))
        return scaled

    def filled(self, encoded: np.ndarray) -> tuple[tuple[str, ...], ...]:
        """Return the covariates that are missing in each encoded row; an empty tuple if no row lacks any."""
        gaps = np.isnan(encoded)
        if not gaps.any():
            return ()
        names = np.array([column.name for column in self.columns for _ in range(column.width)], dtype=object)
        return tuple(tuple(dict.fromkeys(names[row])) for row in gaps)

    def imputations(self) -> np.ndarray:
        """Return encoded values to put in place of missing ones, shape (IMPUTATIONS, p); see `imputed_values`."""
        return self._standardised(imputed_values(self.columns, self.center, self.scale))

    def _positions(self, X: Any, names: list[str]) -> dict[str, int]:
        """Return where each column is in X: found by its name in a table, by its position in a matrix."""
        expected = [column.name for column in self.columns]
        if not is_data_frame(X) and self.container == "table":
            if len(names) != len(expected):
                raise InputError(
                    f"X has {len(names)} features, but this model is expecting {len(expected)} features as input."
                )
            return {name: k for k, name in enumerate(expected)}
        position = {name: k for k, name in enumerate(names)}
        missing = [name for name in expected if name not in position]
        if missing:
            are = "is" if len(missing) == 1 else "are"
            raise InputError(
                f"column {missing[0]!r} is missing ({len(missing)} of {len(expected)} columns {are}); the model was "
                f"fitted with {', '.join(expected)}."
            )
        refuse_repeated(names, expected)
        return position

    def _joined(self, X: pd.DataFrame) -> bool:
        """Return whether a table is one that `as_frame` made of the parts."""
        return set(X.columns) >= {column.name for column in self.columns}

    def _standardised(self, values: np.ndarray) -> np.ndarray:
        if not self.standardise:
            return values
        # Moving the exponents first changes no digit, and keeps differences of huge numbers from overflowing.
        exponent = -np.frexp(self.scale)[1]
        with np.errstate(over="ignore", invalid="ignore"):
            away = np.ldexp(values, exponent) - np.ldexp(self.center, exponent)
            encoded = np.asarray(away / np.ldexp(self.scale, exponent))
        for own in self._levels():
            encoded[:, own] = self._drawn_in(encoded[:, own], values[:, own] == 1, own)
        return encoded

    def _levels(self) -> list[slice]:
        """Return where the indicators of each category of more than two levels are."""
        return [
            slice(place.start, place.start + len(column.shown))
            for column, place in zip(self.columns, places(self.columns), strict=True)
            if column.kind == "category" and len(column.shown) > 1
        ]

    def _drawn_in(self, encoded: np.ndarray, chosen: np.ndarray, place: slice) -> np.ndarray:
        """Return the indicators of a column, shape (N, levels), nearer to their means in rows whose level is rare.

        Those of the other levels shrink as its own does by its larger scale. Otherwise rare levels would share an
        effect that no prior shrinks: that of being none of the frequent levels.
        """
        share, scale = self.center[place], self.scale[place]
        usual = np.maximum(LEAST_SPREAD, np.sqrt(share * (1 - share)))
        known = np.where((share < 0.5) & (scale > usual * (1 + 1e-9)), usual / scale, 1.0)
        known[self.unlearned[place]] = 0.0
        level = np.where(chosen.any(1), known[chosen.argmax(1)], 1.0)[:, None]
        own = np.maximum(encoded, np.minimum(_LEAST_OWN, encoded / np.where(level > 0, level, 1.0)))
        return np.where(chosen, own, encoded * level)

    def _refuse_far(self, encoded: np.ndarray, there: np.ndarray) -> None:
        bad = ~(np.abs(encoded) <= _FARTHEST) & there
        if bad.any():
            which = int(np.flatnonzero(bad.any(0))[0])
            trouble = "far from the training data to be scaled" if self.standardise else "large to be computed with"
            raise InputError(
                f"column {self.outputs[which]!r} is too {trouble} in {rows_phrase(bad[:, which])}; correct these "
                "values."
            )


def _learn(series: pd.Series, values: np.ndarray, name: str, part: str) -> Column:
    if kind_of(values) == "array":
        cell = series.iloc[0]
        return Column(name, "array", (), False, whole=holds_codes(cell), part=part, shape=np.shape(cell))
    return ColumnFacts.of(series, values, name).column(part)


def refuse_repeated(names: list[str], needed: list[str]) -> None:
    """Refuse a table in which the name of a needed column occurs more than once."""
    count = Counter(names)
    repeated = [name for name in needed if count[name] > 1]
    if repeated:
        raise InputError(f"column {repeated[0]!r} occurs more than once; give every column its own name.")


def imputed_values(columns: Sequence[Column], center: np.ndarray, scale: np.ndarray) -> np.ndarray:
    """Return values to put in place of missing ones, encoded but not standardised, shape (IMPUTATIONS, p).

    They are distributed like the training values of their column: evenly over the quantiles of a normal distribution
    with its mean and spread, clipped to its range, or over the shares of its levels. The order differs from column to
    column, so that several missing values vary independently. How a column depends on the others is not used, which
    makes the distribution too wide rather than too narrow. `center` and `scale` are those of the encoded columns, (p,).
    """
    quantiles = (np.arange(IMPUTATIONS) + 0.5) / IMPUTATIONS
    values = np.tile(center, (IMPUTATIONS, 1))
    for number, (column, place) in enumerate(zip(columns, places(columns), strict=True)):
        order = quantiles[np.random.default_rng(number).permutation(IMPUTATIONS)]
        if column.kind == "number":
            first = place.start
            values[:, first] = _number_quantiles(column, center[first], scale[first], order)
        elif column.kind == "category":
            levels = slice(place.start, place.start + len(column.shown))
            values[:, levels] = _level_indicators(column, center[levels], order)
    return values


def _number_quantiles(column: Column, center: float, scale: float, quantiles: np.ndarray) -> np.ndarray:
    """Return values of a number at quantiles of its training values, shape (len(quantiles),)."""
    if column.low is None or column.high is None:  # an older file does not know the range
        return np.asarray(center + scale * ndtri(quantiles))
    if is_two_valued(scale, center - column.low, column.high - center):
        share = (center - column.low) / (column.high - column.low)
        return np.where(quantiles < 1 - share, column.low, column.high)
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(center + scale * ndtri(quantiles), column.low, column.high))


def _level_indicators(column: Column, shares: np.ndarray, quantiles: np.ndarray) -> np.ndarray:
    """Return indicators of levels that occur as often as in training, shape (len(quantiles), len(shares))."""
    ends = np.cumsum(shares)
    # Of two levels only the second has an indicator, and its share begins where that of the first ends.
    first = 1 - ends[-1] if len(column.levels) == 2 else 0.0
    # Levels that are too rare to learn from have no share; those of the others then add up to less than 1.
    ends = ends if len(column.levels) == 2 else ends / ends[-1]
    level = np.minimum(np.searchsorted(first + ends, quantiles), len(ends) - 1)
    return np.asarray(np.eye(len(ends))[level] * (quantiles >= first)[:, None])
