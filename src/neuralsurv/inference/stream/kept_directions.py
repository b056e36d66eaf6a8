r"""The directions of the weights in which a large cohort's posterior is computed, and the Gaussian in them.

With prior precisions U at scale 1 and an orthonormal basis V (m×r), a point's row J becomes :math:`Z = JU^{-1/2}V`, and
all information of the rows about the weights is in the sums :math:`H = Z^\top\mathrm{diag}(\kappa)Z` and
:math:`b = Z^\top\!s`. Scales of the prior enter after the sums, :math:`\Lambda = D(s) + H`, so that they can be
learned without another pass over the rows.

What lies across V is independent of it, with variances cW relative to the prior's: the shape W (diagonal, m) is fixed
with the directions, and c is the best one for it. W is the share of its variance that each weight would keep if it were
the only one, so that weights about which the rows are informative are known well and the others keep the prior. All
products above are then those of :math:`JU^{-1/2}W^{1/2}`, and the prior's precision of the directions,
:math:`V^\top WV`, is no longer diagonal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.model.points import Points
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.model.shared_inputs import times_matrix
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import cholesky
from neuralsurv.solvers.rows import Rows
from neuralsurv.solvers.subspace import SubspaceGaussian
from neuralsurv.solvers.triangles import squared_lengths

# Up to this many weights all directions are kept.
KEEP_ALL = 300
# Information of the tail that may be given up at scale 1 in the rows that the directions are chosen by, in nats.
_INFORMATION_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Information:
    """The information of rows about the weights, in units of the shape."""

    matrix: Tensor  # H, shape (r, r)
    vector: Tensor  # b, shape (r,)
    across: float  # Σ κ‖R‖², the total information across the directions, at c = 1


@dataclass(frozen=True)
class ReducedGaussian:
    """A Gaussian over the weights in the directions, in units of the shape."""

    mean: Tensor  # shape (r,)
    inverse_factor: Tensor  # shape (r, r): L⁻¹, where Λ = L Lᵀ is its precision; zeros for a point mass
    across: float  # c, the variance of the weights across the directions, relative to its shape

    def moments(self, reduced: Tensor, remainder: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at points: `reduced` (P, r), `remainder` (P,)."""
        return reduced @ self.mean, remainder * self.across + squared_lengths(reduced, self.inverse_factor)


