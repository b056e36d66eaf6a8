"""Acceleration of the sweeps: each starts from the best mean of q(theta) for the current variances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError, NotPositiveDefiniteError
from neuralsurv.inference.paper import updates
from neuralsurv.inference.paper.descent import LimitedInverseHessian
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviState, elbo, update_phi
from neuralsurv.model.augmentation import latent_intensity, polya_gamma_mean
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.interface import Coordinates, SearchableSolver

# A fall of the ELBO by less than this, relative to its size, is rounding.
_ROUNDING = 1e-12
# The search for a mean ends when it promises less than this, in nats, or than this share of what the last sweep gained.
_COARSEST_SEARCH = 1e-4
_SEARCH_SHARE = 1e-3
# Steps that the search remembers.
_DEPTH = 10
# A step is learned from if the slope falls along it by this share of the most it could.
_LEAST_CURVATURE = 1e-10
# The search between two sweeps takes at most this many steps, and no longer than two sweeps do; beyond its products, a
# step costs about this many operations, whatever the size.
_MOST_STEPS, _FEWEST_STEPS = 200, 10
_OPERATIONS_OF_CALLS = 2e7
# A step must gain this share of what its slope promises, and is lengthened while that gains this share more.
_LEAST_SHARE = 1e-4
_WORTH_LENGTHENING = 1e-3
_LONGEST, _SHORTEST = 1e4, 1e-6
_STRAIGHT = 0.6


def sweep_from_best_mean(
    problem: PaperProblem,
    linearised: Linearised,
    solver: SearchableSolver[Any],
    state: CaviState,
    reached: float,
    last_gain: float,
) -> tuple[CaviState, float] | None:
    """Search the mean, then sweep: return the state and its ELBO, or None if that is below `reached`.

    Any moments are a valid start, since q(omega), q(Psi) and q(phi) are free. `last_gain` is what the last such sweep
    gained, in nats; the search is only as exact as that is worth.
    """
    tolerance = max(min(_COARSEST_SEARCH, _SEARCH_SHARE * last_gain), _ROUNDING * abs(reached))
    try:
        m = search_mean(problem, solver.coordinates(state.theta), linearised.offset, state.v, tolerance)
        new = updates.sweep(problem, linearised, solver, replace(state, m=m))
        bound = updates.elbo_of(problem, new)
    except (NotPositiveDefiniteError, NotFiniteError):
        return None
    return (new, bound) if bound >= reached - _ROUNDING * abs(reached) else None


def slope_of_mean(problem: PaperProblem, m: Tensor, v: Tensor, phi: Gamma) -> Tensor:
    r"""Return the derivative of the ELBO in m at each point, shape (P,), at fixed v and q(phi).

    With :math:`s = \sqrt{m^2 + v}` and :math:`r = \tanh(s/2)/2s` it is :math:`\tfrac12 - rm` at an event, and
    :math:`-\lambda(\tfrac12 + rm)` at a node.
    """
    events = problem.points.events
    s = torch.sqrt(m**2 + v)
    product = polya_gamma_mean(s) * m
    latent = latent_intensity(problem.baseline, m[events:], s[events:], phi.mean_log)
    return torch.cat([problem.event_weight * (0.5 - product[:events]), -latent * (0.5 + product[events:])])


def search_mean(problem: PaperProblem, coordinates: Coordinates, offset: Tensor, v: Tensor, tolerance: float) -> Tensor:
    r"""Return the mean of g at the points, shape (P,), for the best mean of q(theta) that was found.

    A sweep moves the mean to the top of a quadratic that lies below the ELBO everywhere, with the curvature
    :math:`\kappa` of the Pólya–Gamma bound. Where :math:`\sigma(g)` is close to 0 or to 1 the ELBO itself is much
    flatter than that, or bends the other way: the sweep goes only a small part of the way, and hundreds of sweeps
    follow each other in nearly the same direction. A search by the slope alone (L-BFGS with the sweep's covariance as
    its metric) costs two products with the rows for each of its steps, which is less than a hundredth of a sweep. The
    sweep after the search starts from where it ended, so fixed points are what they are without it.

    The coordinates hold the mean to start from and the covariance that is the metric of the search; `offset`, shape
    (P,), is what J·theta lacks of the mean of g. The search stops when the slope promises less than `tolerance` nats.
    """

    def value(place: Tensor, m: Tensor) -> float:
        # The ELBO but for what the covariance of q(theta) adds, which stays.
        return elbo(problem, m, v, update_phi(problem, m, v), float((coordinates.precision * place**2).sum()) / 2)

    def slope_at(place: Tensor, m: Tensor) -> Tensor:
        slope = slope_of_mean(problem, m, v, update_phi(problem, m, v))
        return coordinates.rows.transposed_times(slope) - coordinates.precision * place

    def no_steps() -> LimitedInverseHessian:
        return LimitedInverseHessian(_DEPTH, coordinates.covariance_times)

    place = coordinates.place
    m = offset + coordinates.rows.times(place)
    reached, slope, inverse = value(place, m), slope_at(place, m), no_steps()
    for _ in range(_most_steps(*coordinates.rows.shape)):
        # The gradient of what is minimised is minus the slope of the ELBO.
        direction = inverse.direction(-slope)
        if not float(slope @ direction) > 0:
            inverse = no_steps()
            direction = inverse.direction(-slope)
        promise = float(slope @ direction)
        if not promise > tolerance:
            break
        change = coordinates.rows.times(direction)
        # Called within this turn of the loop only.
        length, gained = _length(
            lambda length: value(place + length * direction, m + length * change) - reached,  # noqa: B023
            promise,
        )
        if not gained > 0:
            break
        place, m = place + length * direction, m + length * change
        before, slope = slope, slope_at(place, m)
        step, fall = length * direction, before - slope
        # Where a step has raised the slope, the ELBO bends upwards.
        if float(step @ fall) > _LEAST_CURVATURE * float(step.norm() * fall.norm()):
            inverse.update(step, fall)
        reached += gained
    return m


def _most_steps(points: int, rank: int) -> int:
    sweep = 2.5 * points * rank**2 + rank**3 / 3
    step = 4 * points * rank + 2 * rank**2 + _OPERATIONS_OF_CALLS
    return max(_FEWEST_STEPS, min(_MOST_STEPS, round(2 * sweep / step)))


def _length(gain_of: Callable[[float], float], promise: float) -> tuple[float, float]:
    """Return how far to go, and what that gains: doubled while it pays, or cut until it does; 0 where nothing does."""
    length = 1.0
    gain = gain_of(length)
    if gain > _LEAST_SHARE * promise:
        # A parabola gains half of what its slope promises; where it is much more, the way is longer.
        while length < _LONGEST and gain > _STRAIGHT * length * promise:
            longer = gain_of(2 * length)
            if not longer > (1 + _WORTH_LENGTHENING) * gain:
                break
            length, gain = 2 * length, longer
        return length, gain
    while length > _SHORTEST:
        length /= 3
        gain = gain_of(length)
        if gain > _LEAST_SHARE * length * promise:
            return length, gain
    return 0.0, 0.0
