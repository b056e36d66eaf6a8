r"""The low-rank solver: J is fixed during the sweeps, and few directions of it carry information.

The whitened rows :math:`A = JT^{-1/2}` are reduced once to :math:`A \approx ZV^\top`, with V (m×r) orthonormal. Then
every solve costs O(P r²), whatever m is. What is cut off, :math:`R = A - ZV^\top`, keeps its prior: its variance
:math:`\lVert R_p\rVert^2` stays in the variance of every point, and the information that is given up,
:math:`\sum_p \kappa_p\lVert R_p\rVert^2`, is known and reported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralsurv.solvers.interface import Coordinates
from neuralsurv.solvers.primal import cholesky, eigenvectors, solved
from neuralsurv.solvers.rows import DenseRows, Rows, row_slices
from neuralsurv.solvers.subspace import SubspaceGaussian
from neuralsurv.solvers.triangles import add_weighted_gram, mirrored, squared_lengths

# Where there are no more weights, or no more points, than this the basis comes from the eigenvectors of their Gram
# matrix; else from a pivoted Cholesky factorisation, which only looks at as many columns of it as the rank.
MOST_FOR_EIGENVECTORS = 3000
# An eighth of the weights are few directions. Whether they are enough is tried with this many points a weight: with
# fewer the eigenvectors are cheap as well, with more the data inform most directions.
_MANY_TIMES_FEW = 8
_FEWEST_POINTS, _MOST_POINTS = 4, 32
# Rows of up to this many numbers (2 GiB) are formed as a matrix for the eigenvectors.
_MOST_NUMBERS_DENSE = 2**28
# Directions of less than this share of the largest variance are rounding, and would not come out orthonormal.
_LEAST_SHARE = 1e-9


@dataclass(frozen=True)
class LowRankSolver:
    """Solves in the subspace that carries the information.

    Made by `low_rank_solver`.
    """

    precision: Tensor  # diagonal of the prior precision, shape (m,)
    basis: Tensor  # V, orthonormal, shape (m, r)
    reduced: Tensor  # Z, the whitened rows in that basis, shape (P, r)
    remainder: Tensor  # prior variance of each point across the basis, shape (P,)

    @property
    def rank(self) -> int:
        """Number of directions that are kept."""
        return self.basis.shape[1]

    def rough(self) -> LowRankSolver:
        """Return a solver with Z in single precision, at less than half the cost.

        Its Gaussians differ by about 1e-6 of their size: enough to come near a fixed point, not to end at it.
        """
        return replace(self, reduced=self.reduced.to(torch.float32))

    def lost_information(self, curvature: Tensor) -> float:
        """Return Σ κ‖R‖²: twice a bound, in nats, on what the cut costs the ELBO at these curvatures."""
        return float(curvature @ self.remainder)

    def solve(self, curvature: Tensor, slope: Tensor) -> SubspaceGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        matrix = torch.eye(self.rank, dtype=self.precision.dtype)
        add_weighted_gram(matrix, self.reduced, curvature)
        factor = cholesky(mirrored(matrix)).contiguous()
        mean = torch.cholesky_solve(DenseRows(self.reduced).transposed_times(slope)[:, None], factor).squeeze(1)
        return SubspaceGaussian(self.precision, self.basis, mean, factor)

    def moments(self, gaussian: SubspaceGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows."""
        variance = self.remainder + squared_lengths(self.reduced, gaussian.inverse_factor)
        return DenseRows(self.reduced).times(gaussian.inner_mean), variance

    def moved(self, gaussian: SubspaceGaussian, slope: Tensor) -> SubspaceGaussian:
        """Return the Gaussian after a Newton step of its mean, where the points have these slopes (P,)."""
        left = DenseRows(self.reduced).transposed_times(slope) - gaussian.inner_mean
        return replace(gaussian, inner_mean=gaussian.inner_mean + solved(gaussian.inner_factor, left))

    def thinned(self, curvature: Tensor, tolerance: float) -> LowRankSolver:
        """Return the solver itself, whose directions were chosen for the information that they carry."""
        return self

    def coordinates(self, gaussian: SubspaceGaussian) -> Coordinates:
        """Return the coordinates of the subspace."""
        ones = self.precision.new_ones(self.rank)
        return Coordinates(DenseRows(self.reduced), ones, gaussian.inner_factor, gaussian.inner_mean)


def _reduce(rows: Rows, precision: Tensor, basis: Tensor) -> LowRankSolver:
    """Return the solver of a basis: the rows in it, and what lies across it."""
    reduced = rows.times_basis(basis / precision.sqrt()[:, None])
    remainder = (rows.squared_norms(1 / precision) - reduced.square().sum(1)).clamp_min(0)
    return LowRankSolver(precision, basis, reduced, remainder)


def _information(rows: Rows, precision: Tensor, importance: Tensor) -> Tensor:
    """Return Aᵀ diag(importance) A, shape (m, m), in blocks."""
    matrix = precision.new_zeros(rows.shape[1], rows.shape[1])
    for part in row_slices(*rows.shape):
        add_weighted_gram(matrix, rows.take(part).dense(), importance[part])
    scale = precision.rsqrt()
    return scale[:, None] * mirrored(matrix) * scale


def _leading(values: Tensor, tolerance: float) -> int:
    """Return how many of the ascending eigenvalues to keep, so that the others add up to no more than `tolerance`."""
    dropped = int((values.clamp_min(0).cumsum(0) <= tolerance).sum())
    return len(values) - dropped


