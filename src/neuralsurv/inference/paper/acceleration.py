"""Acceleration of the sweeps: extrapolated variances (Anderson) and a search for the best mean."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError, NotFiniteError, NotPositiveDefiniteError
from neuralsurv.inference.optimise.anderson import Anderson
from neuralsurv.inference.paper import updates
from neuralsurv.inference.paper.mean_search import search_mean
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviState
from neuralsurv.model.linearise import Linearised
from neuralsurv.solvers.coordinates import Coordinates
from neuralsurv.solvers.interface import Solver

_TINY = torch.finfo(torch.float64).tiny
# A fall of the ELBO by less than this, relative to its size, is rounding.
_ROUNDING = 1e-12
# How large an extrapolation may make the variance of g.
_LARGEST_LOG_VARIANCE = 50.0
# The search for a mean ends when it promises less than this, in nats, or than this share of what the last sweep gained.
_COARSEST_SEARCH = 1e-4
_SEARCH_SHARE = 1e-3


class AcceleratedSweeps:
    """Sweeps that start beyond where the last one ended.

    The limit of the variances is extrapolated from the last few sweeps (Anderson), and the best mean for them is
    searched. Any moments are a valid start, since q(omega), q(Psi) and q(phi) are free; the result is only kept if the
    ELBO has not fallen. With a solver without a coordinates the means are extrapolated as well, and not searched.
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
