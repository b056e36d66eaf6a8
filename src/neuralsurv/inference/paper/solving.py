"""The solver of the sweeps: made by name for a problem, with a cheaper one for the first sweeps and its report."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.updates import CaviStart, CaviState, curvature_and_slope, update_phi
from neuralsurv.model.linearise import Linearised
from neuralsurv.solvers.choose import Choice
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.interface import Solver
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver

# Reduced rows of more numbers than this are first swept in single precision; a sweep then takes a second or more.
_WORTH_ROUGH_SWEEPS = 2**23
# Information that the low-rank solver may give up, in nats; what it did give up is in the diagnostics.
_INFORMATION_TOLERANCE = 1e-3


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
