r"""The dual solver: P×P algebra, for fewer points than weights (the Woodbury form of the paper's appendix I).

With whitened rows :math:`A = JT^{-1/2}` and :math:`G = AA^\top`, everything about the points follows from G and the
Cholesky factor of :math:`M = I + \kappa^{1/2}G\kappa^{1/2}`. G is fixed during the sweeps and computed once; a
point without curvature is not in M.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.errors import StorageError
from neuralsurv.solvers.interface import Coordinates, Description
from neuralsurv.solvers.primal import cholesky, eigenvectors
from neuralsurv.solvers.rows import DenseRows, Rows, row_slices
from neuralsurv.solvers.subspace import SubspaceGaussian


def _gram(rows: Rows, scale: Tensor) -> Tensor:
    """Return J diag(scale) Jᵀ, shape (P, P), in blocks of rows."""
    points, size = rows.shape
    matrix = scale.new_empty(points, points)
    for part in row_slices(points, max(points, size)):
        matrix[part] = rows.take(part).gram(rows, scale)
    return matrix


@dataclass(frozen=True)
class DualGaussian:
    r"""A Gaussian stored as P numbers for its mean and the factor of M for its covariance.

    The whitened mean is :math:`A^\top c`. The variance of a whitened row u is
    :math:`\min_w \lVert u - A_\kappa^\top w\rVert^2 + \lVert w\rVert^2`, with :math:`A_\kappa = \kappa^{1/2}A`: as a
    sum of squares at its minimum it is never negative, and an error of w enters it only squared.
    """

    rows: Rows  # rows of the linearised network, shape (P, m)
    precision: Tensor  # diagonal of the prior precision, shape (m,)
    gram: Tensor  # G, shape (P, P)
    curvature: Tensor  # κ, shape (P,)
    coefficients: Tensor  # c, the mean in terms of the rows, shape (P,)
    informed: Tensor  # which points have a curvature, shape (I,)
    factor: Tensor  # lower Cholesky factor of M, shape (I, I)

    @cached_property
    def mean(self) -> Tensor:
        """The mean, shape (m,)."""
        return self.rows.transposed_times(self.coefficients) / self.precision

    @cached_property
    def moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of J·theta at the own rows, each of shape (P,)."""
        prior = self.gram.diagonal()
        root = self.curvature[self.informed].sqrt()
        # G_pp − g_pᵀM⁻¹g_p loses digits where a point is well known, (1 − (M⁻¹)_pp)/κ_p where it has little curvature:
        # each is used where the other fails. Both are a squared length after one triangular solve.
        known = self.curvature * prior > 1
        place = torch.zeros(len(prior), dtype=torch.long)
        place[self.informed] = torch.arange(len(self.informed))
        squares = torch.empty_like(prior)
        for part in row_slices(len(prior), len(self.informed)):
            columns = root[:, None] * self.gram[part][:, self.informed].T
            here = known[part].nonzero().squeeze(1)
            columns[:, here] = 0
            columns[place[part][here], here] = 1
            squares[part] = torch.linalg.solve_triangular(self.factor, columns, upper=False).square().sum(0)
        variance = torch.where(known, (1 - squares) / self.curvature.clamp_min(1e-300), prior - squares)
        return self.gram @ self.coefficients, variance.clamp_min(0)

    def _scattered(self, values: Tensor) -> Tensor:
        """Return κ^½·values, which are at the informed points, with zeros at the others, shape (P, Q)."""
        full = values.new_zeros(len(self.curvature), values.shape[1])
        full[self.informed] = self.curvature[self.informed].sqrt()[:, None] * values
        return full

    def _correct(self, whitened: Tensor, noise: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return u − A_κᵀw, shape (Q, m), and w = M⁻¹(A_κ u + noise), shape (I, Q), for whitened vectors u."""
        root = self.precision.sqrt()
        right = self.rows.times_each((whitened / root).T)[self.informed]
        right *= self.curvature[self.informed].sqrt()[:, None]
        solution = torch.cholesky_solve(right if noise is None else right + noise, self.factor)
        return whitened - self.rows.transposed_times_each(self._scattered(solution)).T / root, solution

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of each ``rows @ theta``."""
        parts = []
        for part in row_slices(len(rows), sum(self.rows.shape)):
            left, solution = self._correct(rows[part] / self.precision.sqrt())
            parts.append(left.square().sum(1) + solution.square().sum(0))
        return torch.cat(parts) if parts else rows.new_zeros(0)

    def covariance(self) -> None:
        """Return None: there are more weights than points."""

    def divergence(self, precision: Tensor) -> float:
        """Return KL(N(μ, Σ) ‖ N(0, diag(precision)⁻¹))."""
        ratio = precision / self.precision
        log_det = 2 * float(self.factor.diagonal().log().sum()) - float(ratio.log().sum())
        square = float((precision * self.mean**2).sum())
        if bool((ratio == 1).all()):
            # tr(M⁻¹) − I = −Σ κv, and the variances at the points are known.
            trace = -float(self.curvature @ self.moments[1])
        else:
            root = self.curvature[self.informed].sqrt()
            weighted = root[:, None] * _gram(self.rows.take(self.informed), ratio / self.precision) * root
            trace = float((ratio - 1).sum()) - float((torch.cholesky_inverse(self.factor) * weighted).sum())
        return 0.5 * (trace + square + log_det)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of theta by pathwise conditioning: a draw of the prior minus what the points correct in it."""
        prior = torch.randn(count, len(self.precision), generator=generator, dtype=self.precision.dtype)
        noise = torch.randn(len(self.informed), count, generator=generator, dtype=self.precision.dtype)
        return self._correct(prior, noise)[0].div_(self.precision.sqrt()).add_(self.mean)

    def describe(self) -> Description:
        """Refuse: the rows and the Gram matrix are as large as the problem; `in_subspace` gives what can be stored."""
        raise StorageError("a Gaussian in its dual form cannot be saved; it is too large.")

    def compact(self, memory: float) -> SubspaceGaussian | DualGaussian:
        """Return the same law without the rows, or itself where the directions take more than `memory` bytes."""
        points, weights = self.rows.shape
        # A basis of as many directions as there are points, with two copies.
        return self if 3 * 8 * weights * min(points, weights) > memory else self.in_subspace()

    def dense_form(self) -> None:
        """Return None: this form has a number for each point, not for each direction."""
        return None

    def in_subspace(self) -> SubspaceGaussian:
        """Return the same law without the rows, in the subspace of the informed points and the mean."""
        root = self.curvature[self.informed].sqrt()
        information = root[:, None] * self.gram[self.informed][:, self.informed] * root
        values, vectors = eigenvectors(information)
        rounding = torch.finfo(values.dtype).eps * float(values.sum())
        vectors = vectors[:, int((values.clamp_min(0).cumsum(0) <= rounding).sum()) :]
        span = self.rows.transposed_times_each(self._scattered(vectors)).div_(self.precision.sqrt()[:, None])
        whitened_mean = (self.precision.sqrt() * self.mean)[:, None]
        if bool(whitened_mean.any()):
            span = torch.cat([span, whitened_mean], 1)
        basis, triangle = torch.linalg.qr(span)
        inner = triangle[:, : vectors.shape[1]]
        factor = cholesky(torch.eye(len(inner), dtype=inner.dtype) + inner @ inner.T).contiguous()
        return SubspaceGaussian(self.precision, basis.contiguous(), basis.T @ whitened_mean.squeeze(1), factor)


@dataclass(frozen=True)
class DualSolver:
    """Solves in the space of the points: one Cholesky factorisation with as many rows as points with curvature.

    Of rows in layers the P×m matrix is never formed; `precision`, shape (m,), is the diagonal of the prior precision.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.dual import DualSolver
    >>> from neuralsurv.solvers.rows import DenseRows
    >>> rows = torch.ones(4, 1, dtype=torch.float64)
    >>> ones = torch.ones(4, dtype=torch.float64)
    >>> gaussian = DualSolver(DenseRows(rows), torch.ones(1, dtype=torch.float64)).solve(curvature=ones, slope=ones)
    >>> round(float(gaussian.mean), 3), round(float(gaussian.variance(rows[:1])), 3)
    (0.8, 0.2)
    """

    rows: Rows
    precision: Tensor

    @cached_property
    def gram(self) -> Tensor:
        """G = J T⁻¹ Jᵀ, shape (P, P)."""
        return _gram(self.rows, 1 / self.precision)

    def solve(self, curvature: Tensor, slope: Tensor) -> DualGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        # A negative or undefined curvature is not 0 either, and makes the factorisation say so.
        informed = (curvature != 0).nonzero().squeeze(1)
        root = curvature[informed].sqrt()
        matrix = root[:, None] * self.gram[informed][:, informed] * root
        matrix.diagonal().add_(1)
        factor = cholesky(matrix).contiguous()
        # c = (I + κG)⁻¹b, in the form that keeps its digits: κ^½M⁻¹κ^-½b for the slopes of well-known points,
        # b − κ^½M⁻¹κ^½Gb for the others, whose curvature may be 0.
        weak = torch.where(curvature * self.gram.diagonal() > 1, torch.zeros_like(slope), slope)
        right = (slope - weak)[informed] / root - root * (self.gram @ weak)[informed]
        coefficients = weak.clone()
        coefficients[informed] += root * torch.cholesky_solve(right[:, None], factor).squeeze(1)
        return DualGaussian(self.rows, self.precision, self.gram, curvature, coefficients, informed, factor)

    def moments(self, gaussian: DualGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows, from the Gram matrix alone."""
        return gaussian.moments

    @cached_property
    def _root(self) -> Tensor:
        """Z with G = Z Zᵀ, shape (P, r): the rows in an orthonormal basis of their span."""
        values, vectors = eigenvectors(self.gram)
        kept = values > torch.finfo(values.dtype).eps * len(values) * values[-1]
        return vectors[:, kept] * values[kept].sqrt()

    def coordinates(self, gaussian: DualGaussian) -> Coordinates:
        """Return the coordinates of the span of the rows."""
        matrix = self._root.T @ (gaussian.curvature[:, None] * self._root)
        matrix.diagonal().add_(1)
        place = self._root.T @ gaussian.coefficients
        return Coordinates(DenseRows(self._root), torch.ones_like(place), cholesky(matrix), place)
