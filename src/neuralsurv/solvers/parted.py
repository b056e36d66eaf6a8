r"""Separable rows in parts with the same columns, of which some come again, times a factor that depends on the part.

With columns :math:`J_k` in part k, column q of the whole is :math:`f_{kq}` times column s(q) of :math:`J_k`, so that
its Gram matrix is the sum over parts of those of :math:`J_k`, with rows and columns repeated and multiplied. K parts
cost K times one, however many columns come again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from neuralsurv.solvers.separable import SeparableRows, SeparableScales
from neuralsurv.solvers.triangles import mirrored

# Runs of columns that are added slice by slice; more are added one by one.
_MOST_RUNS = 50


class Copy(NamedTuple):
    """Weights whose columns are those of other weights, times a factor in each part."""

    source: slice  # of the weights of a part
    target: slice  # of all weights
    factors: Tensor  # shape (K,)


@dataclass(frozen=True)
class PartedRows:
    """Rows in parts; they are again `SeparableRows`."""

    parts: tuple[SeparableRows, ...]
    places: tuple[Tensor, ...]  # where the rows of each part are among all P
    source: Tensor  # the column of a part that each column comes from, shape (r,): first each one, then some again
    factors: Tensor  # what it is multiplied by in each part, shape (K, r)

    @property
    def blocks(self) -> tuple[Tensor, ...]:
        """Features of the rows of a table, which all parts share."""
        return self.parts[0].blocks

    @property
    def size(self) -> int:
        """Number of columns r."""
        return len(self.source)

    @property
    def of_time(self) -> Tensor:
        """Which columns are of time alone, shape (r,)."""
        return self.parts[0].of_time[self.source]

    @property
    def time(self) -> Tensor:
        """Columns of time alone."""
        return self._gathered([part.time for part in self.parts])

    def scaled(self, columns: Tensor) -> PartedRows:
        """Return the columns, each times a number, shape (r,)."""
        return PartedRows(self.parts, self.places, self.source, self.factors * columns)

    def chosen(self, which: Tensor) -> PartedRows:
        """Return some of the columns, by a mask of shape (r,) that holds all of those of time alone."""
        needed = torch.zeros(self.parts[0].size, dtype=torch.bool)
        needed[self.source[which]] = True
        number = needed.cumsum(0) - 1
        parts = tuple(part.chosen(needed) for part in self.parts)
        return PartedRows(parts, self.places, number[self.source[which]], self.factors[:, which])

    def gram(self, weight: Tensor) -> Tensor:
        """Return Jᵀ diag(weight) J, shape (r, r)."""
        size = len(self.source)
        matrix = weight.new_zeros(size, size)
        for part, place, factor in self._each():
            own = mirrored(part.gram(weight[place])).index_select(0, self.source).mul_(factor[:, None])
            matrix += own.index_select(1, self.source).mul_(factor)
        return matrix

    def gram_diagonal(self, weight: Tensor) -> Tensor:
        """Return the diagonal of Jᵀ diag(weight) J, shape (r,)."""
        total = torch.zeros_like(self.factors[0])
        for part, place, factor in self._each():
            total += factor.square() * part.gram_diagonal(weight[place])[self.source]
        return total

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ, shape (P,)."""
        return self._gathered(
            [part.squared_norms(self._added(factor.square() * scale)) for part, _, factor in self._each()]
        )

    def times(self, vector: Tensor) -> Tensor:
        """Return J·vector, shape (P,)."""
        return self._gathered([part.times(self._added(factor * vector)) for part, _, factor in self._each()])

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V for the columns of V (r, Q), shape (P, Q)."""
        return self._gathered(
            [part.times_each(self._added(factor[:, None] * vectors)) for part, _, factor in self._each()]
        )

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·values, shape (r,)."""
        total = torch.zeros_like(self.factors[0])
        for part, place, factor in self._each():
            total += factor * part.transposed_times(values[place])[self.source]
        return total

    def variances(self, covariance: Tensor) -> Tensor:
        """Return the diagonal of J·covariance·Jᵀ, shape (P,)."""
        found = []
        for part, _, factor in self._each():
            once = self._added(factor[:, None] * covariance)
            found.append(part.variances(self._added((once * factor).T)))
        return self._gathered(found)

    def variances_by_factor(self, factor: Tensor) -> Tensor:
        """Return the same for the covariance (L Lᵀ)⁻¹ of a lower triangular L."""
        return self.variances(torch.cholesky_inverse(factor))

    def _each(self) -> zip[tuple[SeparableRows, Tensor, Tensor]]:
        return zip(self.parts, self.places, self.factors, strict=True)

    def _added(self, values: Tensor) -> Tensor:
        """Return sums (r', …) of values (r, …) over the columns that come from the same one."""
        out = values.new_zeros(self.parts[0].size, *values.shape[1:])
        if len(self._runs) > _MOST_RUNS:
            return out.index_add_(0, self.source, values)
        # Sums of slices are quicker where they are few.
        for start, stop in pairwise(self._runs):
            first = int(self.source[start])
            out[first : first + stop - start] += values[start:stop]
        return out

    @cached_property
    def _runs(self) -> list[int]:
        """Where runs of columns begin that come from neighbouring ones, and where the last run ends."""
        breaks = (self.source.diff() != 1).nonzero().squeeze(1) + 1
        return [0, *breaks.tolist(), len(self.source)]

    def _gathered(self, values: list[Tensor]) -> Tensor:
        out = values[0].new_empty(sum(map(len, self.places)), *values[0].shape[1:])
        for own, place in zip(values, self.places, strict=True):
            out[place] = own
        return out


