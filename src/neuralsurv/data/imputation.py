"""Multiple imputation: values drawn from the training distribution of a column in place of missing ones."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.special import ndtri

from neuralsurv.data.column_moments import is_two_valued
from neuralsurv.data.columns import Column, places

# Values imputed for each missing one in a prediction; the posterior draws are divided among them.
IMPUTATIONS = 20


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
    level = np.minimum(np.searchsorted(first + ends, quantiles), len(ends) - 1)
    return np.asarray(np.eye(len(ends))[level] * (quantiles >= first)[:, None])
