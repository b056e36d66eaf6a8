r"""The Krylov solver: products with J and its transpose only, for P and m both too large to hold a matrix.

In whitened weights the precision is :math:`S = I + H`, :math:`H = A^\top\kappa A`, :math:`A = JT^{-1/2}`. Systems
with S are solved by block conjugate gradients. The preconditioner is :math:`C = I + BB^\top \le S`, where
:math:`B = A^\top\kappa^{1/2}U` with orthonormal U (Nyström): it can only help.

Errors are known because of that order. If d solves Sd = u up to the residual r, the variance :math:`u^\top S^{-1}u`
lies between :math:`x = d^\top(u + r)` and :math:`x + r^\top C^{-1}r`. If directions Q leave out the information
:math:`\ell = \mathrm{tr}\,H - \mathrm{tr}\,Q^\top HQ`, the log-determinant lies between that of :math:`I + Q^\top HQ`
and this plus :math:`\ell`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError
from neuralsurv.model.rows import BLOCK_NUMBERS, Rows
from neuralsurv.solvers.conjugate_gradients import Solution, block_conjugate_gradients
from neuralsurv.solvers.dual import times_each, transposed_times_each
from neuralsurv.solvers.krylov_gaussian import KrylovGaussian
from neuralsurv.solvers.lanczos import Directions
from neuralsurv.solvers.primal import cholesky

# Orthonormal directions are held for the log-determinant and for `compact` up to this many numbers (1 GiB).
_MOST_NUMBERS_OF_DIRECTIONS = 2**27
_SUBSPACE_ITERATIONS = 2
_MOST_CORRECTIONS = 3
# Squared relative error of a solution beyond which rounding has spoilt it.
_WORST_ROUNDING = 1e-12


@dataclass(frozen=True)
class KrylovSolver:
    """Solves by conjugate gradients, with products of J and its transpose with blocks of vectors.

    Parameters
    ----------
    rows : Rows of shape (P, m)
        Rows of the linearised network.
    precision : Tensor of shape (m,)
        Diagonal of the prior precision.
    tolerance : float
        Relative error of the mean and of draws (in the norm of the posterior precision), relative error of variances,
        and information in nats that the divergence may miss.
    block : int, optional
        Number of systems that are solved together; by default as many as keep a block at 128 MiB, at most 128.
    rank : int
        Number of leading directions in the preconditioner.
    max_iterations : int
        Largest number of iterations of conjugate gradients.
    most_directions : int, optional
        Largest number of directions for the divergence, beyond which it is estimated with random probes, and for
        `KrylovGaussian.compact`; by default as many as fit into 1 GiB.
    importance : Tensor of shape (P,), optional
        About the curvatures that are to come, for the preconditioner; ones if not given.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.krylov import KrylovSolver
    >>> from neuralsurv.model.rows import DenseRows
    >>> rows = torch.ones(4, 1, dtype=torch.float64)
    >>> ones = torch.ones(4, dtype=torch.float64)
    >>> gaussian = KrylovSolver(DenseRows(rows), torch.ones(1, dtype=torch.float64)).solve(curvature=ones, slope=ones)
    >>> round(float(gaussian.mean), 3), round(float(gaussian.variance(rows[:1])), 3)
    (0.8, 0.2)
    """

    rows: Rows
    precision: Tensor
    tolerance: float = 1e-10
    block: int | None = None
    rank: int = 32
    max_iterations: int = 1000
    most_directions: int | None = None
    importance: Tensor | None = None

    @property
    def block_size(self) -> int:
        """Number of systems that are solved together."""
        return self.block or max(1, min(128, BLOCK_NUMBERS // sum(self.rows.shape)))

    @property
    def room_for_directions(self) -> int:
        """Largest number of directions."""
        return self.most_directions or _MOST_NUMBERS_OF_DIRECTIONS // self.rows.shape[1]

    @cached_property
    def leading(self) -> Tensor:
        """Whitened rows in their leading directions, shape (P, rank), by subspace iteration from a fixed start."""
        points, size = self.rows.shape
        weight = self.precision.new_ones(points) if self.importance is None else self.importance
        generator = torch.Generator().manual_seed(0)
        rank = min(self.rank, points, size)
        sample = torch.randn(size, rank, generator=generator, dtype=self.precision.dtype)
        for _ in range(_SUBSPACE_ITERATIONS):
            sample = torch.linalg.qr(self.information(weight, sample)[0])[0]
        return times_each(self.rows, sample / self.precision.sqrt()[:, None])

    def precondition(self, curvature: Tensor, reduced: Tensor) -> Directions:
        """Return C, with U an orthonormal basis of κ^½·reduced; any U gives I ≤ C ≤ S."""
        scale = curvature.sqrt()[:, None]
        sample = torch.linalg.qr(scale * reduced)[0]
        image = transposed_times_each(self.rows, scale * sample) / self.precision.sqrt()[:, None]
        basis, triangle = torch.linalg.qr(image)
        factor = cholesky(torch.eye(len(triangle), dtype=image.dtype) + triangle @ triangle.T)
        left = self.total_information(curvature) - float(image.square().sum())
        return Directions(basis, factor, left, complete=left <= self.tolerance)

    def total_information(self, curvature: Tensor) -> float:
        """Return tr H."""
        return float(curvature @ self.prior_variance)

    @cached_property
    def prior_variance(self) -> Tensor:
        """Prior variance of J·theta at the own rows, shape (P,)."""
        return self.rows.squared_norms(1 / self.precision)

    def information(self, curvature: Tensor, vectors: Tensor) -> tuple[Tensor, Tensor]:
        """Return H·vectors, shape (m, s), and κ^½A·vectors, shape (P, s)."""
        root, scale = self.precision.sqrt()[:, None], curvature.sqrt()[:, None]
        seen = scale * times_each(self.rows, vectors / root)
        return transposed_times_each(self.rows, scale * seen) / root, seen

    def preconditioned(self, curvature: Tensor, directions: Directions, vectors: Tensor) -> Tensor:
        """Return W⁻¹SW⁻ᵀ·vectors."""
        unwhitened = directions.unwhiten(vectors)
        return directions.whiten(unwhitened + self.information(curvature, unwhitened)[0])

    def solve_system(self, curvature: Tensor, directions: Directions, right: Tensor, goal: float) -> Solution:
        """Solve S d = u for the columns of `right`, shape (m, s), until each rᵀC⁻¹r is at most goal·dᵀSd."""
        solution, left, energy, total = torch.zeros_like(right), right, right.new_zeros(right.shape[1]), 0
        for _ in range(_MOST_CORRECTIONS):
            correction, iterations = block_conjugate_gradients(
                lambda vectors: self.preconditioned(curvature, directions, vectors),
                directions.whiten(left),
                goal,
                self.max_iterations,
                energy,
            )
            solution, total = solution + directions.unwhiten(correction), total + iterations
            image, seen = self.information(curvature, solution)
            # Rounding makes the residual that the iteration carries along drift from the true one.
            left = right - solution - image
            energy = (solution * right).sum(0)
            error = directions.whiten(left).square().sum(0)
            if bool((error <= goal * energy).all()):
                break
        # What corrections cannot mend is rounding. A little of it is no harm, and the result says how much there is.
        if bool((error > max(100 * goal, _WORST_ROUNDING) * energy).any()):
            share = float((error / energy.clamp_min(torch.finfo(right.dtype).tiny)).max().sqrt())
            raise NotConvergedError(
                f"rounding keeps the residual of conjugate gradients at {share:.3g} of the solution, {goal**0.5:.3g} "
                "is asked for: the curvatures are too large for so small a preconditioner; raise rank."
            )
        return Solution(solution, left, error, seen, total)

    def solve(self, curvature: Tensor, slope: Tensor) -> KrylovGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        root = self.precision.sqrt()
        directions = self.precondition(curvature, self.leading)
        right = (self.rows.transposed_times(slope) / root)[:, None]
        solved = self.solve_system(curvature, directions, right, self.tolerance**2)
        energy = float((solved.solution * right).sum())
        residual = (float(solved.error) / energy) ** 0.5 if energy > 0 else 0.0
        mean = solved.solution.squeeze(1) / root
        return KrylovGaussian(self, curvature, directions, mean, solved.iterations, residual)

    def moments(self, gaussian: KrylovGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows."""
        return gaussian.own.mean, gaussian.own.variance

    def chart(self, gaussian: KrylovGaussian) -> None:
        """Return None: coordinates with a factorised precision are what this solver does without."""
        return None