def parted_scales(
    parts: Sequence[SeparableScales], places: Sequence[Tensor], unit: Tensor, shared: Tensor, copies: Sequence[Copy]
) -> SeparableScales:
    """Return the solver of rows in parts.

    Parameters
    ----------
    parts : sequence of SeparableScales
        The rows of each part, with the same features and functions.
    places : sequence of Tensor
        Where the rows of each part are among all P.
    unit : Tensor of shape (m,)
        Prior precisions of all weights at scale 1.
    shared : Tensor of shape (m',)
        The place among all weights of each weight of a part.
    copies : sequence of Copy
        The other weights.
    """
    first, count = parts[0], len(parts)
    basis = [unit.new_zeros(len(unit), first.rank)]
    basis[0][shared] = first.basis
    source, factors, owner = [torch.arange(first.rank)], [unit.new_ones(count, first.rank)], [shared[first.owner]]
    listed = [(int(shared[weight]), weight, unit.new_ones(count)) for weight, _ in first.cut]
    for copy in copies:
        columns = first.directions(copy.source.start, copy.source.stop)
        # Whitened columns differ by the root of the prior precisions, of which a term has one.
        factor = copy.factors * (first.unit[copy.source.start] / unit[copy.target.start]).sqrt()
        lifted = unit.new_zeros(len(unit), len(columns))
        lifted[copy.target] = first.basis[copy.source][:, columns]
        basis.append(lifted)
        source.append(columns)
        factors.append(factor[:, None].expand(-1, len(columns)))
        owner.append(first.owner[columns] - copy.source.start + copy.target.start)
        listed += [(copy.target.start, weight, factor) for weight, _ in first.cut if weight == copy.source.start]
    cut = []
    for target, weight, factor in listed:
        variance = unit.new_empty(sum(map(len, places)))
        for part, place, times in zip(parts, places, factor, strict=True):
            variance[place] = times.square() * dict(part.cut)[weight]
        cut.append((target, variance))
    rows = PartedRows(
        tuple(part.rows for part in parts), tuple(places), torch.cat(source), torch.cat(factors, 1).contiguous()
    )
    return SeparableScales(unit, torch.cat(basis, 1), rows, torch.cat(owner), tuple(cut))
