r"""The network g(t, x; theta): its value and the products of its Jacobian, for one flat weight vector.

For a network of dense layers the Jacobian never has to be formed by differentiation: with the inputs
:math:`A_l` of layer l and the back-propagated derivatives :math:`B_l` of g with respect to its pre-activations,
the row of a point is the outer product of the two, layer by layer. Jacobian, J·v and Jᵀ·u all follow from them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from neuralsurv.errors import InputError


class Network(Protocol):
    """What the rest of the library asks of a network."""

    @property
    def size(self) -> int:
        """Number of weights m."""
        ...

    @property
    def symmetric(self) -> bool:
        """Whether a symmetric prior of the weights makes the prior of g symmetric about 0."""
        ...

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return a random weight vector for which g is of moderate size, a place to start a search."""
        ...

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points: `theta` (m,), `time` (P,), `x` (P, d)."""
        ...

    def value_and_pullback(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return g and the map u -> Jᵀu."""
        ...

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows of the Jacobian, shape (P, m)."""
        ...

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v, shape (P,)."""
        ...

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u, shape (m,)."""
        ...


def _silu_slope(z: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate))


# Each activation with its derivative as a function of the pre-activation.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": (torch.relu, lambda z: (z > 0).to(z.dtype)),
    "tanh": (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    "silu": (torch.nn.functional.silu, _silu_slope),
}
ACTIVATIONS = tuple(_ACTIVATIONS)


@dataclass(frozen=True)
class MLP:
    """A multilayer perceptron on (t, x) with a linear last layer and one output.

    Parameters
    ----------
    covariates : int
        Number of covariates d; the network has d + 1 inputs, time first.
    hidden : tuple of int
        Width of each hidden layer; ``(16, 16)`` means two, ``()`` a linear g.
    activation : {"relu", "tanh", "silu"}
        Activation of the hidden layers.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.model.network import MLP
    >>> network = MLP(covariates=2, hidden=(16, 16))
    >>> network.size
    353
    >>> theta = torch.zeros(network.size, dtype=torch.float64)
    >>> network.value(theta, torch.zeros(3, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64))
    tensor([0., 0., 0.], dtype=torch.float64)
    """

    covariates: int
    hidden: tuple[int, ...] = (16, 16)
    activation: str = "relu"

    def __post_init__(self) -> None:
        """Check the architecture."""
        if self.activation not in _ACTIVATIONS:
            raise InputError(f"activation {self.activation!r} is not known; use one of {', '.join(ACTIVATIONS)}.")
        if any(not isinstance(width, int) or width < 1 for width in self.hidden):
            raise InputError(
                f"hidden={self.hidden!r} must hold whole numbers of at least 1, one for each hidden layer."
            )

    @property
    def symmetric(self) -> bool:
        """True: the last layer is linear, so flipping its signs flips g."""
        return True

    @cached_property
    def _shapes(self) -> tuple[tuple[int, int], ...]:
        widths = (self.covariates + 1, *self.hidden, 1)
        return tuple(zip(widths[1:], widths[:-1], strict=True))

    @cached_property
    def size(self) -> int:
        """Number of weights m."""
        return sum(rows * (columns + 1) for rows, columns in self._shapes)

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return standard normal weights divided by the root of each layer's fan-in.

        Unscaled draws from N(0, I) make g of a wide network so large that its sigmoid is a step.
        """
        theta = torch.randn(self.size, generator=generator, dtype=torch.float64)
        for weight, bias in self.layers(theta):
            root = (weight.shape[1] + 1) ** 0.5
            weight /= root
            bias /= root
        return theta

    def layers(self, theta: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cut the flat vector into a weight matrix and a bias for each layer (views, in that order)."""
        parts, start = [], 0
        for rows, columns in self._shapes:
            stop = start + rows * columns
            parts.append((theta[start:stop].reshape(rows, columns), theta[stop : stop + rows]))
            start = stop + rows
        return parts

    def _forward(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[list[Tensor], list[Tensor], Tensor]:
        """Return the inputs of each layer, the hidden pre-activations, and g."""
        function = _ACTIVATIONS[self.activation][0]
        current = torch.cat([time[:, None], x], dim=1)
        inputs, before = [], []
        for weight, bias in (layers := self.layers(theta))[:-1]:
            inputs.append(current)
            before.append(torch.addmm(bias, current, weight.T))
            current = function(before[-1])
        inputs.append(current)
        weight, bias = layers[-1]
        return inputs, before, torch.addmm(bias, current, weight.T).squeeze(1)

    def factors(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, list[tuple[Tensor, Tensor]]]:
        """Return g and, for each layer, its inputs A (P, columns) and derivatives B (P, rows).

        The Jacobian row of a point with respect to that layer is the outer product of its B with (A, 1).
        """
        slope = _ACTIVATIONS[self.activation][1]
        inputs, before, g = self._forward(theta, time, x)
        layers = self.layers(theta)
        derivative = torch.ones_like(g)[:, None]
        derivatives = [derivative]
        for (weight, _), z in zip(layers[:0:-1], before[::-1], strict=True):
            derivative = (derivative @ weight) * slope(z)
            derivatives.append(derivative)
        return g, list(zip(inputs, derivatives[::-1], strict=True))

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points."""
        return self._forward(theta, time, x)[2]

    def value_and_pullback(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
        """Return g and the map u -> Jᵀu, sharing one forward and one backward pass."""
        g, factors = self.factors(theta, time, x)

        def pullback(u: Tensor) -> Tensor:
            parts = []
            for a, b in factors:
                scaled = b * u[:, None]
                parts += [(scaled.T @ a).reshape(-1), scaled.sum(0)]
            return torch.cat(parts)

        return g, pullback

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows of the Jacobian, shape (P, m)."""
        out = time.new_empty(len(time), self.size)
        start = 0
        for a, b in self.factors(theta, time, x)[1]:
            stop = start + a.shape[1] * b.shape[1]
            torch.mul(b[:, :, None], a[:, None, :], out=out[:, start:stop].view(len(time), b.shape[1], a.shape[1]))
            out[:, stop : stop + b.shape[1]] = b
            start = stop + b.shape[1]
        return out

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v without forming J."""
        total = torch.zeros_like(time)
        for (a, b), (weight, bias) in zip(self.factors(theta, time, x)[1], self.layers(v), strict=True):
            total += (torch.addmm(bias, a, weight.T) * b).sum(1)
        return total

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u without forming J."""
        return self.value_and_pullback(theta, time, x)[1](u)
