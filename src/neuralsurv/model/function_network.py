"""A network given as a function: Jacobian rows and products by automatic differentiation, in blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import jacrev, vjp, vmap

from neuralsurv.model.network import Pullback
from neuralsurv.model.rows import DenseRows, row_slices

Function = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class FunctionNetwork:
    """g as any differentiable function of flat weights; the closed forms of the MLP have this as their twin.

    Parameters
    ----------
    function : callable
        From theta (m,), one time () and the covariates (d,) of one person to g, a single number.
    size : int
        Number of weights m.
    symmetric : bool
        Whether a symmetric prior of the weights makes the prior of g symmetric about 0.
    scale : float
        Standard deviation of the weights that a search starts from.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.function_network import FunctionNetwork
    >>> wave = FunctionNetwork(lambda theta, t, x: theta[0] * torch.sin(theta[1] * t + x[0]), size=2)
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> wave.jacobian(torch.tensor([2.0, 0.0], dtype=torch.float64), one, 0 * one[:, None]).tolist()
    [[0.0, 2.0]]
    """

    function: Function
    size: int
    symmetric: bool = False
    scale: float = 0.5

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return normal weights."""
        return self.scale * torch.randn(self.size, generator=generator, dtype=torch.float64)

    def _at(self, time: Tensor, x: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda theta: vmap(self.function, in_dims=(None, 0, 0))(theta, time, x)

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points."""
        return self._at(time, x)(theta) if len(time) else theta.new_zeros(0)

    def bind(self, time: Tensor, x: Tensor) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
        """Return the map from theta to g at these points and its pullback."""

        def evaluate(theta: Tensor) -> tuple[Tensor, Pullback]:
            value, pullback = vjp(self._at(time, x), theta)[:2]
            return value, lambda u: pullback(u)[0]

        return evaluate

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, DenseRows]:
        """Return g and the rows of the Jacobian as a matrix."""
        return self.value(theta, time, x), DenseRows(self.jacobian(theta, time, x))

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows of the Jacobian, shape (P, m), differentiated in blocks of points."""
        out = theta.new_empty(len(time), self.size)
        row = vmap(jacrev(self.function), in_dims=(None, 0, 0))
        for part in row_slices(len(time), self.size):
            out[part] = row(theta, time[part], x[part])
        return out

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v without forming J: u -> Jᵀu is linear in u, and its own pullback is v -> J·v."""
        value, pullback = self.bind(time, x)(theta)
        back = vjp(pullback, torch.zeros_like(value))[1]
        product: Tensor = back(v)[0]
        return product

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u without forming J."""
        return self.bind(time, x)(theta)[1](u)
