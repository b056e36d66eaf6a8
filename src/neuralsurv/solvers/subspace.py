r"""A Gaussian that differs from its prior in a few directions only.

With whitened weights :math:`\eta = T^{1/2}\theta` and an orthonormal basis V (m×r) of the directions that the data
inform, :math:`\eta = Vz + (I - VV^\top)\varepsilon`: z has a Gaussian of its own and everything across V keeps the
prior. It takes m·r numbers where a full covariance takes m².
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.solvers.interface import DenseForm, Description
from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices
from neuralsurv.solvers.triangles import squared_lengths

# A difference of squares that is at least this share of them has at least ten digits.
_SAFE_DIFFERENCE = 1e-6


@dataclass(frozen=True)
class SubspaceGaussian:
    """A Gaussian that equals its prior outside a subspace."""

    precision: Tensor  # T, the diagonal of the prior precision, shape (m,)
    basis: Tensor  # V, with orthonormal columns, shape (m, r)
    inner_mean: Tensor  # of z, shape (r,)
    inner_factor: Tensor  # lower Cholesky factor L of the precision of z, shape (r, r)

    @cached_property
    def mean(self) -> Tensor:
        """The mean, shape (m,)."""
        return self.basis @ self.inner_mean / self.precision.sqrt()

    @cached_property
    def inverse_factor(self) -> Tensor:
        """L⁻¹, shape (r, r)."""
        identity = torch.eye(len(self.inner_mean), dtype=self.precision.dtype)
        inverse: Tensor = torch.linalg.solve_triangular(self.inner_factor, identity, upper=False)
        return inverse

    @cached_property
    def inner_covariance(self) -> Tensor:
        """The covariance of z, shape (r, r)."""
        return torch.cholesky_inverse(self.inner_factor)

    @property
    def inner_trace(self) -> float:
        """The trace of the covariance of z."""
        return float(self.inner_covariance.diagonal().sum())

    @property
    def solved_variances(self) -> Tensor | None:
        """The variances at the rows that it was solved for, shape (P,), where they are known."""
        return None

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of each ``rows @ theta``."""
        variance = rows.new_empty(len(rows))
        for part in row_slices(len(rows), rows.shape[1], CACHE_NUMBERS):
            whitened = rows[part] / self.precision.sqrt()
            inside = whitened @ self.basis
            total = whitened.square().sum(1)
            across = total - inside.square().sum(1)
            # The difference of two squares is half the work of the vector itself. Where it has lost six digits or
            # more of its sixteen, the vector is worked out.
            close = (across < _SAFE_DIFFERENCE * total).nonzero().squeeze(1)
            left = torch.addmm(whitened[close], inside[close], self.basis.T, alpha=-1)
            across[close] = left.square().sum(1)
            variance[part] = across + squared_lengths(inside, self.inverse_factor)
        return variance

    def covariance(self) -> Tensor:
        """Return the covariance of theta, by products in single precision."""
        scaled = (self.basis / self.precision.sqrt()[:, None]).float()
        lifted = scaled @ self.inverse_factor.T.float()
        inside = (lifted @ lifted.T).double()
        if scaled.shape[0] == scaled.shape[1]:
            return inside
        return torch.diag(1 / self.precision) - (scaled @ scaled.T).double() + inside

    def divergence(self, precision: Tensor) -> float:
        """Return KL(N(μ, Σ) ‖ N(0, diag(precision)⁻¹))."""
        ratio = precision / self.precision
        log_det_inner = 2 * float(self.inner_factor.diagonal().log().sum())
        if bool((ratio == 1).all()):
            # To the prior itself, only the subspace counts.
            trace, square = self.inner_trace - len(self.inner_mean), float(self.inner_mean.square().sum())
            return 0.5 * (trace + square + log_det_inner)
        # Σ = T^-½ (I + V (L⁻ᵀL⁻¹ − I) Vᵀ) T^-½
        weighted = self.basis.T @ (ratio[:, None] * self.basis)
        trace = float(ratio.sum()) + float((weighted * self.inner_covariance).sum()) - float(weighted.diagonal().sum())
        square = float((precision * self.mean**2).sum())
        return 0.5 * (trace + square - len(ratio) + log_det_inner - float(ratio.log().sum()))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of theta: of z inside the subspace, of the prior across it."""
        across = torch.randn(count, len(self.precision), generator=generator, dtype=self.precision.dtype)
        noise = torch.randn(len(self.inner_mean), count, generator=generator, dtype=self.precision.dtype)
        inside = self.inner_mean + torch.linalg.solve_triangular(self.inner_factor.T, noise, upper=True).T
        return across.addmm_(inside - across @ self.basis, self.basis.T).div_(self.precision.sqrt())

    def describe(self) -> Description:
        """Return the basis and the Gaussian in it."""
        inner = {"precision": self.precision, "inner_mean": self.inner_mean, "inner_factor": self.inner_factor}
        return Description({}, {"basis": self.basis, **inner})

    def compact(self, memory: float) -> SubspaceGaussian:
        """Return the Gaussian itself, which holds no rows."""
        return self

    def dense_form(self) -> DenseForm:
        """Return the Gaussian of z."""
        return DenseForm(self.basis / self.precision.sqrt()[:, None], self.inner_mean, self.inner_factor)
