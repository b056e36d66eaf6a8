"""From the name of a solver to one that is made for a problem, and what there is to know of it in the end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from neuralsurv.inference.choices import PaperChoices
from neuralsurv.inference.paper import cavi
from neuralsurv.model.likelihood import Problem
from neuralsurv.model.linearise import Linearised
from neuralsurv.solvers.choose import Choice
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.interface import Solver
from neuralsurv.solvers.lowrank import LowRankSolver, low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.sampled import sampled_solver
from neuralsurv.solvers.streamed_rows import StreamedRows

# Reduced rows of more numbers than this are first swept in single precision; a sweep then takes a second or more.
_WORTH_ROUGH_SWEEPS = 2**23
# Information that the low-rank solver may give up, in nats; what it did give up is in the diagnostics.
_INFORMATION_TOLERANCE = 1e-3
# Directions of a network whose rows cannot be held: together at most so many numbers (1 GiB).
MOST_NUMBERS_OF_DIRECTIONS = 2**27


@dataclass(frozen=True)
class SolverReport:
    """Which solver was used.

    Attributes
    ----------
    name, reason : str
        The solver, and why it was chosen.
    rank : int
        Number of directions that it kept; all m weights if it cuts nothing off.
    lost_information : float
        Σ κ‖R‖² at the end, in nats: what the directions that were cut off would have told.
    """

    name: str
    reason: str
    rank: int
    lost_information: float


def make_solver(name: str, problem: Problem, linearised: Linearised, state: cavi.CaviState) -> Solver[Any]:
    """Return a solver by name, made for the linearised points and the curvatures that `state` leads to."""
    rows, precision = linearised.rows, problem.weight_prior.precision
    if name == "primal":
        return PrimalSolver(rows, precision)
    if name == "dual":
        return DualSolver(rows, precision)
    importance, _ = cavi.curvature_and_slope(problem, state.m, state.v, cavi.update_phi(problem, state.m, state.v))
    if isinstance(rows, StreamedRows):
        return sampled_solver(rows, precision, importance, max(1, MOST_NUMBERS_OF_DIRECTIONS // len(precision)))
    return low_rank_solver(rows, precision, importance, tolerance=_INFORMATION_TOLERANCE)


def rough_solver(solver: Solver[Any], choices: PaperChoices) -> Solver[Any] | None:
    """Return a cheaper solver for the first sweeps of a large problem, where shortcuts are wanted."""
    if not choices.accelerate or not isinstance(solver, LowRankSolver) or solver.reduced.numel() < _WORTH_ROUGH_SWEEPS:
        return None
    return solver.rough()


def report_solver(choice: Choice, solver: Solver[Any], problem: Problem, state: cavi.CaviState) -> SolverReport:
    """Return what there is to know of the solver after the last sweep."""
    if not isinstance(solver, LowRankSolver):
        return SolverReport(choice.solver, choice.reason, problem.network.size, 0.0)
    curvature, _ = cavi.curvature_and_slope(problem, state.m, state.v, state.phi)
    return SolverReport(choice.solver, choice.reason, solver.rank, solver.lost_information(curvature))
