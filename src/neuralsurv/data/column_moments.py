"""Weighted mean and spread of encoded columns, the same to the last bit in any order of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# The scale of a column of two values is at least this share of their distance. With its own spread, the one row in 200
# that differs would lie 14 standard deviations out, and the prior of its effect would be as many times too wide.
_LEAST_SPREAD = 0.25
# Where the rarer of two values has fewer events than this, that share is larger in proportion: by the rule of thumb of
# ten events per variable its effect cannot be learned, and the prior that shrinks it towards nothing must be narrower.
EVENTS_FOR_EFFECT = 10.0
# No value counts as having fewer events than this, which keeps the scale finite.
_FEWEST_EVENTS = 0.1


def column_moments(
    raw: np.ndarray, weight: np.ndarray, events: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the weighted mean and scale of each column, over the rows that have a value.

    Parameters
    ----------
    raw : ndarray of shape (N, p)
        Columns, NaN where a value is missing.
    weight : ndarray of shape (N,)
        How much each row counts.
    events : ndarray of shape (N,), optional
        Weight of the event of each row, 0 without one; if not given, every value counts as having enough events.

    Returns
    -------
    center, scale : ndarray of shape (p,)
        The scale is positive and finite.
    """
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
    half_range = np.ldexp(half_range, -exponent)
    shown = np.full_like(mean, np.inf)
    if events is not None:
        dying = np.where(np.isnan(raw), 0.0, events[:, None])
        shown = events_at_rarer(mean, half_range, dying.sum(0), _exact_sum(dying, values))
    spread = bounded_spread(spread, mean, half_range, shown)
    return middle + np.ldexp(mean, exponent), scale_of(spread, exponent)


def _exact_sum(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sum of counts × values of each column, rounded once.

    So it is the same to the last bit in any order of the rows, for a row written twice and for a row cut in two. The
    values, at most about 1, are split in halves of few digits, whose products with counts are exact.
    """
    high = values.astype(np.float32).astype(np.float64)
    parts = np.concatenate([counts * high, counts * (values - high)])
    return np.array([math.fsum(column) for column in parts.T.tolist()])


def scale_of(spread: np.ndarray, exponent: np.ndarray) -> np.ndarray:
    """Return spread · 2^exponent as a positive, finite number."""
    limits = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        return np.asarray(np.clip(np.ldexp(spread, exponent), limits.smallest_subnormal, limits.max))


def events_at_rarer(mean: np.ndarray, half_range: np.ndarray, events: np.ndarray, event_sum: np.ndarray) -> np.ndarray:
    """Return the events at the rarer of two values, observed or expected, whichever are more, shape (p,).

    Parameters
    ----------
    mean, half_range : ndarray of shape (p,)
        Mean, measured from the middle of the range, and half the range of each column.
    events, event_sum : ndarray of shape (p,)
        Weight of the events, and the sum of the values at them, measured from the middle of the range.
    """
    distance = np.where(half_range > 0, 2 * half_range, 1.0)
    expected = events * (half_range - np.abs(mean)) / distance
    # The rarer value lies on the other side of the middle than the mean.
    observed = (events * half_range - np.sign(mean) * event_sum) / distance
    return np.asarray(np.maximum(expected, observed))


def bounded_spread(spread: np.ndarray, mean: np.ndarray, half_range: np.ndarray, shown: np.ndarray) -> np.ndarray:
    """Return the spreads; that of a column of two values is at least a quarter of their distance.

    It is larger where the rarer value has few events.

    Parameters
    ----------
    spread, mean, half_range : ndarray of shape (p,)
        Spread, mean measured from the middle of the range, and half the range of each column.
    shown : ndarray of shape (p,)
        Events at the rarer of two values.
    """
    few = np.maximum(1.0, EVENTS_FOR_EFFECT / np.maximum(shown, _FEWEST_EVENTS))
    least = 2 * _LEAST_SPREAD * half_range * few
    two_valued = is_two_valued(spread, half_range + mean, half_range - mean)
    return np.asarray(np.maximum(spread, np.where(two_valued, least, 0.0)))


def is_two_valued(spread: Any, below: Any, above: Any) -> Any:
    """Return whether all values lie at one of two ends, which are `below` and `above` away from their mean.

    No other distribution between these ends has a spread as large (Bhatia and Davis 2000).
    """
    return spread >= (1 - 1e-6) * np.sqrt(np.maximum(below, 0.0)) * np.sqrt(np.maximum(above, 0.0))
