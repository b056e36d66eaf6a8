r"""The rows J (P×m) of a linear problem, dense or as outer products that are never formed.

For a network of dense layers the part of a row that belongs to one layer is the outer product of the derivatives b
with the inputs (a, 1) of that layer. Products with J, the Gram matrix
:math:`J S J'^\top = \sum_\text{layers} (A S_a A'^\top)\circ(B B'^\top)` and norms then need the factors only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import torch
from torch import Tensor

# Blocks of rows are made so that a temporary holds at most this many numbers (128 MiB in float64).
BLOCK_NUMBERS = 2**24
# A block of this many (8 MiB) stays in a cache, and operations on it are several times faster.
CACHE_NUMBERS = 2**20


def row_slices(count: int, width: int, numbers: int | None = None) -> Iterator[slice]:
    """Yield slices of rows of `width` numbers each, such that a block holds at most `numbers` of them."""
    step = max(1, (BLOCK_NUMBERS if numbers is None else numbers) // max(1, width))
    for first in range(0, count, step):
        yield slice(first, min(count, first + step))


class Products(Protocol):
    """What can be multiplied by vectors from the right, whatever it is made of."""

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V for the columns of V (r, Q), shape (P, Q)."""


class Rows(ABC):
    """P rows of length m."""

    # Whether the rows are recomputed at every use, so that each pass over them is expensive.
    recomputed: ClassVar[bool] = False

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """P and m."""

    @abstractmethod
    def take(self, which: slice | Tensor) -> Rows:
        """Return some of the rows."""

    @abstractmethod
    def dense(self) -> Tensor:
        """Return the matrix, shape (P, m)."""

    @abstractmethod
    def times(self, weights: Tensor) -> Tensor:
        """Return J·v, shape (P,)."""

    @abstractmethod
    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·u, shape (m,)."""

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V for the columns of V (m, Q), shape (P, Q).

        One by one: each product with rows in layers is a matrix product already, and forming the rows takes longer.
        """
        parts = [self.times(vector) for vector in vectors.T.contiguous()]
        return torch.stack(parts, 1) if parts else vectors.new_zeros(self.shape[0], 0)

    def times_basis(self, basis: Tensor) -> Tensor:
        """Return J·V for a wide basis V (m, r), shape (P, r), from the matrix of one block of rows after another."""
        product = basis.new_empty(self.shape[0], basis.shape[1])
        for part in row_slices(*self.shape):
            torch.mm(self.take(part).dense(), basis, out=product[part])
        return product

    def transposed_times_each(self, values: Tensor) -> Tensor:
        """Return Jᵀ·U for the columns of U (P, Q), shape (m, Q)."""
        parts = [self.transposed_times(column) for column in values.T.contiguous()]
        return torch.stack(parts, 1) if parts else values.new_zeros(self.shape[1], 0)

    @abstractmethod
    def gram(self, others: Self, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ with rows J' of the same kind, shape (P, P')."""

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ, shape (P,)."""
        parts = [self.take(part).dense().square() @ scale for part in row_slices(*self.shape)]
        return torch.cat(parts) if parts else scale.new_zeros(0)

    def after(self, lead: LayeredRows) -> Rows:
        """Return these rows joined to `lead`, the rows of the weights before them."""
        return JoinedRows(lead, self)

    def split(self) -> tuple[Tensor, LayeredRows]:
        """Return the columns of the first layer as a matrix, and the layers after it."""
        raise TypeError(f"{type(self).__name__} have no layers to split; only a network of dense layers has them.")


@dataclass(frozen=True)
class DenseRows(Rows):
    """Rows as a matrix; a matrix in single precision is multiplied in single precision."""

    matrix: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        """P and m."""
        return self.matrix.shape[0], self.matrix.shape[1]

    def take(self, which: slice | Tensor) -> DenseRows:
        """Return some of the rows."""
        return DenseRows(self.matrix[which])

    def dense(self) -> Tensor:
        """Return the matrix."""
        return self.matrix

    def times(self, weights: Tensor) -> Tensor:
        """Return J·v."""
        return (self.matrix @ weights.to(self.matrix.dtype)).to(weights.dtype)

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·u."""
        return (self.matrix.T @ values.to(self.matrix.dtype)).to(values.dtype)

    def times_each(self, vectors: Tensor) -> Tensor:
        """Return J·V."""
        return self.matrix @ vectors

    def transposed_times_each(self, values: Tensor) -> Tensor:
        """Return Jᵀ·U."""
        return self.matrix.T @ values

    def gram(self, others: Rows, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ."""
        # The other rows are often few, or one: scaling those spares a copy of these.
        product: Tensor = self.matrix @ (others.dense() * scale).T
        return product


