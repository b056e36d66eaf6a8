"""A line search for functions with kinks: weak Wolfe conditions, by cuts and doublings.

It is a coroutine: it yields the places whose value it needs and is sent the answers. Gradients are only asked for where
the value is low enough, and a step that was too long is shortened to the lowest point of a parabola.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator

from torch import Tensor

# The value at a place, and a function that returns the gradient there, for when it is needed.
Answer = tuple[float, Callable[[], Tensor]]
# A place with its value, its gradient, and its distance in lengths of the direction that led there.
Place = tuple[Tensor, float, Tensor, float]

_ENOUGH_DESCENT = 1e-4
_SLOPE_RISEN = 0.9
# What a step that was too long is shortened to, at least and at most, as a share of what is left.
_SHORTEST_CUT, _LONGEST_CUT = 0.1, 0.5
# Cuts and doublings of one line search; 2⁻⁵⁰ of a step is below rounding.
_LONGEST_SEARCH = 50


def _cut(low: float, high: float, value: float, slope: float, too_high: float) -> float:
    """Return a length between `low`, with its value and slope, and `high`, where the value is too high."""
    gap = high - low
    above = too_high - value - slope * gap
    share = -slope * gap / (2 * above) if math.isfinite(above) and above > 0 else _LONGEST_CUT
    return low + gap * min(max(share, _SHORTEST_CUT), _LONGEST_CUT)


def line_search(
    theta: Tensor, value: float, slope: float, direction: Tensor, length: float
) -> Generator[Tensor, Answer, Place | None]:
    """Return a place along `direction` that meets the weak Wolfe conditions, or at least lies lower; None if none.

    With it come its value, its gradient, and its distance in lengths of `direction`.
    """
    low, high = 0.0, math.inf
    low_value, low_slope = value, slope
    lower: Place | None = None
    for _ in range(_LONGEST_SEARCH):
        place = theta + length * direction
        reached, differentiate = yield place
        if not reached <= value + _ENOUGH_DESCENT * length * slope:
            high = length
            length = _cut(low, high, low_value, low_slope, reached)
            continue
        gradient = differentiate()
        if reached < value:
            lower = (place, reached, gradient, length)
        low, low_value, low_slope = length, reached, float(gradient @ direction)
        if low_slope >= _SLOPE_RISEN * slope:
            break
        length = (low + high) / 2 if high < math.inf else 2 * length
    return lower
