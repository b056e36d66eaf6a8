"""The plain solver: one m×m Cholesky factorisation. The reference that every faster solver is checked against."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import NotFiniteError, NotPositiveDefiniteError
from neuralsurv.solvers.interface import Coordinates, DenseForm, Description
from neuralsurv.solvers.rows import Rows, row_slices
from neuralsurv.solvers.triangles import add_weighted_gram, mirrored


def cholesky(matrix: Tensor) -> Tensor:
    """Return the lower Cholesky factor; raise an error that says what is wrong with the matrix. No jitter is added."""
    factor: Tensor
    factor, info = torch.linalg.cholesky_ex(matrix)
    # A row that holds a number which is not finite has such a number on the diagonal too.
    if int(info) == 0 and bool(torch.isfinite(factor.diagonal()).all()):
        return factor
    bad = int((~torch.isfinite(matrix)).sum())
    if bad:
        raise NotPositiveDefiniteError(
            f"the {len(matrix)}x{len(matrix)} precision matrix holds {bad} values that are NaN or infinite; "
            "look for extreme covariates, weights or prior precisions."
        )
    raise NotPositiveDefiniteError(
        f"the {len(matrix)}x{len(matrix)} precision matrix is not positive definite to working precision: "
        f"the leading minor of order {int(info)} fails. Its diagonal runs from {float(matrix.diagonal().min()):.3g} "
        f"to {float(matrix.diagonal().max()):.3g}; rescale covariates or weights, or raise the prior precision."
    )


def solved(factor: Tensor, vector: Tensor) -> Tensor:
    """Return (L Lᵀ)⁻¹·vector for a lower triangular L of any layout, which is not copied."""
    half = torch.linalg.solve_triangular(factor, vector[:, None], upper=False)
    whole: Tensor = torch.linalg.solve_triangular(factor.T, half, upper=True)
    return whole.squeeze(1)


def eigenvectors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the ascending eigenvalues and the eigenvectors of a symmetric matrix; raise an error if that fails."""
    try:
        values, vectors = torch.linalg.eigh(matrix)
    except RuntimeError as error:  # LinAlgError is one
        bad = int((~torch.isfinite(matrix)).sum())
        raise NotFiniteError(
            f"the eigenvectors of a {len(matrix)}x{len(matrix)} matrix of the linearised network were not found; {bad} "
            f"of its values are NaN or infinite, the largest is {float(matrix.abs().max()):.3g}. Look for extreme "
            "covariates, weights or prior precisions."
        ) from error
    return values, vectors


@dataclass(frozen=True)
class PrimalGaussian:
    """A Gaussian stored as its mean and the Cholesky factor L of its precision, Σ⁻¹ = L Lᵀ."""

    mean: Tensor
    factor: Tensor

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of each ``rows @ theta``: the squared length of L⁻¹ rowᵀ, never negative."""
        parts = [
            (torch.linalg.solve_triangular(self.factor, rows[part].T, upper=False) ** 2).sum(0)
            for part in row_slices(*rows.shape)
        ]
        return torch.cat(parts) if parts else rows.new_zeros(0)

    def covariance(self) -> Tensor:
        """Return the covariance of theta."""
        return torch.cholesky_inverse(self.factor)

    def divergence(self, precision: Tensor) -> float:
        """Return KL(N(μ, Σ) ‖ N(0, diag(precision)⁻¹))."""
        inverse = torch.linalg.solve_triangular(
            self.factor, torch.eye(len(self.mean), dtype=self.mean.dtype), upper=False
        )
        trace = float((precision * (inverse**2).sum(0)).sum())
        log_det_precision = 2 * float(self.factor.diagonal().log().sum())
        square = float((precision * self.mean**2).sum())
        log_det_prior = float(precision.log().sum())
        return 0.5 * (trace + square - len(self.mean) + log_det_precision - log_det_prior)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws μ + L⁻ᵀ ε."""
        noise = torch.randn(len(self.mean), count, generator=generator, dtype=self.mean.dtype)
        deviation: Tensor = torch.linalg.solve_triangular(self.factor.T, noise, upper=True).T
        return self.mean + deviation

    def describe(self) -> Description:
        """Return the mean and the factor."""
        return Description({}, {"mean": self.mean, "factor": self.factor})

    def compact(self, memory: float) -> PrimalGaussian:
        """Return the Gaussian itself, which holds no rows."""
        return self

    def dense_form(self) -> DenseForm:
        """Return the Gaussian over the weights themselves."""
        return DenseForm(None, self.mean, self.factor)


@dataclass(frozen=True)
class PrimalSolver:
    """Forms T + JᵀκJ and factorises it; `precision`, shape (m,), is the diagonal of T.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.primal import PrimalSolver
    >>> from neuralsurv.solvers.rows import DenseRows
    >>> rows = torch.ones(4, 1, dtype=torch.float64)
    >>> ones = torch.ones(4, dtype=torch.float64)
    >>> gaussian = PrimalSolver(DenseRows(rows), torch.ones(1, dtype=torch.float64)).solve(curvature=ones, slope=ones)
    >>> round(float(gaussian.mean), 3), round(float(gaussian.variance(rows[:1])), 3)
    (0.8, 0.2)
    """

    rows: Rows
    precision: Tensor

    def solve(self, curvature: Tensor, slope: Tensor) -> PrimalGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        matrix = torch.diag(self.precision)
        for part in row_slices(*self.rows.shape):
            add_weighted_gram(matrix, self.rows.take(part).dense(), curvature[part])
        # Row-major, as a file holds it: the same numbers in another layout would round differently.
        factor = cholesky(mirrored(matrix)).contiguous()
        mean = torch.cholesky_solve(self.rows.transposed_times(slope)[:, None], factor).squeeze(1)
        return PrimalGaussian(mean, factor)

    def moments(self, gaussian: PrimalGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows."""
        parts = [gaussian.variance(self.rows.take(part).dense()) for part in row_slices(*self.rows.shape)]
        variance = torch.cat(parts) if parts else self.precision.new_zeros(0)
        return self.rows.times(gaussian.mean), variance

    def coordinates(self, gaussian: PrimalGaussian) -> Coordinates:
        """Return the weights themselves as coordinates."""
        return Coordinates(self.rows, self.precision, gaussian.factor, gaussian.mean)
