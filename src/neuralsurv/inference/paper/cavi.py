r"""Coordinate-ascent variational inference (algorithm 2 of the paper): where sweeps start, and when they end.

All arithmetic is float64, except in the first sweeps of a large problem, whose products of matrices may be in single
precision (`rough`).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.paper import updates
from neuralsurv.inference.paper.acceleration import AcceleratedSweeps
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviStart, CaviState, curvature_and_slope, update_phi
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.choose import Choice
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.interface import Solver
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver

# Reduced rows of more numbers than this are first swept in single precision; a sweep then takes a second or more.
_WORTH_ROUGH_SWEEPS = 2**23
# Information that the low-rank solver may give up, in nats; what it did give up is in the diagnostics.
_INFORMATION_TOLERANCE = 1e-3
_TINY = torch.finfo(torch.float64).tiny
# Rough sweeps have done their part when a sweep changes no block of parameters by more than this.
_ROUGH_CHANGE = 1e-4
Report = Callable[[int, float, float], None]


@dataclass(frozen=True)
class SweepSolver:
    """A solver that is made for a problem."""

    exact: Solver[Any]
    rank: int  # number of directions that it keeps
    rough: Solver[Any] | None = None  # a cheaper one for the first sweeps, where these are slow
    # From the curvatures at the points to the information that the directions left out would have had, in nats.
    lost_information: Callable[[Tensor], float] = lambda curvature: 0.0

    def report(self, choice: Choice, problem: PaperProblem, state: CaviState) -> SolverReport:
        """Return which solver was used, and what it lost by the last sweep."""
        curvature, _ = curvature_and_slope(problem, state.m, state.v, state.phi)
        return SolverReport(choice.solver, choice.reason, self.rank, self.lost_information(curvature))


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


@dataclass
class _Run:
    """The sweeps of one fit so far."""

    problem: PaperProblem
    linearised: Linearised
    exact: Solver[Any]
    rough: Solver[Any] | None
    tolerance: float
    max_sweeps: int
    report: Report
    reached: float = -math.inf
    trace: list[float] = field(default_factory=list)
    changes: list[float] = field(default_factory=list)
    rough_sweeps: int = 0
    converged: bool = False
    interrupted: bool = False

    @property
    def done(self) -> int:
        """Number of sweeps so far."""
        return len(self.trace) + self.rough_sweeps

    @property
    def goes_on(self) -> bool:
        """Whether there is a sweep to come."""
        return self.done < self.max_sweeps and not self.converged and not self.interrupted

    @property
    def solver(self) -> Solver[Any]:
        """The solver of the next sweep."""
        return self.rough or self.exact

    def sweep(self, state: CaviStart) -> tuple[CaviState, float]:
        """Return the state after a plain sweep, with its ELBO."""
        new = updates.sweep(self.problem, self.linearised, self.solver, state)
        return new, updates.elbo_of(self.problem, new)

    def accept(self, old: CaviStart, new: CaviState, bound: float) -> CaviState:
        """Record a sweep; where it ends those in single precision, return its state with exact moments."""
        if not math.isfinite(bound):
            raise NotFiniteError(f"the ELBO became {bound} in sweep {self.done + 1}; look for extreme covariates.")
        change = _relative_change(new, old, self.problem.points.weight)
        if self.rough is None:
            self.trace.append(bound)
            self.changes.append(change)
            self.converged = change < self.tolerance
        else:
            self.rough_sweeps += 1
            if change < _ROUGH_CHANGE or not bound > self.reached or self.rough_sweeps == self.max_sweeps - 1:
                self.rough = None
                mean, variance = self.exact.moments(new.theta)
                new = replace(new, m=self.linearised.offset + mean, v=variance)
                bound = updates.elbo_of(self.problem, new)
        self.reached = bound
        try:
            self.report(self.done, bound, change)
        except KeyboardInterrupt:
            self.interrupted = True
        return new

    def info(self, state: CaviState) -> CaviInfo:
        latent = state.phi.shape - self.problem.phi_prior.shape - self.problem.event_count
        trace, changes = tuple(self.trace), tuple(self.changes)
        return CaviInfo(trace, changes, self.converged, self.interrupted, latent, self.rough_sweeps)


def fit(
    problem: PaperProblem,
    linearised: Linearised,
    solver: Solver[Any],
    state: CaviStart,
    *,
    tolerance: float = 1e-6,
    max_sweeps: int = 1000,
    accelerate: bool = True,
    rough: Solver[Any] | None = None,
    report: Report = lambda sweep, elbo, change: None,
) -> tuple[CaviState, CaviInfo]:
    """Sweep until no block of parameters changes by more than `tolerance`, relative to its size: the rule of the paper.

    The blocks are the shape of q(phi), the mean of q(theta), and the variances of g at the points. With `accelerate`,
    sweeps start where the last ones seem to lead (:class:`AcceleratedSweeps`); the end is a fixed point of the sweeps
    either way, but where there are several it need not be the same one. The first sweeps use the cheaper, less exact
    algebra `rough` if there is one, until they change little or no longer gain; the others, and the ELBO that is
    reported, are the solver's own.
    """
    run = _Run(problem, linearised, solver, rough, tolerance, max_sweeps, report)
    accelerated = AcceleratedSweeps(problem, linearised)
    # An interrupt of the first sweep is passed on.
    current = run.accept(state, *run.sweep(state))
    while run.goes_on:
        try:
            found = accelerated(run.solver, current, run.reached) if accelerate else None
            found = found or run.sweep(current)
        except KeyboardInterrupt:
            # The state of the last finished sweep is a posterior like any other, only not the final one.
            run.interrupted = True
            break
        current = run.accept(current, *found)
    return current, run.info(current)