@dataclass(frozen=True)
class LayeredRows(Rows):
    """Rows of a network of dense layers: for each layer the inputs A (P, a) and the derivatives B (P, b).

    A row holds, layer by layer, the outer product of b with a (row-major) and then b itself, for the bias.
    """

    layers: tuple[tuple[Tensor, Tensor], ...]

    @property
    def shape(self) -> tuple[int, int]:
        """P and m."""
        return len(self.layers[0][0]), sum(b.shape[1] * (a.shape[1] + 1) for a, b in self.layers)

    def take(self, which: slice | Tensor) -> LayeredRows:
        """Return some of the rows."""
        return LayeredRows(tuple((a[which], b[which]) for a, b in self.layers))

    def dense(self) -> Tensor:
        """Return the matrix."""
        count, size = self.shape
        out = self.layers[0][0].new_empty(count, size)
        start = 0
        for a, b in self.layers:
            stop = start + a.shape[1] * b.shape[1]
            torch.mul(b[:, :, None], a[:, None, :], out=out[:, start:stop].view(count, b.shape[1], a.shape[1]))
            out[:, stop : stop + b.shape[1]] = b
            start = stop + b.shape[1]
        return out

    def _cut(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cut a vector over the weights into a matrix (b, a) and a bias (b,) for each layer."""
        parts, start = [], 0
        for a, b in self.layers:
            stop = start + a.shape[1] * b.shape[1]
            parts.append((flat[start:stop].view(b.shape[1], a.shape[1]), flat[stop : stop + b.shape[1]]))
            start = stop + b.shape[1]
        return parts

    def times(self, weights: Tensor) -> Tensor:
        """Return J·v."""
        total = self.layers[0][0].new_zeros(self.shape[0])
        for (a, b), (matrix, bias) in zip(self.layers, self._cut(weights), strict=True):
            total += (torch.addmm(bias, a, matrix.T) * b).sum(1)
        return total

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·u."""
        parts = []
        for a, b in self.layers:
            scaled = b * values[:, None]
            parts += [(scaled.T @ a).reshape(-1), scaled.sum(0)]
        return torch.cat(parts)

    def gram(self, others: Self, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ from the factors, where the scale is the same for all outputs of an input."""
        if others.shape[0] == 1:
            return self.times(others.dense().squeeze(0) * scale)[:, None]
        if not self._separable(scale):
            parts = [(self.take(part).dense() * scale) @ others.dense().T for part in row_slices(*self.shape)]
            return torch.cat(parts) if parts else scale.new_zeros(0, others.shape[0])
        total = self.layers[0][0].new_zeros(self.shape[0], others.shape[0])
        for (a, b), (a_other, b_other), (weights, bias) in zip(
            self.layers, others.layers, self._cut(scale), strict=True
        ):
            total += torch.addmm(bias[:1], a * weights[0], a_other.T) * (b @ b_other.T)
        return total

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ."""
        total = self.layers[0][0].new_zeros(self.shape[0])
        for (a, b), (weights, bias) in zip(self.layers, self._cut(scale), strict=True):
            total += (torch.addmm(bias, a.square(), weights.T) * b.square()).sum(1)
        return total

    def squares(self) -> LayeredRows:
        """Return the rows whose elements are the squares of these."""
        return LayeredRows(tuple((a.square(), b.square()) for a, b in self.layers))

    def after(self, lead: LayeredRows) -> LayeredRows:
        """Return the layers of `lead` followed by these."""
        return LayeredRows((*lead.layers, *self.layers))

    def split(self) -> tuple[Tensor, LayeredRows]:
        """Return the columns of the first layer as a matrix, and the layers after it."""
        return LayeredRows(self.layers[:1]).dense(), LayeredRows(self.layers[1:])

    def _separable(self, scale: Tensor) -> bool:
        return all(
            bool((weights == weights[:1]).all()) and bool((bias == bias[:1]).all())
            for weights, bias in self._cut(scale)
        )


@dataclass(frozen=True)
class JoinedRows(Rows):
    """Rows side by side: those of the leading weights, then those of the others."""

    lead: Rows
    tail: Rows

    @property
    def shape(self) -> tuple[int, int]:
        """P and m."""
        return self.lead.shape[0], self.lead.shape[1] + self.tail.shape[1]

    def take(self, which: slice | Tensor) -> JoinedRows:
        """Return some of the rows."""
        return JoinedRows(self.lead.take(which), self.tail.take(which))

    def dense(self) -> Tensor:
        """Return the matrix."""
        return torch.cat([self.lead.dense(), self.tail.dense()], 1)

    def times(self, weights: Tensor) -> Tensor:
        """Return J·v."""
        cut = self.lead.shape[1]
        return self.lead.times(weights[:cut]) + self.tail.times(weights[cut:])

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·u."""
        return torch.cat([self.lead.transposed_times(values), self.tail.transposed_times(values)])

    def gram(self, others: Self, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ."""
        cut = self.lead.shape[1]
        return self.lead.gram(others.lead, scale[:cut]) + self.tail.gram(others.tail, scale[cut:])

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ."""
        cut = self.lead.shape[1]
        return self.lead.squared_norms(scale[:cut]) + self.tail.squared_norms(scale[cut:])
