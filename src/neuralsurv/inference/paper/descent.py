r"""Descent for functions with kinks: BFGS with a line search for the weak Wolfe conditions.

A network of ReLU units makes the objective piecewise smooth, and its lowest points lie on kinks, where the gradient
does not vanish. A line search for a small slope (strong Wolfe conditions) stalls there. Asking only for enough descent
and for the slope to have risen (weak Wolfe conditions) can always be met by shortening and doubling, and the inverse
Hessian of BFGS learns the directions across the kink as directions of huge curvature, so that the iteration goes on
along it.

Most of the time goes into places that are tried and not taken. To keep these few, a line search starts at twice the
length that the last one ended with, at most 1, because between kinks full steps are rare.

A descent is a coroutine: it yields the places whose value it needs and is sent the answers. So one pass through a
network can answer descents from several starts.

References
----------
A. S. Lewis, M. L. Overton (2013), Nonsmooth optimization via quasi-Newton methods.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

# The value at a place, and a function that returns the gradient there, for when it is needed.
Answer = tuple[float, Callable[[], Tensor]]
# A place with its value, its gradient, and its distance in lengths of the direction that led there.
Place = tuple[Tensor, float, Tensor, float]
Function = Callable[[Tensor], Answer]

_ENOUGH_DESCENT = 1e-4
_SLOPE_RISEN = 0.9
# What a step that was too long is shortened to, at least and at most, as a share of what is left.
_SHORTEST_CUT, _LONGEST_CUT = 0.1, 0.5
# Cuts and doublings of one line search; 2⁻⁵⁰ of a step is below rounding.
_LONGEST_SEARCH = 50
# What counts is the gain over this many iterations: a short step often lies between two long ones.
_WINDOW = 20
# A step off a kink, relative to the size of the weights.
_OFF_A_KINK = 1e-3
# Up to this many weights the inverse Hessian is a matrix (32 MiB); beyond, the last pairs of steps represent it.
_LARGEST_DENSE = 2000
_REMEMBERED_PAIRS = 30


class DenseInverseHessian:
    """The inverse Hessian of BFGS as a matrix."""

    def __init__(self, size: int) -> None:
        self._matrix = torch.eye(size, dtype=torch.float64)
        self.fresh = True  # whether nothing has been learned yet

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradient."""
        return -(self._matrix @ gradient)

    def update(self, step: Tensor, change: Tensor) -> None:
        """Learn from a step and the change of the gradient along it, whose product must be positive."""
        product = float(step @ change)
        if self.fresh:
            self._matrix *= product / float(change @ change)
            self.fresh = False
        image = self._matrix @ change
        # Both rank-one terms and their transposes in one pass over the matrix, which is larger than a cache.
        half = ((1 + float(change @ image) / product) / 2 * step - image) / product
        self._matrix.addmm_(torch.stack([step, half], 1), torch.stack([half, step]))


