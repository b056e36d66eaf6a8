r"""Descent for functions with kinks: BFGS with a line search that asks for no more than a kink can give.

A network of ReLU units makes the objective piecewise smooth, and its lowest points lie on kinks, where the gradient
does not vanish. A line search for a small slope (strong Wolfe conditions) stalls there. Asking only for enough descent
and for the slope to have risen (weak Wolfe conditions) can always be met by shortening and doubling, and the inverse
Hessian of BFGS learns the directions across the kink as directions of huge curvature, so that the iteration goes on
along it.

Most of the time goes into places that are tried and not taken, so three things keep those few and cheap: the gradient
is only asked for where the value is low enough; a step that was too long is shortened to the lowest point of a
parabola; and a search starts at twice the length that the last one ended with, at most 1, because between kinks full
steps are rare.

A descent is a coroutine: it yields the places whose value it wants to know and is sent the answers. So descents from
several starts can be answered together, by one pass of all of them through a network.

References
----------
A. S. Lewis, M. L. Overton (2013), Nonsmooth optimization via quasi-Newton methods.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

# The value at a place, and a way to the gradient there for when it is needed.
Answer = tuple[float, Callable[[], Tensor]]
Function = Callable[[Tensor], Answer]

_ENOUGH_DESCENT = 1e-4
_SLOPE_RISEN = 0.9
# What a step that was too long is shortened to, at least and at most, as a share of what is left.
_SHORTEST_CUT, _LONGEST_CUT = 0.1, 0.5
# Cuts and doublings of one line search; 2⁻⁵⁰ of a step is below rounding.
_LONGEST_SEARCH = 50
# What counts is the gain over this many iterations: a short step often lies between two long ones.
_WINDOW = 20
# Up to this many weights the inverse Hessian is a matrix (32 MiB); beyond, the last pairs of steps stand for it.
_LARGEST_DENSE = 2000
_REMEMBERED_PAIRS = 30
# A step off a kink, relative to the size of the weights.
_OFF_A_KINK = 1e-3


class DenseInverseHessian:
    """The inverse Hessian of BFGS as a matrix."""

    def __init__(self, size: int) -> None:
        self._matrix = torch.eye(size, dtype=torch.float64)
        self.fresh = True

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
    """The inverse Hessian of BFGS as the last pairs of steps, for many weights."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=_REMEMBERED_PAIRS)

    @property
    def fresh(self) -> bool:
        """Whether nothing has been learned yet."""
        return not self._pairs

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradient (two-loop recursion)."""
        result = -gradient
        shares = []
        for step, change, product in reversed(self._pairs):
            share = float(step @ result) / product
            shares.append(share)
            result = result - share * change
        if self._pairs:
            _, change, product = self._pairs[-1]
            result = result * (product / float(change @ change))
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


@dataclass(frozen=True)
class Descent:
    """Where a descent ended.

    Attributes
    ----------
    theta : Tensor of shape (m,)
        The place.
    value : float
        The function there.
    values : tuple of float
        The function at the start and after each iteration.
    converged : bool
        Whether the last iterations gained less than the tolerance, or no step could be found and a descent from
        beside the place gained less than it too.
    inverse_hessian : InverseHessian
        What was learned, for a descent of a similar function from here.
    """

    theta: Tensor
    value: float
    values: tuple[float, ...]
    converged: bool
    inverse_hessian: InverseHessian = field(repr=False)


def _beside(theta: Tensor) -> Tensor:
    """Return a small step off every kink that `theta` may lie on, always the same."""
    noise = torch.randn(len(theta), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return _OFF_A_KINK * max(float(theta.square().mean().sqrt()), _OFF_A_KINK) * noise


def _cut(low: float, high: float, value: float, slope: float, too_high: float) -> float:
    """Return a length between `low`, with its value and slope, and `high`, where the value is too high."""
    gap = high - low
    above = too_high - value - slope * gap
    share = -slope * gap / (2 * above) if math.isfinite(above) and above > 0 else _LONGEST_CUT
    return low + gap * min(max(share, _SHORTEST_CUT), _LONGEST_CUT)


# A place with its value, its gradient, and its distance in lengths of the direction that led there.
_Place = tuple[Tensor, float, Tensor, float]


def _line_search(
    theta: Tensor, value: float, slope: float, direction: Tensor, length: float
) -> Generator[Tensor, Answer, _Place | None]:
    """Return a place along `direction` that meets the weak Wolfe conditions, or at least lies lower; None if none.

    With it come its value, its gradient, and its distance in lengths of `direction`.
    """
    low, high = 0.0, math.inf
    low_value, low_slope = value, slope
    lower: _Place | None = None
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


def _descent(
    theta: Tensor,
    tolerance: float,
    max_iterations: int,
    inverse_hessian: InverseHessian | None,
    callback: Callable[[float], None] | None,
    off_kinks: bool,
) -> Generator[Tensor, Answer, Descent]:
    """Go down from `theta`: yield the places whose answers are asked for, return where it ended."""
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
            found = yield from _line_search(theta, value, slope, direction, length)
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
            # Not even straight downhill. On a kink that need not be the bottom: go down again from beside it.
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
        # The step along the gradient that comes before anything is learned says nothing of the length of later ones.
        last_length = 1.0 if inverse.fresh else found[3]
        if float(step @ change) > 0:
            inverse.update(step, change)
        theta, value, gradient = found[:3]
        values.append(value)
        if callback is not None:
            callback(value)
        converged = len(values) > _WINDOW + 1 and values[-_WINDOW - 1] - value <= _WINDOW * tolerance * abs(value)
    return Descent(theta, value, tuple(values), converged, inverse)


def descend(
    function: Function,
    theta: Tensor,
    *,
    tolerance: float,
    max_iterations: int,
    inverse_hessian: InverseHessian | None = None,
    off_kinks: bool = True,
    callback: Callable[[float], None] | None = None,
) -> Descent:
    """Go down from `theta` until an iteration gains less than `tolerance` times the value, on average over twenty.

    Parameters
    ----------
    function : callable
        Returns the value at a place and a function without arguments that returns the gradient there.
    theta : Tensor of shape (m,)
        Where to start.
    tolerance, max_iterations : float, int
        When to stop.
    inverse_hessian : InverseHessian, optional
        What an earlier descent of a similar function has learned.
    off_kinks : bool
        Whether to go down once more from a place beside, wherever no step can be found; only if that gains nothing
        either has the descent converged.
    callback : callable, optional
        Called with the value after each iteration.
    """
    return _drive(
        lambda places: [function(place) for place in places],
        [_descent(theta, tolerance, max_iterations, inverse_hessian, callback, off_kinks)],
    )[0]


def descend_together(
    functions: Callable[[Sequence[Tensor]], Sequence[Answer]],
    thetas: Sequence[Tensor],
    *,
    tolerance: float,
    max_iterations: int,
    inverse_hessians: Sequence[InverseHessian | None],
    callbacks: Sequence[Callable[[float], None]],
) -> list[Descent]:
    """Go down from several places at once, each as `descend` would from it alone.

    Parameters
    ----------
    functions : callable
        Returns for a sequence of places what `function` of `descend` returns for each. It is called with the next
        place of every descent that has not ended.
    thetas : sequence of Tensor of shape (m,)
        Where to start.
    tolerance, max_iterations : float, int
        When a descent stops.
    inverse_hessians : sequence of InverseHessian or None
        For each descent, what an earlier one has learned.
    callbacks : sequence of callable
        For each descent, called with its value after each of its iterations.
    """
    each = zip(thetas, inverse_hessians, callbacks, strict=True)
    return _drive(functions, [_descent(a, tolerance, max_iterations, b, c, off_kinks=True) for a, b, c in each])


def _drive(
    functions: Callable[[Sequence[Tensor]], Sequence[Answer]], descents: Sequence[Generator[Tensor, Answer, Descent]]
) -> list[Descent]:
    """Answer the places that the descents ask for, in one call a round, until all have ended."""
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
