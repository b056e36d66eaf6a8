r"""Rows that are products of a feature of the table's row and a function of time, solved for many scales of the prior.

Point p of row i has the columns :math:`\tau_{pk}\,a_{ik}`, with :math:`a_{ik}` the features of block k and
:math:`\tau_{pk}` one function of time, and a few columns :math:`c_p` of time alone. Sums over the points of a row come
before products of features, so that a Gram matrix costs the number of rows, not of points, times the square of the
columns,

.. math:: \sum_p \kappa_p\,\tau_{pk}\tau_{pl}\,a_{ik}a_{il}^\top
          = \sum_i \Bigl(\sum_{p \in i}\kappa_p\tau_{pk}\tau_{pl}\Bigr) a_{ik}a_{il}^\top,

and so do the variances of all points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate, combinations_with_replacement, pairwise
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

from neuralsurv.solvers.primal import cholesky, solved
from neuralsurv.solvers.rows import CACHE_NUMBERS, row_slices
from neuralsurv.solvers.subspace import SubspaceGaussian

# Directions that are kept of a term, at most, and what they must vary by, as a share of the first.
_MOST_DIRECTIONS = 200
_LEAST_SHARE = 1e-12
# Numbers of points that are taken at once: they stay in a cache.
_NUMBERS_AT_ONCE = CACHE_NUMBERS // 8


@dataclass(frozen=True)
class PointFunctions:
    """The functions of time of a table's points, which do not change with the scales."""

    row: Tensor  # the row of each point, shape (P,)
    count: int  # of rows, N
    factors: tuple[Tensor, ...]  # the function of each block of features, shape (P,)
    time: Tensor  # those that are columns by themselves, whitened at scale 1, shape (P, c)

    @cached_property
    def pairs(self) -> tuple[tuple[int, int], ...]:
        """The pairs of blocks, each with itself and those after it."""
        return tuple(combinations_with_replacement(range(len(self.factors)), 2))

    @cached_property
    def products(self) -> Tensor:
        """The products of the factors of each pair, then those of each factor with the columns, shape (P, q)."""
        pairs = [(self.factors[k] * self.factors[j])[:, None] for k, j in self.pairs]
        return torch.cat([*pairs, *(self.time * factor[:, None] for factor in self.factors)], 1)

    def part(self, block: int) -> slice:
        """Return where the products of a block's factor with the columns are."""
        start = len(self.pairs) + block * self.time.shape[1]
        return slice(start, start + self.time.shape[1])

    def sums(self, weight: Tensor) -> Tensor:
        """Return the sums of the products, times weights (P,), over the points of each row, shape (q, N)."""
        total = weight.new_zeros(self.count, self.products.shape[1])
        # Points are taken in blocks that stay in a cache.
        for part in row_slices(len(self.row), self.products.shape[1], _NUMBERS_AT_ONCE):
            total.index_add_(0, self.row[part], self.products[part] * weight[part, None])
        return total.T.contiguous()

    def combined(self, coefficients: Tensor) -> Tensor:
        """Return the sum of the products of each point times its row's coefficients (q, N), shape (P,)."""
        by_row = coefficients.T.contiguous()
        total = by_row.new_empty(len(self.row))
        for part in row_slices(len(self.row), self.products.shape[1], _NUMBERS_AT_ONCE):
            torch.sum(by_row[self.row[part]].mul_(self.products[part]), 1, out=total[part])
        return total


