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
    """Return the weighted mean and the scale, positive and finite, of each column of `raw`, shape (N, p).

    Rows count as much as their `weight`, and only where they have a value. `events` are the weights of their events, 0
    without one; if not given, every value counts as having enough events.
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
    ends = np.ldexp(np.stack([low, high]) - middle, -exponent)
    at_events = None
    if events is not None:
        dying = np.where(np.isnan(raw), 0.0, events[:, None])
        at_events = dying.sum(0), _exact_sum(dying, values)
    return center_and_scale(middle, exponent, np.ldexp(half_range, -exponent), ends, mean, spread, at_events)


def _exact_sum(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sum of counts × values of each column, rounded once.

    So it is the same to the last bit in any order of the rows, for a row written twice and for a row cut in two. The
    values, at most about 1, are split in halves of few digits, whose products with counts are exact.
    """
    high = values.astype(np.float32).astype(np.float64)
    parts = np.concatenate([counts * high, counts * (values - high)])
    return np.array([math.fsum(column) for column in parts.T.tolist()])


def center_and_scale(
    middle: np.ndarray,
    exponent: np.ndarray,
    half_range: np.ndarray,
    ends: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    events: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return center and scale of p columns, from moments that are measured from `middle` in units of 2^exponent.

    `ends` are the smallest and the largest value, shape (2, p); `events` the weight of the events, and the sum of the
    values at them. The scale of a column of two values is at least a quarter of their distance, and larger where the
    rarer has few events: those observed or those expected, whichever are more.
    """
    # A column that only varies among rows that were never at risk at an event has no spread; its range is used.
    spread = np.where(spread > 1e-12, spread, np.abs(ends - mean).max(0))
    few = np.ones_like(mean)
    if events is not None:
        distance = np.where(half_range > 0, 2 * half_range, 1.0)
        expected = events[0] * (half_range - np.abs(mean)) / distance
        # The rarer value lies on the other side of the middle than the mean.
        observed = (events[0] * half_range - np.sign(mean) * events[1]) / distance
        few = np.maximum(1.0, EVENTS_FOR_EFFECT / np.maximum(np.maximum(expected, observed), _FEWEST_EVENTS))
    least = np.where(
        is_two_valued(spread, half_range + mean, half_range - mean), 2 * _LEAST_SPREAD * half_range * few, 0.0
    )
    limits = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        scale = np.clip(np.ldexp(np.maximum(spread, least), exponent), limits.smallest_subnormal, limits.max)
    return middle + np.ldexp(mean, exponent), np.asarray(scale)


def is_two_valued(spread: Any, below: Any, above: Any) -> Any:
    """Return whether all values lie at one of two ends, which are `below` and `above` away from their mean.

    No other distribution between these ends has a spread as large (Bhatia and Davis 2000).
    """
    return spread >= (1 - 1e-6) * np.sqrt(np.maximum(below, 0.0)) * np.sqrt(np.maximum(above, 0.0))