@dataclass(frozen=True)
class KeptDirections:
    """The directions that are kept."""

    prior: GroupedPrior
    basis: Tensor  # shape (m, r): V; the identity for the leading weights
    # Number of weights, those of the first layer or all, that are kept as they are; the basis mixes the others, which
    # are one group.
    leading: int
    shape: Tensor  # shape (m,): the diagonal of W; 1 for the leading weights

    @classmethod
    def all(cls, prior: GroupedPrior) -> KeptDirections:
        """Keep all weights as they are."""
        size = len(prior.unit)
        return cls(prior, torch.eye(size, dtype=prior.unit.dtype), size, torch.ones_like(prior.unit))

    @property
    def complete(self) -> bool:
        """Whether all weights are kept as they are."""
        return self.leading == len(self.prior.unit)

    @property
    def rank(self) -> int:
        """Number of directions r."""
        return self.basis.shape[1]

    @property
    def count_across(self) -> int:
        """Number of directions across the basis."""
        return len(self.prior.unit) - self.rank

    @cached_property
    def mass_across(self) -> float:
        """The trace of W across the directions."""
        return float(self.shape[self.leading :].sum() - self._mixed.diagonal().sum())

    @cached_property
    def _variance(self) -> Tensor:
        """The diagonal of U⁻¹W, shape (m,)."""
        return self.shape / self.prior.unit

    @cached_property
    def _whitened_tail(self) -> Tensor:
        """The part of U^(−1/2) W^(1/2) V that mixes weights, shape (m − leading, r − leading)."""
        tail = self.basis[self.leading :, self.leading :] * self._variance[self.leading :, None].sqrt()
        return tail.contiguous()

    @cached_property
    def _mixed(self) -> Tensor:
        """The prior's precision at scale 1 of the directions that mix weights, VᵀWV."""
        basis = self.basis[self.leading :, self.leading :]
        return basis.T @ (self.shape[self.leading :, None] * basis)

    def precision(self, log_scales: Tensor) -> Tensor:
        """Return the prior's precision of the directions, shape (r, r)."""
        found = torch.diag(self.scales(log_scales) ** -2)
        found[self.leading :, self.leading :] = self._mixed / self.tail_variance(log_scales)
        return found

    def scales(self, log_scales: Tensor) -> Tensor:
        """Return the scale of every direction, shape (r,)."""
        multipliers = self.prior.multipliers(log_scales)
        return torch.cat([multipliers[: self.leading], multipliers[-1:].expand(self.rank - self.leading)])

    def tail_variance(self, log_scales: Tensor) -> float:
        """Return the squared scale of the weights that the basis mixes."""
        return float(self.prior.multipliers(log_scales)[-1] ** 2)

    def columns(self, group: Group) -> slice:
        """Return the directions of a group of weights."""
        return slice(group.start, group.stop) if group.start < self.leading else slice(self.leading, None)

    def reduce(self, rows: Rows, points: Points, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return Z (P, r), and the variance that lies across V at c = 1 (P,).

        `rows` is J; each of the rows `x` of the data has the same number of nodes, in order.
        """
        if self.complete:
            dense = rows.dense() / self.prior.unit.sqrt()
            return dense, dense.new_zeros(len(dense))
        lead, tail = rows.split()
        reduced = torch.cat(
            [lead / self.prior.unit[: self.leading].sqrt(), times_matrix(tail, points, x, self._whitened_tail)], 1
        )
        inside = reduced[:, self.leading :].square().sum(1)
        remainder = (tail.squared_norms(self._variance[self.leading :]) - inside).clamp_min(0)
        return reduced, remainder

    def point_mass(self, theta: Tensor) -> ReducedGaussian:
        """Return the point mass at weights that lie in the directions."""
        mean = self.basis.T @ (theta / self._variance.sqrt())
        return ReducedGaussian(mean, mean.new_zeros(self.rank, self.rank), 0.0)

    def posterior(self, information: Information, log_scales: Tensor) -> ReducedGaussian:
        """Return the posterior in the directions."""
        factor = cholesky(information.matrix + self.precision(log_scales)).contiguous()
        mean = torch.cholesky_solve(information.vector[:, None], factor).squeeze(1)
        inverse: Tensor = torch.linalg.solve_triangular(factor, torch.eye(self.rank, dtype=factor.dtype), upper=False)
        return ReducedGaussian(mean, inverse, self._across(information, log_scales))

    def weight_posterior(self, information: Information, log_scales: Tensor) -> SubspaceGaussian:
        """Return q(theta) for predictions: in units in which what lies across has variance 1."""
        units = self.prior.multipliers(log_scales)
        units[self.leading :] = math.sqrt(self._across(information, log_scales))
        inside = torch.cat([units[: self.leading], units[-1:].expand(self.rank - self.leading)])
        inner = inside[:, None] * (information.matrix + self.precision(log_scales)) * inside
        factor = cholesky(inner).contiguous()
        mean = torch.cholesky_solve((inside * information.vector)[:, None], factor).squeeze(1)
        return SubspaceGaussian(1 / (self._variance * units**2), self.basis, mean, factor)

    def _across(self, information: Information, log_scales: Tensor) -> float:
        if not self.count_across:
            return 1.0
        return self.count_across / (self.mass_across / self.tail_variance(log_scales) + information.across)

    def divergence(self, q: ReducedGaussian, log_scales: Tensor) -> float:
        """Return KL(q ‖ p), in the directions and across them."""
        precision = self.precision(log_scales)
        trace = float((precision * (q.inverse_factor.T @ q.inverse_factor)).sum())
        square = float(q.mean @ precision @ q.mean)
        log_det = -2 * float(q.inverse_factor.diagonal().log().sum())
        found = trace + square - self.rank + log_det + 2 * float(self.scales(log_scales).log().sum())
        ratio = q.across / self.tail_variance(log_scales)
        found += self.mass_across * ratio - self.count_across * (1 + math.log(ratio))
        return 0.5 * (found - float(self.shape.log().sum()))


def choose_directions(
    prior: GroupedPrior, leading: int, rows: Rows, importance: Tensor, mode: Tensor, most: int, keep_all: int = KEEP_ALL
) -> KeptDirections:
    """Keep all weights if they are few; else the leading ones and the directions of the tail that carry information.

    The weights after the leading ones, those of the first layer, must be one group of the prior. `importance`, shape
    (P,), approximates the curvatures at the points of `rows`. The direction of the mode itself, where the network is
    linearised, is always kept: a mean that cannot be as large as the mode would lose what was learned.
    """
    size = len(prior.unit)
    if size <= keep_all or leading >= size:
        return KeptDirections.all(prior)
    tail = rows.split()[1]
    unit = prior.unit[leading:]
    shape = torch.ones_like(prior.unit)
    shape[leading:] = 1 / (1 + tail.squares().transposed_times(importance) / unit)
    width = (unit / shape[leading:]).contiguous()
    chosen = low_rank_solver(tail, width, importance, tolerance=_INFORMATION_TOLERANCE, most=most).basis
    own = mode[leading:, None] * width[:, None].sqrt()
    inner = torch.cat([own, chosen], 1) if bool(own.any()) else chosen
    orthonormal, triangle = torch.linalg.qr(inner)
    independent = triangle.diagonal().abs() > 1e-8 * triangle.diagonal().abs().max()
    kept = orthonormal[:, independent]
    basis = prior.unit.new_zeros(size, leading + kept.shape[1])
    basis[:leading, :leading] = torch.eye(leading, dtype=basis.dtype)
    basis[leading:, leading:] = kept
    return KeptDirections(prior, basis, leading, shape)