class SeparableRows(Protocol):
    """Columns that are features of a table's rows times functions of time: of one kind of point, or of several."""

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """Features of the rows of the table, each of shape (N, size)."""

    @property
    def time(self) -> Tensor:
        """Columns of time alone, shape (P, c)."""

    @property
    def of_time(self) -> Tensor:
        """Which columns are of time alone, shape (r,)."""

    @property
    def size(self) -> int:
        """Number of columns r."""

    def scaled(self, columns: Tensor) -> Self:
        """Return the columns, each times a number, shape (r,)."""

    def chosen(self, which: Tensor) -> Self:
        """Return some of the columns, by a mask of shape (r,) that holds all of those of time alone."""

    def gram(self, weight: Tensor) -> Tensor:
        """Return Jᵀ diag(weight) J, shape (r, r), of which only the lower triangle is sure to be there."""

    def gram_diagonal(self, weight: Tensor) -> Tensor:
        """Return the diagonal of Jᵀ diag(weight) J, shape (r,)."""

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ, shape (P,)."""

    def times(self, vector: Tensor) -> Tensor:
        """Return J·vector, shape (P,)."""

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V for the columns of V (r, Q), shape (P, Q)."""

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·values, shape (r,)."""

    def variances(self, covariance: Tensor) -> Tensor:
        """Return the diagonal of J·covariance·Jᵀ, shape (P,)."""

    def variances_by_factor(self, factor: Tensor) -> Tensor:
        """Return the same for the covariance (L Lᵀ)⁻¹ of a lower triangular L."""


@dataclass(frozen=True)
class Separable:
    """The columns of the points of a table, sorted by their function of time."""

    functions: PointFunctions
    # Features of the rows, whitened at scale 1, each of shape (N, size); the numbers of a column follow each other.
    blocks: tuple[Tensor, ...]
    time_scale: Tensor  # of each column of time alone, shape (c,)

    @property
    def row(self) -> Tensor:
        """The row of each point, shape (P,)."""
        return self.functions.row

    @property
    def factors(self) -> tuple[Tensor, ...]:
        """The function of time of each block at the points, shape (P,)."""
        return self.functions.factors

    @cached_property
    def time(self) -> Tensor:
        """Columns of time alone, shape (P, c)."""
        return self.functions.time * self.time_scale

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where the columns of each block are; those of time alone come last."""
        sizes = [block.shape[1] for block in self.blocks]
        return tuple(slice(start, stop) for start, stop in pairwise(accumulate(sizes, initial=0)))

    @property
    def size(self) -> int:
        """Number of columns r."""
        return self.first + len(self.time_scale)

    @cached_property
    def first(self) -> int:
        """Number of columns before those of time alone."""
        return sum(block.shape[1] for block in self.blocks)

    @property
    def of_time(self) -> Tensor:
        """Which columns are of time alone, shape (r,)."""
        return torch.arange(self.size) >= self.first

    @cached_property
    def _squares(self) -> tuple[Tensor, ...]:
        return tuple(block.square() for block in self.blocks)

    def scaled(self, columns: Tensor) -> Separable:
        """Return the columns, each times a number, shape (r,)."""
        blocks = tuple(block * columns[place] for block, place in zip(self.blocks, self.places, strict=True))
        return Separable(self.functions, blocks, self.time_scale * columns[self.first :])

    def chosen(self, which: Tensor) -> Separable:
        """Return some of the columns, by a mask of shape (r,) that holds all of those of time alone."""
        blocks = tuple(block.T[which[place]].T for block, place in zip(self.blocks, self.places, strict=True))
        return Separable(self.functions, blocks, self.time_scale)

    def _by_row(self, values: Tensor) -> Tensor:
        """Return sums over the points of each row, shape (N,), of values (P,)."""
        return values.new_zeros(self.functions.count).index_add_(0, self.row, values)

    def gram(self, weight: Tensor) -> Tensor:
        """Return Jᵀ diag(weight) J, shape (r, r), of which only the lower triangle is sure to be there."""
        size, first = self.size, self.first
        matrix = weight.new_zeros(size, size)
        matrix[first:, first:] = self.time.T @ (self.time * weight[:, None])
        if not self.blocks:
            return matrix
        sums = self.functions.sums(weight)
        for inner, (k, j) in zip(sums, self.functions.pairs, strict=False):
            matrix[self.places[j], self.places[k]] = (self.blocks[j].T * inner) @ self.blocks[k]
        for k, (block, place) in enumerate(zip(self.blocks, self.places, strict=True)):
            matrix[first:, place] = self.time_scale[:, None] * (sums[self.functions.part(k)] @ block)
        return matrix

    def gram_diagonal(self, weight: Tensor) -> Tensor:
        """Return the diagonal of Jᵀ diag(weight) J, shape (r,)."""
        parts = [
            squares.T @ self._by_row(weight * factor.square())
            for squares, factor in zip(self._squares, self.factors, strict=True)
        ]
        return torch.cat([*parts, weight @ self.time.square()])

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ, shape (P,)."""
        total: Tensor = self.time.square() @ scale[self.first :]
        for squares, factor, place in zip(self._squares, self.factors, self.places, strict=True):
            total = total + factor.square() * (squares @ scale[place])[self.row]
        return total

    def times(self, vector: Tensor) -> Tensor:
        """Return J·vector, shape (P,)."""
        total = self.time @ vector[self.first :]
        for block, factor, place in zip(self.blocks, self.factors, self.places, strict=True):
            total = total + factor * (block @ vector[place])[self.row]
        return total

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V for the columns of V (r, Q), shape (P, Q)."""
        total: Tensor = self.time @ vectors[self.first :]
        each = [block @ vectors[place] for block, place in zip(self.blocks, self.places, strict=True)]
        # Points are taken in blocks that stay in a cache.
        for part in row_slices(total.shape[0], total.shape[1], CACHE_NUMBERS // 4):
            for by_row, factor in zip(each, self.factors, strict=True):
                total[part].addcmul_(by_row[self.row[part]], factor[part, None])
        return total

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·values, shape (r,)."""
        parts = [
            block.T @ self._by_row(values * factor) for block, factor in zip(self.blocks, self.factors, strict=True)
        ]
        return torch.cat([*parts, self.time.T @ values])

    def variances(self, covariance: Tensor) -> Tensor:
        """Return the diagonal of J·covariance·Jᵀ, shape (P,)."""
        first, blocks, places = self.first, self.blocks, self.places
        inner = [
            ((covariance[places[j], places[k]] @ blocks[k].T) * blocks[j].T).sum(0) for k, j in self.functions.pairs
        ]
        across = [covariance[first:, place] @ block.T for block, place in zip(blocks, places, strict=True)]
        return self._combined(inner, across, (self.time @ covariance[first:, first:] * self.time).sum(1))

    def _combined(self, inner: list[Tensor], across: list[Tensor], alone: Tensor) -> Tensor:
        """Return variances from the parts of pairs of blocks (N,), of blocks and time (c, N), and of time (P,)."""
        if not self.blocks:
            return alone
        doubled = [part if k == j else 2 * part for part, (k, j) in zip(inner, self.functions.pairs, strict=True)]
        mixed = [2 * self.time_scale[:, None] * part for part in across]
        return self.functions.combined(torch.cat([torch.stack(doubled), *mixed])) + alone

    def variances_by_factor(self, factor: Tensor) -> Tensor:
        """Return the same for the covariance (L Lᵀ)⁻¹ of a lower triangular L, which is not inverted.

        A column of L⁻¹Jᵀ is a sum over the blocks of a vector of the row times the block's function of time, and the
        vectors of a block are 0 above its place. With fewer rows than columns this is less work than the inverse.
        """
        first = self.first
        last = factor[first:, first:]
        halves: list[Tensor] = []
        for block, place in zip(self.blocks, self.places, strict=True):
            below = block.new_zeros(self.size - place.start, len(block))
            below[: block.shape[1]] = block.T
            halves.append(torch.linalg.solve_triangular(factor[place.start :, place.start :], below, upper=False))
        inner = [
            (halves[k][self.places[j].start - self.places[k].start :] * halves[j]).sum(0)
            for k, j in self.functions.pairs
        ]
        across = [
            torch.linalg.solve_triangular(last.T, half[first - place.start :], upper=True)
            for half, place in zip(halves, self.places, strict=True)
        ]
        alone = torch.linalg.solve_triangular(last, self.time.T, upper=False).square().sum(0)
        return self._combined(inner, across, alone)


@dataclass(frozen=True)
class SeparableGaussian(SubspaceGaussian):
    """A Gaussian with the variances that it has at the rows it was solved for."""

    variances: Tensor  # of J·theta, shape (P,)
    informed: float  # the sum of curvatures times the part of these that the solver did not leave to the prior

    @property
    def solved_variances(self) -> Tensor:
        """The variances at the rows that it was solved for, shape (P,)."""
        return self.variances

    @property
    def inner_trace(self) -> float:
        """The trace of the covariance C of z: (I + Jᵀ diag(κ) J) C = I, so it falls short of r by Σ κ var."""
        return len(self.inner_mean) - self.informed

    def compact(self, memory: float) -> SubspaceGaussian:
        """Return the same law without the variances."""
        # Row-major, as a file holds the factor: the same numbers in another layout would round differently.
        return SubspaceGaussian(self.precision, self.basis, self.inner_mean, self.inner_factor.contiguous())


@dataclass(frozen=True)
class SeparableSolver:
    """Solves with separable rows for one setting of the scales."""

    precision: Tensor  # diagonal of the prior precision, shape (m,)
    basis: Tensor  # orthonormal directions of the whitened weights, shape (m, r)
    unscaled: SeparableRows  # the rows at scale 1
    columns: Tensor  # the scale of each of their columns, shape (r,)
    remainder: Tensor  # prior variance of each point across the basis, shape (P,)

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.basis.shape[1]

    @cached_property
    def rows(self) -> SeparableRows:
        """The rows at these scales."""
        return self.unscaled.scaled(self.columns)

    def times(self, vector: Tensor) -> Tensor:
        """Return J·vector, shape (P,)."""
        return self.unscaled.times(self.columns * vector)

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·values, shape (r,)."""
        return self.columns * self.unscaled.transposed_times(values)

    def lost_information(self, curvature: Tensor) -> float:
        """Return Σ κ‖R‖²: twice a bound, in nats, on what the cut costs the ELBO at these curvatures."""
        return float(curvature @ self.remainder)

    def solve(self, curvature: Tensor, slope: Tensor) -> SeparableGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        factor, variance = _factorised(self.rows, curvature)
        mean = solved(factor, self.transposed_times(slope))
        informed = float(curvature @ variance)
        return SeparableGaussian(self.precision, self.basis, mean, factor, variance + self.remainder, informed)

    def moments(self, gaussian: SubspaceGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows."""
        variance = gaussian.solved_variances
        if variance is None:
            variance = self.rows.variances(gaussian.inner_covariance).clamp_min(0) + self.remainder
        return self.times(gaussian.inner_mean), variance

    def moved(self, gaussian: SubspaceGaussian, slope: Tensor) -> SubspaceGaussian:
        """Return the Gaussian after a Newton step of its mean, where the points have these slopes (P,)."""
        left = self.transposed_times(slope) - gaussian.inner_mean
        return replace(gaussian, inner_mean=gaussian.inner_mean + solved(gaussian.inner_factor, left))

    def thinned(self, curvature: Tensor, tolerance: float) -> ThinnedSolver:
        """Return a solver for which the directions of least information at these curvatures (P,) are uncorrelated.

        `tolerance` is how much information, in nats, they may have together.
        """
        squares = self.columns.square()
        ordered, order = (self.unscaled.gram_diagonal(curvature) * squares).sort(stable=True)
        kept = torch.ones(self.rank, dtype=torch.bool)
        kept[order[ordered.cumsum(0) <= tolerance]] = False
        # Those of time alone are few.
        kept |= self.unscaled.of_time
        remainder = self.remainder + self.unscaled.squared_norms(squares * ~kept)
        rows = self.unscaled.chosen(kept).scaled(self.columns[kept])
        return ThinnedSolver(self, kept.nonzero().squeeze(1), rows, remainder)


@dataclass(frozen=True)
class ThinnedSolver:
    """Solves for the covariance of some directions; to the others it leaves their prior variance.

    These have a mean, but only to first order in their information; `moved` of the whole solver brings it to its place.
    """

    whole: SeparableSolver
    kept: Tensor  # the directions with a covariance, shape (k,)
    rows: SeparableRows  # in these
    remainder: Tensor  # prior variance of each point across these, shape (P,)

    @property
    def precision(self) -> Tensor:
        """Diagonal of the prior precision, shape (m,)."""
        return self.whole.precision

    def lost_information(self, curvature: Tensor) -> float:
        """Return Σ κ‖R‖²: twice a bound, in nats, on what the cuts cost the ELBO at these curvatures."""
        return float(curvature @ self.remainder)

    def solve(self, curvature: Tensor, slope: Tensor) -> SeparableGaussian:
        """Return the Gaussian for curvatures (P,) and slopes (P,)."""
        whole, size = self.whole, self.whole.rank
        inner, variance = _factorised(self.rows, curvature)
        among = solved(inner, self.rows.transposed_times(slope))
        mean = whole.transposed_times(slope - curvature * self.rows.times(among))
        mean[self.kept] = among
        # Whole rows are copied, of the transpose first: much faster than one number at a time.
        wide = inner.new_zeros(size, len(self.kept)).index_copy_(0, self.kept, inner.T)
        factor = torch.eye(size, dtype=inner.dtype).index_copy_(0, self.kept, wide.T.contiguous())
        informed = float(curvature @ variance)
        return SeparableGaussian(whole.precision, whole.basis, mean, factor, variance + self.remainder, informed)

    def moments(self, gaussian: SubspaceGaussian) -> tuple[Tensor, Tensor]:
        """Return mean and variance of J·theta at the solver's own rows."""
        return self.whole.moments(gaussian)


def _factorised(rows: SeparableRows, curvature: Tensor) -> tuple[Tensor, Tensor]:
    """Return the Cholesky factor of the precision of z, and the variances of all points, shape (P,)."""
    matrix = rows.gram(curvature)
    matrix.diagonal().add_(1.0)
    factor = cholesky(matrix)
    if any(len(block) > rows.size for block in rows.blocks):
        # With many rows the inverse pays.
        return factor, rows.variances(torch.cholesky_inverse(factor)).clamp_min(0)
    return factor, rows.variances_by_factor(factor).clamp_min(0)


@dataclass(frozen=True)
class SeparableScales:
    """A separable solver for any scales of the prior: another scale costs a multiplication of columns."""

    unit: Tensor  # prior precisions at scale 1, shape (m,)
    basis: Tensor  # orthonormal directions, each within the weights of one term, shape (m, r)
    rows: SeparableRows
    owner: Tensor  # a weight of the group that each direction belongs to, shape (r,)
    cut: tuple[tuple[int, Tensor], ...]  # of each reduced term a weight, and the variance across its directions (P,)
    name: ClassVar[str] = "separable"
    reason: ClassVar[str] = "every column is a feature of the row times a function of time"

    @property
    def rank(self) -> int:
        """Number of directions."""
        return self.basis.shape[1]

    @property
    def numbers(self) -> int:
        """How many numbers the largest matrix of a step holds: features of all rows."""
        return self.rank * max(self.rank, *(len(block) for block in self.rows.blocks), 1)

    def at(self, multipliers: Tensor) -> SeparableSolver:
        """Return the solver for scales (m,), which must be one number over the weights of a reduced term."""
        remainder = torch.zeros_like(self.rows.time[:, 0])
        for weight, variance in self.cut:
            remainder += multipliers[weight] ** 2 * variance
        return SeparableSolver(self.unit / multipliers**2, self.basis, self.rows, multipliers[self.owner], remainder)

    def directions(self, start: int, stop: int) -> Tensor:
        """Return the directions of the weights from `start` to `stop`."""
        return ((self.owner >= start) & (self.owner < stop)).nonzero().squeeze(1)


@dataclass(frozen=True)
class SeparableTerm:
    """Neighbouring weights whose columns are features of the rows times one function of time."""

    features: Tensor | None  # shape (N, size); None for columns of time alone
    factor: Tensor  # shape (P,), or (P, size) for columns of time alone


def separable_scales(row: Tensor, terms: Sequence[SeparableTerm], unit: Tensor) -> SeparableScales:
    """Return the solver of terms that follow each other in the order of their weights.

    Parameters
    ----------
    row : Tensor of shape (P,)
        The row of each point.
    terms : sequence of SeparableTerm
        The columns. Features of one function of time are joined. A term of more features than rows, or than 200, is
        reduced to the directions in which these vary most over the rows; what lies across them keeps its prior.
    unit : Tensor of shape (m,)
        Prior precisions at scale 1.
    """
    factors: list[Tensor] = []
    blocks: list[list[Tensor]] = []
    bases: list[list[Tensor]] = []
    own: list[list[Tensor]] = []
    times, time_bases, time_own = [], [], []
    cut: list[tuple[int, Tensor]] = []
    start = 0
    for features, factor in ((term.features, term.factor) for term in terms):
        size = factor.shape[1] if features is None else features.shape[1]
        precision = unit[start : start + size]
        weights = torch.arange(start, start + size)
        if features is None:
            times.append(factor / precision.sqrt())
            time_bases.append(_unit_columns(len(unit), weights))
            time_own.append(weights)
        else:
            whitened, basis, remainder = _reduced(features / precision.sqrt())
            if remainder is not None:
                cut.append((start, factor.square() * remainder[row]))
            lifted = unit.new_zeros(len(unit), basis.shape[1])
            lifted[start : start + size] = basis
            place = next((k for k, known in enumerate(factors) if torch.equal(known, factor)), len(factors))
            if place == len(factors):
                factors.append(factor)
                blocks.append([])
                bases.append([])
                own.append([])
            blocks[place].append(whitened)
            bases[place].append(lifted)
            own[place].append(weights if remainder is None else torch.full((basis.shape[1],), start))
        start += size
    joined = tuple(torch.cat([part.T for part in parts]).T for parts in blocks)
    count = len(joined[0]) if joined else 0
    alone = torch.cat(times, 1)
    rows = Separable(PointFunctions(row, count, tuple(factors), alone), joined, alone.new_ones(alone.shape[1]))
    basis = torch.cat([*(part for parts in bases for part in parts), *time_bases], 1)
    owner = torch.cat([*(part for parts in own for part in parts), *time_own])
    return SeparableScales(unit, basis, rows, owner, tuple(cut))


def _unit_columns(size: int, places: Tensor) -> Tensor:
    columns = torch.zeros(size, len(places), dtype=torch.float64)
    columns[places, torch.arange(len(places))] = 1.0
    return columns


def _reduced(whitened: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return features (N, k) in few directions, these, and the squared length of each row across them, if any."""
    count, size = whitened.shape
    if size <= min(count, _MOST_DIRECTIONS):
        return whitened, torch.eye(size, dtype=whitened.dtype), None
    if size <= count:
        values, basis = torch.linalg.eigh(whitened.T @ whitened)
    else:
        values, vectors = torch.linalg.eigh(whitened @ whitened.T)
        basis = torch.linalg.qr(whitened.T @ vectors.flip(1))[0].flip(1)
    kept = int((values[-_MOST_DIRECTIONS:] > _LEAST_SHARE * values.sum()).sum())
    basis = basis[:, basis.shape[1] - kept :].contiguous()
    inside = whitened @ basis
    return inside, basis, (whitened.square().sum(1) - inside.square().sum(1)).clamp_min(0)