class LimitedInverseHessian:
    """The inverse Hessian of L-BFGS, as the last pairs of steps, for many weights.

    `metric` multiplies a vector by the inverse Hessian before any step; by default the identity, scaled by the last
    step.
    """

    def __init__(self, pairs: int = _REMEMBERED_PAIRS, metric: Callable[[Tensor], Tensor] | None = None) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=pairs)
        self._metric = metric or self._scaled

    @property
    def fresh(self) -> bool:
        """Whether nothing has been learned yet."""
        return not self._pairs

    def _scaled(self, vector: Tensor) -> Tensor:
        if self.fresh:
            return vector
        _, change, product = self._pairs[-1]
        return vector * (product / float(change @ change))

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradient (two-loop recursion)."""
        result = -gradient
        shares = []
        for step, change, product in reversed(self._pairs):
            share = float(step @ result) / product
            shares.append(share)
            result = result - share * change
        result = self._metric(result)
        for (step, change, product), share in zip(self._pairs, reversed(shares), strict=True):
            result = result + (share - float(change @ result) / product) * step
        return result

    def update(self, step: Tensor, change: Tensor) -> None:
        """Learn from a step and the change of the gradient along it, whose product must be positive."""
        self._pairs.append((step, change, float(step @ change)))


InverseHessian = DenseInverseHessian | LimitedInverseHessian


def new_inverse_hessian(size: int) -> InverseHessian:
    """Return an inverse Hessian that has learned nothing: a matrix where that is cheap."""
    return DenseInverseHessian(size) if size <= _LARGEST_DENSE else LimitedInverseHessian()


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

    With it come its value, its gradient, and its distance in lengths of `direction`. Gradients are only asked for where
    the value is low enough, and a step that was too long is shortened to the lowest point of a parabola.
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


@dataclass(frozen=True)
class Descent:
    """Where a descent ended."""

    theta: Tensor  # shape (m,)
    value: float  # the function there
    values: tuple[float, ...]  # the function at the start and after each iteration
    # Whether the last iterations gained less than the tolerance, or no step could be found and a descent from beside
    # the place gained less than it too.
    converged: bool
    # What was learned, for a descent of a similar function from here.
    inverse_hessian: InverseHessian = field(repr=False)


def _beside(theta: Tensor) -> Tensor:
    """Return a small step off every kink that `theta` may lie on, always the same."""
    noise = torch.randn(len(theta), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return _OFF_A_KINK * max(float(theta.square().mean().sqrt()), _OFF_A_KINK) * noise


def _descent(
    theta: Tensor,
    tolerance: float,
    max_iterations: int,
    inverse_hessian: InverseHessian | None,
    callback: Callable[[float], None] | None,
    off_kinks: bool,
) -> Generator[Tensor, Answer, Descent]:
    """Descend from `theta`: yield the places whose answers are needed, return where it ended."""
    inverse = new_inverse_hessian(len(theta)) if inverse_hessian is None else inverse_hessian
    value, differentiate = yield theta
    gradient = differentiate()
    values = [value]
    converged = False
    last_length = 1.0
    while len(values) <= max_iterations and not converged:
        direction = inverse.direction(gradient)
        slope = float(gradient @ direction)
        found = None
        if slope < 0:
            length = 1 / max(1.0, float(gradient.norm())) if inverse.fresh else min(1.0, 2 * last_length)
            found = yield from line_search(theta, value, slope, direction, length)
        if found is None:
            if not math.isfinite(value):
                break
            # Where the function curves by 1 or more, as a standard normal prior makes it, no more is to be gained
            # than half the squared gradient.
            if float(gradient.square().sum()) / 2 <= _WINDOW * tolerance * abs(value):
                converged = True
                break
            if not inverse.fresh:
                inverse, last_length = new_inverse_hessian(len(theta)), 1.0
                continue
            if not off_kinks:
                break
            # Not even the gradient leads down. On a kink that need not be a minimum: descend again from beside it.
            left = max_iterations - len(values) + 1
            again = yield from _descent(theta + _beside(theta), tolerance, left, None, None, off_kinks=False)
            if again.value >= value - _WINDOW * tolerance * abs(value):
                converged = len(values) + len(again.values) <= max_iterations
                break
            theta, value, inverse, last_length = again.theta, again.value, again.inverse_hessian, 1.0
            gradient = (yield theta)[1]()
            values += [min(reached, values[-1]) for reached in again.values]
            continue
        step, change = found[0] - theta, found[2] - gradient
        # The first step, along the gradient, is no guide to the length of later ones.
        last_length = 1.0 if inverse.fresh else found[3]
        if float(step @ change) > 0:
            inverse.update(step, change)
        theta, value, gradient = found[:3]
        values.append(value)
        if callback is not None:
            callback(value)
        converged = len(values) > _WINDOW + 1 and values[-_WINDOW - 1] - value <= _WINDOW * tolerance * abs(value)
    return Descent(theta, value, tuple(values), converged, inverse)


def descend(function: Function, theta: Tensor, **options: Any) -> Descent:
    """Descend from one place: `function` returns the value there, and a function that returns the gradient."""
    return descend_together(lambda places: [function(place) for place in places], [theta], **options)[0]


def descend_together(
    functions: Callable[[Sequence[Tensor]], Sequence[Answer]],
    thetas: Sequence[Tensor],
    *,
    tolerance: float,
    max_iterations: int,
    inverse_hessians: Sequence[InverseHessian | None] = (None,),
    callbacks: Sequence[Callable[[float], None] | None] = (None,),
    off_kinks: bool = True,
) -> list[Descent]:
    """Descend from several places at once, until an iteration gains less than `tolerance` times the value.

    That gain is an average over twenty iterations. `functions` is called with the next place, shape (m,), of every
    descent that has not ended, and returns the value and the gradient's function of each; every callback gets the value
    of its descent after each iteration. Where no step can be found, `off_kinks` descends once more from a place beside;
    only if that gains nothing either has the descent converged.
    """
    descents = [
        _descent(theta, tolerance, max_iterations, inverse, callback, off_kinks)
        for theta, inverse, callback in zip(thetas, inverse_hessians, callbacks, strict=True)
    ]
    asked = {number: next(descent) for number, descent in enumerate(descents)}
    ended: dict[int, Descent] = {}
    while asked:
        answers = functions(list(asked.values()))
        for number, answer in zip(list(asked), answers, strict=True):
            try:
                asked[number] = descents[number].send(answer)
            except StopIteration as end:
                ended[number] = end.value
                del asked[number]
    return [ended[number] for number in range(len(descents))]
