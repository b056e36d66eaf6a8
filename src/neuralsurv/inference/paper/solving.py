"""From the name of a solver to one that is made for a problem, and what there is to know of it in the end."""

from __future__ import annotations

from typing import Any

from neuralsurv.inference.linearised_fit import SolverReport
from neuralsurv.inference.paper import cavi
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.linearise import Linearised
from neuralsurv.solvers.choose import Choice
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.interface import Solver
from neuralsurv.solvers.lowrank import LowRankSolver, low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver

# Reduced rows of more numbers than this are first swept in single precision; a sweep then takes a second or more.
_WORTH_ROUGH_SWEEPS = 2**23
# Information that the low-rank solver may give up, in nats; what it did give up is in the diagnostics.
_INFORMATION_TOLERANCE = 1e-3


def make_solver(name: str, problem: PaperProblem, linearised: Linearised, state: cavi.CaviState) -> Solver[Any]:
    """Return a solver by name, made for the linearised points and the curvatures that `state` leads to."""
    rows, precision = linearised.rows, problem.weight_prior.precision
    if name == "primal":
        return PrimalSolver(rows, precision)
    if name == "dual":
        return DualSolver(rows, precision)
    importance, _ = cavi.curvature_and_slope(problem, state.m, state.v, cavi.update_phi(problem, state.m, state.v))
    return low_rank_solver(rows, precision, importance, tolerance=_INFORMATION_TOLERANCE)


def rough_solver(solver: Solver[Any], settings: PaperSettings) -> Solver[Any] | None:
    """Return a cheaper solver for the first sweeps of a large problem, where shortcuts are wanted."""
    if not settings.accelerate or not isinstance(solver, LowRankSolver) or solver.reduced.numel() < _WORTH_ROUGH_SWEEPS:
        return None
    return solver.rough()


def report_solver(choice: Choice, solver: Solver[Any], problem: PaperProblem, state: cavi.CaviState) -> SolverReport:
    """Return what there is to know of the solver after the last sweep."""
    if not isinstance(solver, LowRankSolver):
        return SolverReport(choice.solver, choice.reason, problem.network.size, 0.0)
    curvature, _ = cavi.curvature_and_slope(problem, state.m, state.v, state.phi)
    return SolverReport(choice.solver, choice.reason, solver.rank, solver.lost_information(curvature))
