"""Weighted mean and spread of encoded columns, the same to the last bit in any order of the rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

# Most columns of two values, and others such as counts that are nearly always 0, have a usual value: one end of their
# range, at which at least half of the rows lie. The scale is at least this share of the distance of the other rows from
# it. With its own spread, the one row in 200 that differs would lie 14 standard deviations out, and the prior of its
# effect would be as many times too wide.
LEAST_SPREAD = 0.25
# Where the other rows have fewer events than this, that share is larger by a power of the ratio: by the rule of thumb
# of ten events per variable their effect cannot be learned, and the prior that shrinks it must be narrower.
EVENTS_FOR_EFFECT = 10.0
_NARROWING = 1.25
# Where they have fewer than that, and less than this share of all events, nothing is learned from them at all. A prior
# that only shrinks would not do: if five rows of 1,000 are the five earliest deaths, the evidence widens it again.
_RARE_SHARE = 1 / 15
# Rows from which nothing was learned lie this many scales from the usual value, so that the band of a new person like
# them has the width of the prior.
_DISTANCE_OF_RARE = 2.0
# No rows count as having fewer events than this, which keeps the scale finite.
_FEWEST_EVENTS = 0.1
# Half of the rows, up to rounding.
_HALF = 0.5 - 1e-9


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
    ends = np.stack([low, high])
    at_ends = raw == ends[:, None]
    share = np.stack([_exact_count(counts, at_end) for at_end in at_ends]) / total
    dying = None
    if events is not None:
        dead = np.where(np.isnan(raw), 0.0, events[:, None])
        dying = dead.sum(0), np.stack([_exact_count(dead, at_end) for at_end in at_ends])
    return center_and_scale(middle, exponent, np.ldexp(ends - middle, -exponent), mean, spread, share, dying)


def _exact_sum(counts: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the sum of counts × values of each column, rounded once.

    So it is the same to the last bit in any order of the rows, for a row written twice and for a row cut in two. The
    values, at most about 1, are split in halves of few digits, whose products with counts are exact.
    """
    high = values.astype(np.float32).astype(np.float64)
    parts = np.concatenate([counts * high, counts * (values - high)])
    return np.array([math.fsum(column) for column in parts.T.tolist()])


def _exact_count(counts: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    """Return the sum of the counts of chosen rows in each column, rounded once."""
    return np.array([math.fsum(column[rows]) for column, rows in zip(counts.T, chosen.T, strict=True)])


def center_and_scale(
    middle: np.ndarray,
    exponent: np.ndarray,
    ends: np.ndarray,
    mean: np.ndarray,
    spread: np.ndarray,
    share: np.ndarray,
    events: tuple[np.ndarray, np.ndarray] | None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return center and scale of p columns, from moments that are measured from `middle` in units of 2^exponent.

    `ends` are the smallest and the largest value, and `share` the share of the weight there, shape (2, p); `events` the
    weight of the events, shape (p,), and that of events at the ends, shape (2, p). Where rows usually are at one end,
    the scale is at least a quarter of the distance of the others from it (of two values, of their distance), and larger
    where the others have few events: those observed or those expected, whichever are more. Where these are too few to
    learn from, the center is the usual value itself.
    """
    # A column that only varies among rows that were never at risk at an event has no spread; its range is used.
    spread = np.where(spread > 1e-12, spread, np.abs(ends - mean).max(0))
    few, rare = np.ones_like(share), np.zeros(share.shape, dtype=bool)
    if events is not None:
        total, at_ends = events
        others = np.maximum(total * (1 - share), total - at_ends)
        rare = (share >= _HALF) & (others < np.minimum(EVENTS_FOR_EFFECT, total * _RARE_SHARE))
        few = np.maximum(1.0, EVENTS_FOR_EFFECT / np.maximum(others, _FEWEST_EVENTS)) ** _NARROWING
    squares = spread**2 + (mean - ends) ** 2
    far = np.sqrt(np.divide(squares, 1 - share, out=squares.copy(), where=share < 1))
    # With as many rows at both ends, the one with more events elsewhere counts, so that their order does not matter.
    away = np.minimum(far, ends[1] - ends[0])
    least = np.where(share >= _HALF, LEAST_SPREAD * away * few, np.inf).min(0)
    mean = np.where(rare.any(0), np.where(rare[0], ends[0], ends[1]), mean)
    limits = np.finfo(np.float64)
    with np.errstate(over="ignore"):
        scale = np.maximum(spread, np.where(np.isinf(least), 0.0, least))
        scale = np.ldexp(np.where(rare.any(0), np.where(rare, away, 0.0).max(0) / _DISTANCE_OF_RARE, scale), exponent)
    return middle + np.ldexp(mean, exponent), np.clip(scale, limits.smallest_subnormal, limits.max)


def is_two_valued(spread: Any, below: Any, above: Any) -> Any:
    """Return whether all values lie at one of two ends, which are `below` and `above` away from their mean.

    No other distribution between these ends has a spread as large (Bhatia and Davis 2000).
    """
    return spread >= (1 - 1e-6) * np.sqrt(np.maximum(below, 0.0)) * np.sqrt(np.maximum(above, 0.0))
