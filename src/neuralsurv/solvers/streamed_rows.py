"""Rows of a Jacobian that is too large to hold: recomputed, block by block, at every use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from neuralsurv.solvers.rows import Rows, row_slices


class Differentiable(Protocol):
    """What streamed rows ask of a network."""

    @property
    def size(self) -> int:
        """Number of weights m."""

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows as a matrix."""

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v."""

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u."""


@dataclass(frozen=True)
class StreamedRows(Rows):
    """Rows that are recomputed at every use."""

    network: Differentiable
    theta: Tensor  # where it is differentiated, shape (m,)
    # The points, shapes (P,) and (P, p).
    time: Tensor
    x: Tensor
    recomputed: ClassVar[bool] = True

    @property
    def shape(self) -> tuple[int, int]:
        """P and m."""
        return len(self.time), self.network.size

    def take(self, which: slice | Tensor) -> StreamedRows:
        """Return some of the rows."""
        return StreamedRows(self.network, self.theta, self.time[which], self.x[which])

    def dense(self) -> Tensor:
        """Return the matrix."""
        return self.network.jacobian(self.theta, self.time, self.x)

    def times(self, weights: Tensor) -> Tensor:
        """Return J·v."""
        return self.network.jvp(self.theta, self.time, self.x, weights)

    def transposed_times(self, values: Tensor) -> Tensor:
        """Return Jᵀ·u."""
        return self.network.vjp(self.theta, self.time, self.x, values)

    def _by_blocks(self, width: int, use: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply `use` to each block of rows, (block, m) to (block, width), and return the results joined."""
        out = self.theta.new_empty(self.shape[0], width)
        for part in row_slices(*self.shape):
            out[part] = use(self.take(part).dense())
        return out

    def gram(self, others: Rows, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ; a single other row by one product, several in one pass over the blocks."""
        right = others.dense() * scale
        if len(right) == 1:
            return self.times(right[0])[:, None]
        return self._by_blocks(len(right), lambda block: block @ right.T)

    def squared_norms(self, scale: Tensor) -> Tensor:
        """Return the diagonal of J diag(scale) Jᵀ."""
        return self._by_blocks(1, lambda block: (block.square() @ scale)[:, None]).squeeze(1)
