"""The inverse Hessian that a quasi-Newton search learns from its steps: a matrix (BFGS) or the last steps (L-BFGS)."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import torch
from torch import Tensor

# Up to this many weights the inverse Hessian is a matrix (32 MiB); beyond, the last pairs of steps represent it.
_LARGEST_DENSE = 2000
_REMEMBERED_PAIRS = 30


class DenseInverseHessian:
    """The inverse Hessian of BFGS as a matrix."""

    def __init__(self, size: int) -> None:
        self._matrix = torch.eye(size, dtype=torch.float64)
        self.fresh = True  # whether nothing has been learned yet

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradient."""
        return -(self._matrix @ gradient)

    def update(self, step: Tensor, change: Tensor) -> None:
        """Learn from a step and the change of the gradient along it, whose product must be positive."""
        product = float(step @ change)
        if self.fresh:
            self._matrix *= product / float(change @ change)
            self.fresh = False
        image = self._matrix @ change
        # Both rank-one terms and their transposes in one pass over the matrix, which is larger than a cache.
        half = ((1 + float(change @ image) / product) / 2 * step - image) / product
        self._matrix.addmm_(torch.stack([step, half], 1), torch.stack([half, step]))


class LimitedInverseHessian:
    """The inverse Hessian of L-BFGS, as the last pairs of steps, for many weights.

    `metric` multiplies a vector by the inverse Hessian before any step; by default the identity, scaled by the last
    step.
    """

    def __init__(self, pairs: int = _REMEMBERED_PAIRS, metric: Callable[[Tensor], Tensor] | None = None) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, float]] = deque(maxlen=pairs)
        self._metric = metric or self._scaled

    @property
    def fresh(self) -> bool:
        """Whether nothing has been learned yet."""
        return not self._pairs

    def _scaled(self, vector: Tensor) -> Tensor:
        if self.fresh:
            return vector
        _, change, product = self._pairs[-1]
        return vector * (product / float(change @ change))

    def direction(self, gradient: Tensor) -> Tensor:
        """Return minus the inverse Hessian times the gradient (two-loop recursion)."""
        result = -gradient
        shares = []
        for step, change, product in reversed(self._pairs):
            share = float(step @ result) / product
            shares.append(share)
            result = result - share * change
        result = self._metric(result)
        for (step, change, product), share in zip(self._pairs, reversed(shares), strict=True):
            result = result + (share - float(change @ result) / product) * step
        return result

    def update(self, step: Tensor, change: Tensor) -> None:
        """Learn from a step and the change of the gradient along it, whose product must be positive."""
        self._pairs.append((step, change, float(step @ change)))


InverseHessian = DenseInverseHessian | LimitedInverseHessian


def new_inverse_hessian(size: int) -> InverseHessian:
    """Return an inverse Hessian that has learned nothing: a matrix where that is cheap."""
    return DenseInverseHessian(size) if size <= _LARGEST_DENSE else LimitedInverseHessian()
