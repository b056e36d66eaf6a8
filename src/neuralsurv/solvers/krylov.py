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

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.errors import NotConvergedError, NotFiniteError
from neuralsurv.model.rows import BLOCK_NUMBERS, Rows
from neuralsurv.solvers.dual import times_each, transposed_times_each
from neuralsurv.solvers.primal import cholesky
from neuralsurv.solvers.subspace import SubspaceGaussian

# Orthonormal directions are held for the log-determinant and for `compact` up to this many numbers (1 GiB).
_MOST_NUMBERS_OF_DIRECTIONS = 2**27
_PROBES = 32
_SUBSPACE_ITERATIONS = 2
_MOST_CORRECTIONS = 3
# Squared relative error of a solution beyond which rounding has spoilt it.
_WORST_ROUNDING = 1e-12
_MOST_LANCZOS_STEPS = 200


def block_conjugate_gradients(
    apply: Callable[[Tensor], Tensor], right: Tensor, goal: float, most: int, energy: Tensor | float = 0.0
) -> tuple[Tensor, int]:
    """Solve K X = B for all columns of B at once, in the Krylov space that they share.

    The residuals are kept as Q C with orthonormal Q (Dubrulle 2001), so that columns may depend on each other.

    Parameters
    ----------
    apply : callable
        Product with K, symmetric and positive definite, of shape (m, m).
    right : Tensor of shape (m, s)
        B.
    goal : float
        Stop when every squared residual is at most this share of xᵀKx.
    most : int
        Largest number of iterations.
    energy : Tensor of shape (s,) or float
        What xᵀKx has already where B is what an earlier solution left.

    Returns
    -------
    Tensor of shape (m, s)
        X.
    int
        Number of iterations: products with K, each for at most s columns.
    """
    if not bool(torch.isfinite(right).all()):
        raise NotFiniteError("the right-hand side of a linear system holds NaN or infinite values; look at the slopes.")
    solution = torch.zeros_like(right)
    basis, coordinates = torch.linalg.qr(right)
    search = basis
    for iteration in range(most + 1):
        residual = coordinates.square().sum(0)
        reached = energy + (solution * right).sum(0)
        if bool((residual <= goal * reached).all()):
            return solution, iteration
        if iteration == most:
            break
        image = apply(search)
        factor = cholesky(search.T @ image)
        solution += search @ torch.cholesky_solve(coordinates, factor)
        basis, triangle = torch.linalg.qr(basis - torch.cholesky_solve(image.T, factor).T)
        search = basis + search @ triangle.T
        coordinates = triangle @ coordinates
    share = float((residual / reached.clamp_min(torch.finfo(right.dtype).tiny)).max().sqrt())
    raise NotConvergedError(
        f"conjugate gradients did not converge in {most} iterations: the largest residual is {share:.3g} of its "
        f"solution, {goal**0.5:.3g} is asked for; raise max_iterations or rank, or loosen tolerance."
    )


def _complement(candidates: Tensor, basis: Tensor, generator: torch.Generator) -> Tensor:
    """Return orthonormal columns across the basis, in the span of the candidates as far as these reach."""
    columns = candidates
    for attempt in range(8):
        columns, triangle = torch.linalg.qr(torch.addmm(columns, basis, basis.T @ columns, alpha=-1))
        length = triangle.diagonal().abs()
        # The first pass takes out the basis, a later one says whether rounding had left some of it.
        if attempt > 0 and bool((length > 0.5).all()):
            break
        if attempt > 0 and bool((length < 1e-12).any()):
            # A candidate in the span of the others leaves room for any direction.
            lost = length < 1e-12
            noise = torch.randn(len(columns), int(lost.sum()), generator=generator, dtype=columns.dtype)
            columns[:, lost] = noise / len(columns) ** 0.5
    return columns


