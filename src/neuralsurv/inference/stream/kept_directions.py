r"""The directions of the weights that a large cohort is asked about, and the belief that its sums leave in them.

With prior precisions U at scale 1 and an orthonormal basis V (m×r), a point's row J becomes :math:`Z = JU^{-1/2}V`, and
everything that the rows say of the weights is added up in :math:`H = Z^\top\mathrm{diag}(\kappa)Z` and
:math:`b = Z^\top\!s`. Scales of the prior enter after the sums, :math:`\Lambda = D(s) + H`, so that they can be
learned without going through the rows again.

What lies across V is independent of it, with variances cW relative to the prior's: the shape W (diagonal, m) is fixed
with the directions, and c is the best one for it. W is what each weight would keep of its variance if it were the only
one, so that weights of which the rows say much are known well and those of which they say nothing keep the prior. All
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
from neuralsurv.solvers.rows import LayeredRows, Rows
from neuralsurv.solvers.subspace import SubspaceGaussian
from neuralsurv.solvers.triangles import squared_lengths

# Up to this many weights all directions are kept.
KEEP_ALL = 300
# Information of the tail that may be given up at scale 1 in the rows that the directions are chosen by, in nats.
_INFORMATION_TOLERANCE = 1e-3
# Rounds of the search for the scales, each with one factorisation, and the change of a log scale at which it ends.
_ROUNDS = 20
_ENOUGH = 1e-6
# A Newton step of a log scale within a round is no longer than this.
_LONGEST_STEP = 1.0
# Rounding must not make the directions that are known of a group fewer than none.
_LEAST_KNOWN = 1e-9


@dataclass(frozen=True)
class Information:
    """What rows say of the weights, in units of the shape.

    Attributes
    ----------
    matrix : Tensor of shape (r, r)
        H.
    vector : Tensor of shape (r,)
        b.
    across : float
        Σ κ‖R‖², the information across the directions, all of it, at c = 1.
    """

    matrix: Tensor
    vector: Tensor
    across: float


@dataclass(frozen=True)
class Belief:
    """A Gaussian over the weights in the directions, in units of the shape.

    Attributes
    ----------
    mean : Tensor of shape (r,)
        Its mean.
    inverse_factor : Tensor of shape (r, r)
        L⁻¹, where Λ = L Lᵀ is its precision; zeros for all mass at the mean.
    across : float
        c, the variance of the weights across the directions, relative to its shape.
    """

    mean: Tensor
    inverse_factor: Tensor
    across: float

    def moments(self, reduced: Tensor, remainder: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at points: `reduced` (P, r), `remainder` (P,)."""
        return reduced @ self.mean, remainder * self.across + squared_lengths(reduced, self.inverse_factor)


