"""Rows of a Jacobian that is too large to hold: recomputed, block by block, at every use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from neuralsurv.solvers.rows import Rows


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

    def gram(self, others: Rows, scale: Tensor) -> Tensor:
        """Return J diag(scale) J'ᵀ; a single other row by one product, several in one pass over the blocks."""
        right = others.dense() * scale
        if len(right) == 1:
            return self.times(right[0])[:, None]
        return self.times_basis(right.T)