@dataclass(frozen=True)
class Directions:
    """An orthonormal basis Q, a precision in it, and the information that is left out.

    Attributes
    ----------
    basis : Tensor of shape (m, k)
        Q.
    factor : Tensor of shape (k, k)
        Lower Cholesky factor of the precision in the basis; across it the precision is I.
    left : float
        What is missing from tr H, in nats.
    complete : bool
        Whether that is no more than was allowed, but for rounding.
    """

    basis: Tensor
    factor: Tensor
    left: float
    complete: bool

    def whiten(self, vectors: Tensor) -> Tensor:
        """Return W⁻¹·vectors, where W Wᵀ is the precision."""
        inside = self.basis.T @ vectors
        solved = torch.linalg.solve_triangular(self.factor, inside, upper=False)
        return torch.addmm(vectors, self.basis, solved - inside)

    def unwhiten(self, vectors: Tensor) -> Tensor:
        """Return W⁻ᵀ·vectors."""
        inside = self.basis.T @ vectors
        solved = torch.linalg.solve_triangular(self.factor.T, inside, upper=True)
        return torch.addmm(vectors, self.basis, solved - inside)


@dataclass(frozen=True)
class LogDeterminant:
    """Log-determinant of S, with its error.

    Attributes
    ----------
    value : float
        The log-determinant.
    bound : float
        Where the directions suffice, the truth lies between `value` and `value + bound`; else 0.
    standard_error : float
        Where they do not, the standard error of the random probes; else 0.
    """

    value: float
    bound: float
    standard_error: float


def stochastic_log_determinant(
    apply: Callable[[Tensor], Tensor], size: int, generator: torch.Generator
) -> tuple[float, float]:
    """Estimate log det K by Lanczos quadrature of random probes; return it with its standard error.

    The nearer K is to a diagonal matrix, the smaller the error; for a diagonal one there is none.
    """
    signs = torch.randint(0, 2, (size, _PROBES), generator=generator).to(torch.float64) * 2 - 1
    current, previous = signs / size**0.5, torch.zeros_like(signs)
    diagonal: list[Tensor] = []
    beside: list[Tensor] = []
    values = signs.new_zeros(_PROBES)
    for step in range(min(size, _MOST_LANCZOS_STEPS)):
        image = apply(current)
        diagonal.append((image * current).sum(0))
        image = image - diagonal[-1] * current - (beside[-1] * previous if beside else 0)
        matrix = torch.diag_embed(torch.stack(diagonal, 1))
        if beside:
            off = torch.diag_embed(torch.stack(beside, 1), 1)
            matrix = matrix + off + off.transpose(1, 2)
        nodes, vectors = torch.linalg.eigh(matrix)
        # A probe whose Krylov space is exhausted goes on with nodes of no weight, which may be anything.
        logarithms = nodes.clamp_min(torch.finfo(nodes.dtype).tiny).log()
        before, values = values, size * (vectors[:, 0, :].square() * logarithms).sum(1)
        beside.append(image.square().sum(0).sqrt())
        still = (values - before).abs() <= 1e-8 * (1 + values.abs())
        if step > 0 and bool((still | (beside[-1] < 1e-12)).all()):
            break
        previous, current = current, image / beside[-1].clamp_min(torch.finfo(image.dtype).tiny)
    return float(values.mean()), float(values.std()) / _PROBES**0.5


@dataclass(frozen=True)
class Solution:
    """Solutions d of S d = u − r for the columns u, shape (m, s).

    Attributes
    ----------
    solution, left : Tensor of shape (m, s)
        d and the true residual r.
    error : Tensor of shape (s,)
        rᵀC⁻¹r, at least the squared error of d in the norm of S.
    seen : Tensor of shape (P, s)
        κ^½A d.
    iterations : int
        Iterations of conjugate gradients.
    """

    solution: Tensor
    left: Tensor
    error: Tensor
    seen: Tensor
    iterations: int

    def squares(self) -> Tensor:
        """Return dᵀ(u + r) = dᵀSd + 2dᵀr, the lower end of uᵀS⁻¹u."""
        return (self.solution * (self.solution + 2 * self.left)).sum(0) + self.seen.square().sum(0)


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
        fresh = _complement(start, basis, generator)
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
            fresh = _complement(image[:, : most - basis.shape[1]], basis, generator)

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
