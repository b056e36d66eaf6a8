r"""Coordinate-ascent variational inference (algorithm 2 of the paper): where sweeps start, and when they end.

All arithmetic is float64, except in the first sweeps of a large problem, whose products of matrices may be in single
precision (`rough`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper import updates
from neuralsurv.inference.paper.acceleration import sweep_from_best_mean
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviStart, CaviState, curvature_and_slope, update_phi
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.interface import SearchableSolver
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver

# Reduced rows of more numbers than this are first swept in single precision; a sweep then takes a second or more.
_WORTH_ROUGH_SWEEPS = 2**23
# Information that the low-rank solver may give up, in nats; what it did give up is in the diagnostics.
_INFORMATION_TOLERANCE = 1e-3
_TINY = torch.finfo(torch.float64).tiny
# Rough sweeps have done their part when a sweep changes no block of parameters by more than this.
_ROUGH_CHANGE = 1e-4
SweepReport = Callable[[int, float, float], None]


@dataclass(frozen=True)
class SweepSolver:
    """A solver that is made for a problem."""

    exact: SearchableSolver[Any]
    rank: int  # number of directions that it keeps
    rough: SearchableSolver[Any] | None = None  # a cheaper one for the first sweeps, where these are slow
    # From the curvatures at the points to the information that the directions left out would have had, in nats.
    lost_information: Callable[[Tensor], float] = lambda curvature: 0.0


def make_solver(
    name: str, problem: PaperProblem, linearised: Linearised, state: CaviStart, *, rough: bool = False
) -> SweepSolver:
    """Return a solver by name, made for the linearised points and the curvatures that `state` leads to.

    With `rough` the first sweeps may be in single precision, if they are slow.
    """
    rows, precision = linearised.rows, problem.weight_prior.precision
    if name == "primal":
        return SweepSolver(PrimalSolver(rows, precision), problem.network.size)
    if name == "dual":
        return SweepSolver(DualSolver(rows, precision), problem.network.size)
    importance, _ = curvature_and_slope(problem, state.m, state.v, update_phi(problem, state.m, state.v))
    solver = low_rank_solver(rows, precision, importance, tolerance=_INFORMATION_TOLERANCE)
    slow = solver.reduced.numel() >= _WORTH_ROUGH_SWEEPS
    return SweepSolver(solver, solver.rank, solver.rough() if rough and slow else None, solver.lost_information)


@dataclass(frozen=True)
class CaviInfo:
    """How the iteration went."""

    elbo: tuple[float, ...]  # the ELBO of what is kept after each sweep, in nats
    change: tuple[float, ...]  # the largest relative change of a block of parameters in each sweep
    converged: bool  # whether the last change was below the tolerance
    interrupted: bool  # whether the user stopped the sweeps (Ctrl-C) after at least one of them
    latent_points: float  # expected number of latent points, Σλ, at the end
    rough_sweeps: int = 0  # sweeps in single precision before these

    @property
    def sweeps(self) -> int:
        """Number of sweeps that were run, the rough ones aside."""
        return len(self.elbo)


def start(problem: PaperProblem, linearised: Linearised, theta: Tensor, phi: float, spread: str = "mode") -> CaviStart:
    """Return where the sweeps start: E[phi] = phi_MAP and q(theta) around theta_MAP.

    A spread ``"prior"`` gives q(theta) the prior's covariance, as the text of the paper does. The variance of g is then
    so large that the bound sees no latent point, and the first sweeps run into the collapsed optimum. ``"mode"`` starts
    with all mass at the mode, where the bound is exact, so that the first sweep is a Laplace step.
    """
    variance = torch.zeros_like(linearised.offset)
    if spread == "prior":
        variance = linearised.rows.squared_norms(1 / problem.weight_prior.precision)
    mean = linearised.offset + linearised.rows.times(theta)
    return CaviStart(Gamma(phi * problem.phi_rate, problem.phi_rate), theta, mean, variance)


def _relative_change(new: CaviState, old: CaviStart, weight: Tensor) -> float:
    def change(a: Tensor, b: Tensor, by: Tensor) -> float:
        return float(((by * (a - b) ** 2).sum() / (by * b**2).sum().clamp_min(_TINY)).sqrt())

    return max(
        abs(new.phi.shape - old.phi.shape) / max(old.phi.shape, _TINY),
        change(new.theta_mean, old.theta_mean, torch.ones_like(old.theta_mean)),
        change(new.v, old.v, weight),
    )


def sweep_until_converged(
    problem: PaperProblem,
    linearised: Linearised,
    solver: SearchableSolver[Any],
    state: CaviStart,
    *,
    tolerance: float = 1e-6,
    max_sweeps: int = 1000,
    accelerate: bool = True,
    rough: SearchableSolver[Any] | None = None,
    report: SweepReport = lambda sweep, elbo, change: None,
) -> tuple[CaviState, CaviInfo]:
    """Sweep until no block of parameters changes by more than `tolerance`, relative to its size: the rule of the paper.

    The blocks are the shape of q(phi), the mean of q(theta), and the variances of g at the points. With `accelerate`,
    sweeps start from the best mean (:mod:`neuralsurv.inference.paper.acceleration`); the end is a fixed point of the
    sweeps either way, but where there are several it need not be the same one. The first sweeps use the cheaper, less
    exact algebra `rough` if there is one, until they change little or no longer gain; the others, and the ELBO that is
    reported, are the solver's own.
    """
    trace: list[float] = []
    changes: list[float] = []
    rough_sweeps, converged, interrupted = 0, False, False
    reached, last_gain = -math.inf, math.inf
    current: CaviState | None = None
    while current is None or not (converged or interrupted or len(trace) + rough_sweeps >= max_sweeps):
        algebra = rough or solver
        try:
            found = None
            if accelerate and current is not None:
                found = sweep_from_best_mean(problem, linearised, algebra, current, reached, last_gain)
            if found is None:
                new = updates.sweep(problem, linearised, algebra, state)
                bound = updates.elbo_of(problem, new)
            else:
                new, bound = found
                last_gain = bound - reached
        except KeyboardInterrupt:
            # The state of the last finished sweep is a posterior like any other, only not the final one.
            if current is None:
                raise
            interrupted = True
            break
        done = len(trace) + rough_sweeps + 1
        if not math.isfinite(bound):
            raise NotFiniteError(f"the ELBO became {bound} in sweep {done}; look for extreme covariates.")
        change = _relative_change(new, state, problem.points.weight)
        if rough is None:
            trace.append(bound)
            changes.append(change)
            converged = change < tolerance
        else:
            rough_sweeps += 1
            if change < _ROUGH_CHANGE or not bound > reached or rough_sweeps == max_sweeps - 1:
                rough = None
                mean, variance = solver.moments(new.theta)
                new = replace(new, m=linearised.offset + mean, v=variance)
                bound = updates.elbo_of(problem, new)
        state = current = new
        reached = bound
        try:
            report(done, bound, change)
        except KeyboardInterrupt:
            interrupted = True
    latent = current.phi.shape - problem.phi_prior.shape - problem.event_count
    return current, CaviInfo(tuple(trace), tuple(changes), converged, interrupted, latent, rough_sweeps)
