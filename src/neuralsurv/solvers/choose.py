"""Which solver to use: a small model of what each costs, in floating-point operations and in memory."""

from __future__ import annotations

from dataclasses import dataclass

from neuralsurv.solvers.lowrank import MOST_FOR_EIGENVECTORS

SOLVERS = ("primal", "dual", "low-rank")

# Sweeps of a typical fit, and directions that carry information in a typical network on a typical cohort: both only
# steer the choice, and both were read off fits of the benchmark cohorts.
_TYPICAL_SWEEPS = 25
_TYPICAL_RANK = 300
# Up to this many weights the plain solver takes milliseconds, and it is exact.
_SMALL = 64
_BYTES = 8


@dataclass(frozen=True)
class Cost:
    """What a solver would take."""

    solver: str
    operations: float  # floating-point operations of a whole fit
    memory: float  # bytes held at once

    def __str__(self) -> str:
        """Return the cost as text."""
        return f"{self.solver} {self.operations:.1e} operations, {self.memory / 2**20:.0f} MiB"


@dataclass(frozen=True)
class Choice:
    """The solver that was chosen, and why."""

    solver: str
    reason: str


def costs(points: int, weights: int) -> list[Cost]:
    """Return the cost of each solver for P points and m weights."""
    p, m, sweeps = float(points), float(weights), _TYPICAL_SWEEPS
    rank = min(p, m, _TYPICAL_RANK)
    # The basis comes from eigenvectors of the smaller Gram matrix where that is small, else from pivots.
    small = min(p, m)
    eigenvectors = small <= MOST_FOR_EIGENVECTORS
    basis = 2 * p * m * small + 10 * small**3 if eigenvectors else 2 * p * rank * (rank + 50) + 2 * m * rank**2
    matrix = 3 * small**2 if eigenvectors else 0.0
    return [
        Cost("primal", sweeps * (3 * p * m**2 + m**3), _BYTES * 3 * m**2),
        Cost("dual", p**2 * m**0.5 + sweeps * 3 * p**3, _BYTES * 4 * p**2),
        Cost("low-rank", basis + sweeps * 4 * p * rank**2, _BYTES * (2 * p * rank + 2 * m * rank + matrix)),
    ]


def choose(points: int, weights: int, memory: float) -> Choice:
    """Return the cheapest solver that fits into `memory` bytes.

    Examples
    --------
    >>> from neuralsurv.solvers.choose import choose
    >>> choose(points=8000, weights=561, memory=2**32).solver
    'low-rank'
    >>> choose(points=8000, weights=20, memory=2**32).solver
    'primal'
    """
    found = costs(points, weights)
    if weights <= _SMALL:
        return Choice("primal", f"{weights} weights are few enough for the plain solver")
    fitting = [cost for cost in found if cost.memory <= memory]
    if not fitting:
        leanest = min(found, key=lambda cost: cost.memory)
        return Choice(leanest.solver, f"no solver fits into {memory / 2**30:.1f} GiB; the leanest is {leanest}")
    best = min(fitting, key=lambda cost: cost.operations)
    others = "; ".join(str(cost) for cost in found if cost is not best)
    return Choice(best.solver, f"cheapest for {points} points and {weights} weights: {best} (others: {others})")
