"""Acceleration of the sweeps: extrapolated variances (Anderson) and a search for the best mean."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError, NotFiniteError, NotPositiveDefiniteError
from neuralsurv.inference.optimise.anderson import Anderson
from neuralsurv.inference.optimise.inverse_hessian import LimitedInverseHessian
from neuralsurv.inference.paper import updates
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviState, elbo
from neuralsurv.model.augmentation import latent_intensity, polya_gamma_mean
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.interface import Coordinates, Solver

_TINY = torch.finfo(torch.float64).tiny
# A fall of the ELBO by less than this, relative to its size, is rounding.
_ROUNDING = 1e-12
# How large an extrapolation may make the variance of g.
_LARGEST_LOG_VARIANCE = 50.0
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

PhiOf = Callable[[Tensor], Gamma]


class AcceleratedSweeps:
    """Sweeps that start beyond where the last one ended.

    The limit of the variances is extrapolated from the last few sweeps (Anderson), and the best mean for them is
    searched. Any moments are a valid start, since q(omega), q(Psi) and q(phi) are free; the result is only kept if the
    ELBO has not fallen. With a solver without coordinates the means are extrapolated as well, and not searched.
    """

    def __init__(self, problem: PaperProblem, linearised: Linearised) -> None:
        self._problem, self._linearised = problem, linearised
        self._memory: Anderson | None = None
        self._last_gain = math.inf

    def __call__(self, solver: Solver[Any], state: CaviState, reached: float) -> tuple[CaviState, float] | None:
        """Return the state after a sweep and its ELBO, or None if every attempt has lowered it from `reached`."""
        coordinates = solver.coordinates(state.theta)
        if self._memory is None:
            weight = self._problem.points.weight
            self._memory = Anderson(weight if coordinates is not None else torch.cat([weight, weight]))
        memory, found = self._memory, None
        guess = memory.guess()
        if guess is not None:
            found = self._sweep_beyond(solver, _unpacked(guess, state), coordinates, reached, memory)
            if found is None:
                memory.forget()
        if found is None:
            found = self._sweep_beyond(solver, state, coordinates, reached, memory)
        if found is not None:
            self._last_gain = found[1] - reached
        return found

    def _sweep_beyond(
        self, solver: Solver[Any], begin: CaviState, coordinates: Coordinates | None, reached: float, memory: Anderson
    ) -> tuple[CaviState, float] | None:
        """Search the mean and sweep; return the end of it if the ELBO has not fallen."""
        problem, linearised = self._problem, self._linearised
        try:
            if coordinates is not None:
                tolerance = min(_COARSEST_SEARCH, _SEARCH_SHARE * self._last_gain)
                tolerance = max(tolerance, _ROUNDING * abs(reached))
                v = begin.v
                m = search_mean(
                    problem, coordinates, linearised.offset, v, lambda m: updates.update_phi(problem, m, v), tolerance
                )
                begin = replace(begin, m=m)
            new = updates.sweep(problem, linearised, solver, begin)
            bound = updates.elbo_of(problem, new)
        except (NotPositiveDefiniteError, NotFiniteError, NotConvergedError):
            return None
        if not bound >= reached - _ROUNDING * abs(reached):
            return None
        memory.add(_packed(begin, coordinates), _packed(new, coordinates))
        return new, bound


def _packed(state: CaviState, coordinates: Coordinates | None) -> Tensor:
    """Return what is extrapolated: the variance of g on the log scale, and the mean of g if it is not searched."""
    variance = torch.log(state.v + _TINY)
    return variance if coordinates is not None else torch.cat([variance, state.m])


def _unpacked(values: Tensor, state: CaviState) -> CaviState:
    count = len(state.m)
    variance = torch.exp(values[:count].clamp(max=_LARGEST_LOG_VARIANCE))
    return replace(state, v=variance, m=values[count:] if len(values) > count else state.m)


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


def search_mean(
    problem: PaperProblem, coordinates: Coordinates, offset: Tensor, v: Tensor, phi_of: PhiOf, tolerance: float
) -> Tensor:
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

    def value(place: Tensor, m: Tensor, phi: Gamma) -> float:
        # The ELBO but for what the covariance of q(theta) adds, which stays.
        return elbo(problem, m, v, phi, float((coordinates.precision * place**2).sum()) / 2)

    def slope_at(place: Tensor, m: Tensor, phi: Gamma) -> Tensor:
        return coordinates.rows.transposed_times(slope_of_mean(problem, m, v, phi)) - coordinates.precision * place

    place = coordinates.place
    m = offset + coordinates.rows.times(place)
    phi = phi_of(m)
    reached, slope = value(place, m, phi), slope_at(place, m, phi)
    inverse = LimitedInverseHessian(_DEPTH, coordinates.covariance_times)
    for _ in range(_most_steps(*coordinates.rows.shape)):
        # The gradient of what is minimised is minus the slope of the ELBO.
        direction = inverse.direction(-slope)
        promise = float(slope @ direction)
        if not promise > 0:
            inverse = LimitedInverseHessian(_DEPTH, coordinates.covariance_times)
            direction = inverse.direction(-slope)
            promise = float(slope @ direction)
        if not promise > tolerance:
            break
        change = coordinates.rows.times(direction)

        tried: dict[float, tuple[Tensor, Tensor, Gamma]] = {}

        def along(length: float) -> float:
            # Called within this turn of the loop only.
            there = m + length * change  # noqa: B023
            tried[length] = place + length * direction, there, phi_of(there)  # noqa: B023
            return value(*tried[length])  # noqa: B023

        length, gained = _length(along, reached, promise)
        if not gained > 0:
            break
        place, m, phi = tried[length]
        before, slope = slope, slope_at(place, m, phi)
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


def _length(along: Callable[[float], float], before: float, promise: float) -> tuple[float, float]:
    """Return how far to go, and what that gains: doubled while it pays, or cut until it does; 0 where nothing does."""
    length = 1.0
    gain = along(length) - before
    if gain > _LEAST_SHARE * promise:
        # A parabola gains half of what its slope promises; where it is much more, the way is longer.
        while length < _LONGEST and gain > _STRAIGHT * length * promise:
            longer = along(2 * length) - before
            if not longer > (1 + _WORTH_LENGTHENING) * gain:
                break
            length, gain = 2 * length, longer
        return length, gain
    while length > _SHORTEST:
        length /= 3
        gain = along(length) - before
        if gain > _LEAST_SHARE * length * promise:
            return length, gain
    return 0.0, 0.0