@dataclass(frozen=True)
class Directions:
    """Which directions are kept.

    Attributes
    ----------
    prior : GroupedPrior
        The groups of weights.
    basis : Tensor of shape (m, r) or None
        V; None where all weights are kept as they are.
    leading : int
        So many weights, those of the first layer, are kept as they are; the basis mixes those after them, which are one
        group.
    shape : Tensor of shape (m,), optional
        The diagonal of W, 1 for the leading weights; ones if not given.
    """

    prior: GroupedPrior
    basis: Tensor | None
    leading: int
    shape: Tensor | None = None

    @property
    def rank(self) -> int:
        """Number of directions r."""
        return len(self.prior.unit) if self.basis is None else self.basis.shape[1]

    @cached_property
    def _variance(self) -> Tensor:
        """The diagonal of U⁻¹W, shape (m,)."""
        return 1 / self.prior.unit if self.shape is None else self.shape / self.prior.unit

    @cached_property
    def _whitened_tail(self) -> Tensor | None:
        """The part of U^(−1/2) W^(1/2) V that mixes weights, shape (m − leading, r − leading)."""
        if self.basis is None:
            return None
        tail = self.basis[self.leading :, self.leading :] * self._variance[self.leading :, None].sqrt()
        return tail.contiguous()

    @cached_property
    def _mixed(self) -> Tensor:
        """The prior's precision at scale 1 of the directions that mix weights, VᵀWV."""
        assert self.basis is not None
        basis = self.basis[self.leading :, self.leading :]
        if self.shape is None:
            return torch.eye(basis.shape[1], dtype=basis.dtype)
        return basis.T @ (self.shape[self.leading :, None] * basis)

    @cached_property
    def _mass_across(self) -> float:
        """The trace of W across the directions: their number where the shape is even."""
        if self.shape is None or self.basis is None:
            return float(self._others)
        return float(self.shape[self.leading :].sum() - self._mixed.diagonal().sum())

    def _precision(self, log_scales: Tensor) -> Tensor:
        """Return the prior's precision of the directions, shape (r, r)."""
        found = torch.diag(self.scales(log_scales) ** -2)
        if self.basis is not None and self.rank > self.leading:
            found[self.leading :, self.leading :] = self._mixed / self._tail_variance(log_scales)
        return found

    def reduce(self, rows: Rows, points: Points, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return Z (P, r), and the variance that lies across V at c = 1 (P,).

        Parameters
        ----------
        rows : Rows of shape (P, m)
            J.
        points : Points
            The points: as many nodes for each row of data, in order.
        x : Tensor of shape (n, d)
            Covariates of the rows of data that the points belong to.
        """
        if self._whitened_tail is None:
            dense = rows.dense() / self.prior.unit.sqrt()
            return dense, dense.new_zeros(len(dense))
        lead, tail = split_rows(rows)
        reduced = torch.cat(
            [lead / self.prior.unit[: self.leading].sqrt(), times_matrix(tail, points, x, self._whitened_tail)], 1
        )
        inside = reduced[:, self.leading :].square().sum(1)
        remainder = (tail.squared_norms(self._variance[self.leading :]) - inside).clamp_min(0)
        return reduced, remainder

    def place(self, theta: Tensor) -> Tensor:
        """Return weights that lie in the directions, as a mean of a belief."""
        whitened = theta / self._variance.sqrt()
        return whitened if self.basis is None else self.basis.T @ whitened

    def scales(self, log_scales: Tensor) -> Tensor:
        """Return the scale of every direction, shape (r,)."""
        multipliers = self.prior.multipliers(log_scales)
        if self.basis is None:
            return multipliers
        last = multipliers[self.leading].expand(self.rank - self.leading)
        return torch.cat([multipliers[: self.leading], last])

    def believe(self, told: Information, log_scales: Tensor) -> Belief:
        """Return the belief for what the rows say."""
        factor = cholesky(told.matrix + self._precision(log_scales)).contiguous()
        mean = torch.cholesky_solve(told.vector[:, None], factor).squeeze(1)
        inverse: Tensor = torch.linalg.solve_triangular(factor, torch.eye(self.rank, dtype=factor.dtype), upper=False)
        return Belief(mean, inverse, self._across(told, log_scales))

    def certain(self, theta: Tensor) -> Belief:
        """Return the belief with all mass at `theta`."""
        mean = self.place(theta)
        return Belief(mean, mean.new_zeros(self.rank, self.rank), 0.0)

    @property
    def _others(self) -> int:
        """Number of directions across the basis."""
        return len(self.prior.unit) - self.rank

    def _tail_variance(self, log_scales: Tensor) -> float:
        return float(self.prior.multipliers(log_scales)[-1] ** 2)

    def _across(self, told: Information, log_scales: Tensor) -> float:
        if not self._others:
            return 1.0
        return self._others / (self._mass_across / self._tail_variance(log_scales) + told.across)

    def divergence(self, belief: Belief, log_scales: Tensor) -> float:
        """Return KL(q ‖ p), in the directions and across them."""
        precision = self._precision(log_scales)
        trace = float((precision * (belief.inverse_factor.T @ belief.inverse_factor)).sum())
        square = float(belief.mean @ precision @ belief.mean)
        log_det = -2 * float(belief.inverse_factor.diagonal().log().sum())
        found = trace + square - self.rank + log_det + 2 * float(self.scales(log_scales).log().sum())
        if self._others:
            ratio = belief.across / self._tail_variance(log_scales)
            found += self._mass_across * ratio - self._others * (1 + math.log(ratio))
        return 0.5 * (found if self.shape is None else found - float(self.shape.log().sum()))

    def learn_scales(self, told: Information, log_scales: Tensor) -> Tensor:
        """Return the scales of the highest evidence for what the rows say, with the hyper-prior.

        There the scale s of a group of n directions solves Σ E z²/s² − n = (log s − median)/spread². In every round
        the part of it that the mean does not say, n − Σ Var z/s², is held (MacKay 1992): far fewer rounds than EM.
        """
        for _ in range(_ROUNDS):
            belief = self.believe(told, log_scales)
            precision = self._precision(log_scales)
            square = belief.mean * (precision @ belief.mean) * self.scales(log_scales) ** 2
            known = 1 - (precision * (belief.inverse_factor.T @ belief.inverse_factor)).sum(0)
            found = []
            for k, group in enumerate(self.prior.groups):
                part = self._columns(group.start, group.stop)
                count = float(known[part].sum())
                if group.start >= self.leading:
                    count += self._others - self._mass_across * belief.across / self._tail_variance(log_scales)
                found.append(_best_scale(float(square[part].sum()), max(count, _LEAST_KNOWN), log_scales[k], group))
            new = torch.tensor(found, dtype=torch.float64)
            moved = float((new - log_scales).abs().max())
            log_scales = new
            if moved < _ENOUGH:
                break
        return log_scales

    def _columns(self, start: int, stop: int) -> slice:
        return slice(start, stop) if self.basis is None or start < self.leading else slice(self.leading, None)

    def gaussian(self, told: Information, log_scales: Tensor) -> SubspaceGaussian:
        """Return q(theta) in the form that predictions use: in units in which what lies across has variance 1."""
        units = self.prior.multipliers(log_scales)
        units[self.leading :] = math.sqrt(self._across(told, log_scales))
        inside = torch.cat([units[: self.leading], units[-1:].expand(self.rank - self.leading)])
        inner = inside[:, None] * (told.matrix + self._precision(log_scales)) * inside
        factor = cholesky(inner).contiguous()
        mean = torch.cholesky_solve((inside * told.vector)[:, None], factor).squeeze(1)
        basis = torch.eye(self.rank, dtype=factor.dtype) if self.basis is None else self.basis
        return SubspaceGaussian(1 / (self._variance * units**2), basis, mean, factor)


def split_rows(rows: Rows) -> tuple[Tensor, LayeredRows]:
    """Return the columns of the first layer as a matrix, and the layers after it."""
    assert isinstance(rows, LayeredRows)
    return LayeredRows(rows.layers[:1]).dense(), LayeredRows(rows.layers[1:])


def _best_scale(square: float, count: float, start: Tensor, group: Group) -> float:
    """Solve square/s² − count = (log s − median)/spread² for log s by Newton's method."""
    log_scale = float(start)
    precision = group.spread**-2
    for _ in range(100):
        power = square * math.exp(-2 * log_scale)
        step = (power - count - (log_scale - math.log(group.median)) * precision) / (2 * power + precision)
        log_scale += max(-_LONGEST_STEP, min(_LONGEST_STEP, step))
        if abs(step) < 1e-12:
            break
    return log_scale


def choose_directions(
    prior: GroupedPrior, leading: int, rows: Rows, importance: Tensor, mode: Tensor, most: int, keep_all: int = KEEP_ALL
) -> Directions:
    """Keep all weights if they are few; else the leading ones and the directions of the tail that carry information.

    Parameters
    ----------
    prior : GroupedPrior
        The groups of weights; those after the leading ones must be one of them.
    leading : int
        Weights that are kept as they are: those of the first layer.
    rows : Rows of shape (P, m)
        Rows of the linearised network at some points.
    importance : Tensor of shape (P,)
        About the curvatures of these points.
    mode : Tensor of shape (m,)
        Where the network is linearised. Its own direction is always kept: a mean that cannot be as large as the mode
        would lose what was learned.
    most : int
        Largest number of directions of the tail.
    keep_all : int
        How many weights are few.
    """
    if len(prior.unit) <= keep_all or leading >= len(prior.unit):
        return Directions(prior, None, len(prior.unit))
    tail = split_rows(rows)[1]
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
    basis = prior.unit.new_zeros(len(prior.unit), leading + kept.shape[1])
    basis[:leading, :leading] = torch.eye(leading, dtype=basis.dtype)
    basis[leading:, leading:] = kept
    return Directions(prior, basis, leading, shape)
