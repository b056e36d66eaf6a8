"""The Gaussian of the Krylov solver: its moments, draws and divergence are solved for when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError
from neuralsurv.solvers.conjugate_gradients import Solution
from neuralsurv.solvers.dual import times_each, transposed_times_each
from neuralsurv.solvers.lanczos import Directions, LogDeterminant, complement, stochastic_log_determinant
from neuralsurv.solvers.primal import cholesky
from neuralsurv.solvers.subspace import SubspaceGaussian

if TYPE_CHECKING:
    from neuralsurv.solvers.krylov import KrylovSolver


@dataclass(frozen=True)
class OwnMoments:
    """Moments of J·theta at the own rows.

    Attributes
    ----------
    mean, variance : Tensor of shape (P,)
        The moments.
    error : Tensor of shape (P,)
        Each true variance is at least `variance` and at most `variance + error`, but for rounding.
    iterations : int
        Iterations of conjugate gradients, over all blocks of points.
    """

    mean: Tensor
    variance: Tensor
    error: Tensor
    iterations: int


@dataclass(frozen=True)
class KrylovGaussian:
    """A Gaussian held by its mean; everything else is solved for when it is asked for.

    Attributes
    ----------
    solver : KrylovSolver
        Rows, prior and settings.
    curvature : Tensor of shape (P,)
        κ.
    preconditioner : Directions
        C.
    mean : Tensor of shape (m,)
        The mean.
    iterations : int
        Iterations of conjugate gradients that the mean took.
    residual : float
        Bound on the relative error of the mean in the norm of S, from the residual recomputed at the end.
    """

    solver: KrylovSolver
    curvature: Tensor
    preconditioner: Directions
    mean: Tensor
    iterations: int
    residual: float

    def _solve(self, rows: Tensor, goal: float) -> Solution:
        """Solve for the whitened rows (Q, m) in blocks."""
        whitened = (rows / self.solver.precision.sqrt()).T
        parts = [
            self.solver.solve_system(self.curvature, self.preconditioner, block, goal)
            for block in torch.split(whitened, self.solver.block_size, 1)
        ]
        return Solution(
            torch.cat([part.solution for part in parts], 1),
            torch.cat([part.left for part in parts], 1),
            torch.cat([part.error for part in parts]),
            torch.cat([part.seen for part in parts], 1),
            sum(part.iterations for part in parts),
        )

    @cached_property
    def own(self) -> OwnMoments:
        """Moments at the solver's own rows: one solve a point, in blocks of points."""
        rows, block = self.solver.rows, self.solver.block_size
        variance, error = torch.empty_like(self.curvature), torch.empty_like(self.curvature)
        iterations = 0
        for first in range(0, len(variance), block):
            part = slice(first, min(first + block, len(variance)))
            solved = self._solve(rows.take(part).dense(), self.solver.tolerance)
            variance[part], error[part] = solved.squares(), solved.error
            iterations += solved.iterations
        return OwnMoments(rows.times(self.mean), variance, error, iterations)

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of each ``rows @ theta``."""
        blocks = [block for block in torch.split(rows, self.solver.block_size) if len(block)]
        parts = [self._solve(block, self.solver.tolerance).squares() for block in blocks]
        return torch.cat(parts) if parts else rows.new_zeros(0)

    def covariance(self, rows: Tensor, others: Tensor) -> Tensor:
        """Return the covariance of ``rows @ theta`` with ``others @ theta``."""
        if not len(rows) or not len(others):
            return rows.new_zeros(len(rows), len(others))
        one, other = (self._solve(part, self.solver.tolerance) for part in (rows, others))
        inside = one.solution.T @ (other.solution + other.left) + one.left.T @ other.solution
        return inside + one.seen.T @ other.seen

    def _grow(self, tolerance: float) -> Directions:
        """Add blocks of Lanczos vectors to the leading directions until no more than the tolerance is left out."""
        solver, generator = self.solver, torch.Generator().manual_seed(0)
        most = max(1, min(len(self.mean), solver.room_for_directions))
        total = solver.total_information(self.curvature)
        rounding = 10 * torch.finfo(self.mean.dtype).eps * total
        start = torch.cat([(self.mean * solver.precision.sqrt())[:, None], self.preconditioner.basis], 1)[:, :most]
        basis, inner = start[:, :0], start.new_zeros(0, 0)
        fresh = complement(start, basis, generator)
        while True:
            basis = torch.cat([basis, fresh], 1)
            image, _ = solver.information(self.curvature, fresh)
            column = basis.T @ image
            inner = torch.cat([torch.cat([inner, column[: len(inner)]], 1), column.T])
            left = max(rounding, total - float(inner.diagonal().sum()))
            complete = left <= tolerance + rounding or basis.shape[1] == len(self.mean)
            if complete or basis.shape[1] == most:
                factor = cholesky(torch.eye(len(inner), dtype=inner.dtype) + (inner + inner.T) / 2)
                return Directions(basis, factor.contiguous(), left, complete)
            fresh = complement(image[:, : most - basis.shape[1]], basis, generator)

    @cached_property
    def directions(self) -> Directions:
        """Directions that hold the mean and all information but the tolerance, or as many as there is room for."""
        return self._grow(self.solver.tolerance)

    @cached_property
    def log_determinant(self) -> LogDeterminant:
        """Log-determinant of S, with its error; that of T + JᵀκJ is log det T more."""
        directions, solver = self.directions, self.solver
        inside = 2 * float(directions.factor.diagonal().log().sum())
        if directions.complete:
            return LogDeterminant(inside, directions.left, 0.0)
        close = solver.precondition(
            self.curvature, times_each(solver.rows, directions.basis / solver.precision.sqrt()[:, None])
        )
        inside = 2 * float(close.factor.diagonal().log().sum())
        # The same probes in every sweep, so that their error does not make an ELBO go up and down.
        outside, error = stochastic_log_determinant(
            lambda vectors: solver.preconditioned(self.curvature, close, vectors),
            len(self.mean),
            torch.Generator().manual_seed(0),
        )
        return LogDeterminant(inside + outside, 0.0, error)

    def divergence(self, precision: Tensor) -> float:
        """Return KL(N(μ, Σ) ‖ N(0, diag(precision)⁻¹)), with half the error of `log_determinant`."""
        if self.directions.complete:
            return self._compacted(self.directions).divergence(precision)
        ratio = precision / self.solver.precision
        if bool((ratio == 1).all()):
            trace = -float(self.curvature @ self.own.variance)
        else:
            trace = float((ratio - 1).sum())
            for first in range(0, len(self.curvature), self.solver.block_size):
                part = slice(first, first + self.solver.block_size)
                rows = self.solver.rows.take(part).dense()
                solved = self._solve(rows, self.solver.tolerance**2).solution
                weighted = (rows * (ratio / self.solver.precision.sqrt())).T * solved
                trace -= float(self.curvature[part] @ weighted.sum(0))
        square = float((precision * self.mean**2).sum())
        return 0.5 * (trace + square + self.log_determinant.value - float(ratio.log().sum()))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of theta: the mean plus S⁻¹(ε + Aᵀκ^½ε'), which has exactly the covariance S⁻¹."""
        solver, root = self.solver, self.solver.precision.sqrt()
        draws = torch.randn(count, len(root), generator=generator, dtype=root.dtype)
        noise = torch.randn(count, len(self.curvature), generator=generator, dtype=root.dtype)
        noise *= self.curvature.sqrt()
        for first in range(0, count, solver.block_size):
            part = slice(first, first + solver.block_size)
            right = draws[part].T + transposed_times_each(solver.rows, noise[part].T) / root[:, None]
            solved = solver.solve_system(self.curvature, self.preconditioner, right, solver.tolerance**2)
            draws[part] = solved.solution.T / root + self.mean
        return draws

    def _compacted(self, directions: Directions) -> SubspaceGaussian:
        precision, basis = self.solver.precision, directions.basis
        return SubspaceGaussian(precision, basis, basis.T @ (precision.sqrt() * self.mean), directions.factor)

    def compact(self, tolerance: float | None = None) -> SubspaceGaussian:
        """Return the law without the rows, in the subspace of its Lanczos vectors.

        Parameters
        ----------
        tolerance : float, optional
            Information, in nats, that may be left out; the solver's tolerance if not given. The mean is exact.
        """
        directions = self.directions if tolerance is None else self._grow(tolerance)
        if not directions.complete:
            raise NotConvergedError(
                f"{directions.basis.shape[1]} directions leave out {directions.left:.3g} nats of information; "
                "raise most_directions or the tolerance."
            )
        return self._compacted(directions)