def _from_pivots(rows: Rows, precision: Tensor, importance: Tensor, tolerance: float, most: int) -> LowRankSolver:
    """Return the solver in the span of the rows that matter most, found one by one (pivoted Cholesky).

    The row whose remaining variance times its importance is largest comes next, until all that remains adds up to
    `tolerance`. Only one column of the Gram matrix is looked at for each, and the columns of its factor are the
    reduced rows: nothing of size P×m is ever formed.
    """
    scale = 1 / precision
    left = rows.squared_norms(scale)
    enough = tolerance + torch.finfo(left.dtype).eps * float(importance @ left)
    factor = left.new_empty(len(left), min(most, 64))
    pivots: list[int] = []
    while len(pivots) < most and float(importance @ left) > enough:
        rank, pivot = len(pivots), int((importance * left).argmax())
        column = rows.gram(rows.take(torch.tensor([pivot])), scale).squeeze(1)
        column = column - factor[:, :rank] @ factor[pivot, :rank]
        if not float(column[pivot]) > 0:
            break
        if rank == factor.shape[1]:
            factor = torch.cat([factor, torch.empty_like(factor)], 1)
        factor[:, rank] = column / column[pivot].sqrt()
        left = (left - factor[:, rank].square()).clamp_min(0)
        left[pivot] = 0
        pivots.append(pivot)
    chosen = rows.take(torch.tensor(pivots, dtype=torch.long)).dense().div_(precision.sqrt())
    triangle = factor[pivots, : len(pivots)].tril()
    basis = torch.linalg.solve_triangular(triangle, chosen, upper=False).T
    return LowRankSolver(precision, basis, factor[:, : len(pivots)].contiguous(), left)


def low_rank_solver(
    rows: Rows, precision: Tensor, importance: Tensor | None = None, *, tolerance: float = 0.0, most: int | None = None
) -> LowRankSolver:
    """Reduce the rows to the directions that carry information.

    `importance`, shape (P,), is about the curvatures that are to come, ones if not given; `tolerance` is the
    information Σ importance·‖R‖² that may be given up, in nats, and `most` the largest rank, whatever the tolerance.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.lowrank import low_rank_solver
    >>> from neuralsurv.solvers.rows import DenseRows
    >>> rows = torch.ones(5, 3, dtype=torch.float64)
    >>> low_rank_solver(DenseRows(rows), torch.ones(3, dtype=torch.float64), tolerance=1e-9).rank
    1
    """
    points, size = rows.shape
    weight = precision.new_ones(points) if importance is None else importance
    limit = min(points, size) if most is None else min(points, size, most)
    if limit == 0:
        return _reduce(rows, precision, precision.new_zeros(size, 0))
    few = size // _MANY_TIMES_FEW
    if tolerance > 0 and few <= limit and _FEWEST_POINTS * size < points < _MOST_POINTS * size:
        # Where a few directions are enough, they are found in a fraction of the time of the eigenvectors.
        found = _from_pivots(rows, precision, weight, tolerance, few)
        if found.rank < few:
            return found
    if size <= points and size <= MOST_FOR_EIGENVECTORS:
        values, vectors = eigenvectors(_information(rows, precision, weight))
        keep = min(limit, _leading(values, tolerance))
        basis = vectors[:, size - keep :]
    elif points < size and points <= MOST_FOR_EIGENVECTORS and points * size <= _MOST_NUMBERS_DENSE:
        root = weight.sqrt()
        values, vectors = eigenvectors(root[:, None] * rows.gram(rows, 1 / precision) * root)
        keep = min(limit, _leading(values, tolerance))
        span = (rows.dense() * root[:, None]).T @ vectors[:, points - keep :]
        basis = torch.linalg.qr(span / precision.sqrt()[:, None])[0]
    else:
        return _from_pivots(rows, precision, weight, tolerance, limit)
    return _reduce(rows, precision, basis.contiguous())


def spread_sample(importance: Tensor, count: int) -> Tensor:
    """Return `count` places, or fewer, that cut the importance (P,) into equal shares; always the same ones.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.lowrank import spread_sample
    >>> spread_sample(torch.tensor([0.0, 1.0, 1.0, 2.0]), 2).tolist()
    [1, 3]
    """
    total = importance.cumsum(0)
    levels = (torch.arange(count, dtype=importance.dtype) + 0.5) / count * total[-1]
    places: Tensor = torch.unique(torch.searchsorted(total, levels).clamp_max(len(importance) - 1))
    return places


def sampled_solver(rows: Rows, precision: Tensor, importance: Tensor, most: int) -> LowRankSolver:
    """Reduce rows that are too large to hold to at most `most` directions of a sample of them, in one pass.

    The sample is spread evenly over the importance, shape (P,), which is about the curvatures to come. Picking the rows
    one after another, each where most is left to know (as `low_rank_solver` does), takes a pass over all for each.
    """
    root = precision.sqrt()
    chosen = rows.take(spread_sample(importance, most)).dense() / root
    values, vectors = eigenvectors(chosen @ chosen.T)
    kept = values > _LEAST_SHARE * values[-1]
    basis = chosen.T @ (vectors[:, kept] / values[kept].sqrt())
    del chosen
    reduced = precision.new_empty(rows.shape[0], basis.shape[1])
    remainder = precision.new_empty(rows.shape[0])
    for part in row_slices(*rows.shape):
        whitened = rows.take(part).dense() / root
        torch.mm(whitened, basis, out=reduced[part])
        remainder[part] = (whitened.square().sum(1) - reduced[part].square().sum(1)).clamp_min(0)
    return LowRankSolver(precision, basis, reduced, remainder)
