r"""The network g(t, x; theta): its value and the products of its Jacobian, for one flat weight vector.

For a network of dense layers the Jacobian never has to be formed by differentiation: with the inputs
:math:`A_l` of layer l and the back-propagated derivatives :math:`B_l` of g with respect to its pre-activations,
the row of a point is the outer product of the two, layer by layer. Jacobian, J·v and Jᵀ·u all follow from them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.model.panels import even_panels
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.rows import LayeredRows, Rows

Pullback = Callable[[Tensor], Tensor]
# From theta to g at points and its pullback; from several thetas to a list of these.
Evaluate = Callable[[Tensor], tuple[Tensor, Pullback]]
EvaluateTogether = Callable[[Sequence[Tensor]], list[tuple[Tensor, Pullback]]]


class FirstLayer(NamedTuple):
    """The weights of a dense first layer: the place of the first one, the number of units, the number of inputs."""

    start: int
    units: int
    inputs: int


class Network(ABC):
    """g as a function of time, covariates and one flat weight vector."""

    # Panels of an integral over the training range, where these are even on the clock of an `Additive`.
    clock_panels: ClassVar[int] = 64

    @property
    def causes(self) -> int:
        """Number of causes of events, whose number is then one more column of x."""
        return 1

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of weights m."""

    @property
    @abstractmethod
    def symmetric(self) -> bool:
        """Whether a symmetric prior of the weights makes the prior of g symmetric about 0."""

    @abstractmethod
    def initial(self, generator: torch.Generator) -> Tensor:
        """Return a random weight vector for which g is of moderate size, a place to start a search."""

    @abstractmethod
    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points: `theta` (m,), `time` (P,), `x` (P, d)."""

    @abstractmethod
    def bind(self, time: Tensor, x: Tensor) -> Evaluate:
        """Return the map from theta to g at these P points and its pullback u -> Jᵀu, for repeated use."""

    def bind_together(self, time: Tensor, x: Tensor) -> EvaluateTogether:
        """Return the map from several weight vectors to what `bind` gives for each."""
        evaluate = self.bind(time, x)
        return lambda thetas: [evaluate(theta) for theta in thetas]

    @abstractmethod
    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, Rows]:
        """Return g and the rows of the Jacobian, in whatever form is cheapest."""

    def jacobian(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return the rows of the Jacobian as a matrix, shape (P, m)."""
        return self.value_and_rows(theta, time, x)[1].dense()

    def jvp(self, theta: Tensor, time: Tensor, x: Tensor, v: Tensor) -> Tensor:
        """Return J·v, shape (P,)."""
        return self.value_and_rows(theta, time, x)[1].times(v)

    def vjp(self, theta: Tensor, time: Tensor, x: Tensor, u: Tensor) -> Tensor:
        """Return Jᵀ·u, shape (m,)."""
        return self.value_and_rows(theta, time, x)[1].transposed_times(u)

    @property
    def numbers_per_point(self) -> int:
        """How many numbers a prediction holds for each point beside its draws."""
        return self.size

    def panels(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Return the panels of an integral over time, between which g changes little; see `even_panels`."""
        return even_panels(times)

    @property
    def first_layer(self) -> FirstLayer | None:
        """Where the weights of the first dense layer are, of a network that has one."""
        return None

    @property
    @abstractmethod
    def architecture(self) -> str:
        """The architecture in a few words, for a summary."""

    @property
    def bayesian_share(self) -> str:
        """How many weights of a user-supplied module are Bayesian, in words; empty for a built-in network."""
        return ""

    @abstractmethod
    def describe(self) -> Description:
        """Return what the network is made of, for a model file."""


def _silu_slope(z: Tensor) -> Tensor:
    gate = torch.sigmoid(z)
    return gate * (1 + z * (1 - gate))


# Each activation with its derivative as a function of the pre-activation.
_ACTIVATIONS: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "relu": (torch.relu, lambda z: z > 0),
    "tanh": (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    "silu": (torch.nn.functional.silu, _silu_slope),
}
ACTIVATIONS = tuple(_ACTIVATIONS)

# Points of a block: sixteen units of it are half a megabyte.
_POINTS_AT_ONCE = 4096


def _backwards(activation: str) -> Callable[[Tensor, Tensor], Tensor]:
    """Return the map from derivatives after an activation and pre-activations to derivatives before it."""
    if activation == "relu":
        # One pass, where a comparison and a product with its outcome take five times as long.
        return lambda derivative, z: torch.ops.aten.threshold_backward(derivative, z, 0)
    slope = _ACTIVATIONS[activation][1]
    return lambda derivative, z: derivative * slope(z)


@dataclass(frozen=True)
class MLP(Network):
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

    def bind(self, time: Tensor, x: Tensor) -> Evaluate:
        """Return the map from theta to g at these points and its pullback."""
        together = self.bind_together(time, x)
        return lambda theta: together([theta])[0]

    def bind_together(self, time: Tensor, x: Tensor) -> EvaluateTogether:
        """Return the map from several weight vectors to what `bind` gives for each, in less time.

        Units run along the first axis and points along the second, so that every operation works on long contiguous
        stretches: several times faster than points first. Points are taken in blocks that stay in a cache.
        """
        first = torch.cat([time[None], x.T])
        blocks = [self._bind(block.contiguous()) for block in torch.split(first, _POINTS_AT_ONCE, 1)]
        if len(blocks) == 1:
            return blocks[0]

        def joined(parts: Sequence[tuple[Tensor, Pullback]]) -> tuple[Tensor, Pullback]:
            values, pullbacks = zip(*parts, strict=True)

            def pullback(u: Tensor) -> Tensor:
                total = torch.zeros(self.size, dtype=u.dtype)
                for piece, back in zip(torch.split(u, _POINTS_AT_ONCE), pullbacks, strict=True):
                    total += back(piece)
                return total

            return torch.cat(values), pullback

        def evaluate(thetas: Sequence[Tensor]) -> list[tuple[Tensor, Pullback]]:
            return [joined(parts) for parts in zip(*(block(thetas) for block in blocks), strict=True)]

        return evaluate

    def _bind(self, first: Tensor) -> EvaluateTogether:
        """Return the map for points given as columns: time and covariates, shape (d + 1, P)."""
        function = _ACTIVATIONS[self.activation][0]

        def alone(theta: Tensor) -> tuple[Tensor, Pullback]:
            inputs, before = [first], []
            for weight, bias in self.layers(theta)[:-1]:
                before.append(torch.addmm(bias[:, None], weight, inputs[-1]))
                inputs.append(function(before[-1]))
            return self._value_and_pullback(theta, inputs, before)

        def together(thetas: Sequence[Tensor]) -> list[tuple[Tensor, Pullback]]:
            if len(thetas) == 1 or not self.hidden:
                return [alone(theta) for theta in thetas]
            (weight, bias), *deeper = self._stacked_hidden(thetas)
            # All networks have the same inputs, so that their first layers are one layer.
            flat = torch.addmm(bias.reshape(-1, 1), weight.reshape(-1, len(first)), first)
            before = [flat.reshape(len(thetas), -1, first.shape[1])]
            after = [function(before[0])]
            for weight, bias in deeper:
                before.append(torch.baddbmm(bias, weight, after[-1]))
                after.append(function(before[-1]))
            return [
                self._value_and_pullback(theta, [first, *(a[k] for a in after)], [z[k] for z in before])
                for k, theta in enumerate(thetas)
            ]

        return together

    def _stacked_hidden(self, thetas: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
        """Cut S flat vectors into weights (S, rows, columns) and biases (S, rows, 1) of each hidden layer."""
        stack = torch.stack(list(thetas))
        parts, start = [], 0
        for rows, columns in self._shapes[:-1]:
            stop = start + rows * columns
            parts.append((stack[:, start:stop].reshape(-1, rows, columns), stack[:, stop : stop + rows, None]))
            start = stop + rows
        return parts

    def _value_and_pullback(
        self, theta: Tensor, inputs: Sequence[Tensor], before: Sequence[Tensor]
    ) -> tuple[Tensor, Pullback]:
        """Return g and u -> Jᵀu from the inputs of each layer and the hidden pre-activations; points are columns."""
        back = _backwards(self.activation)
        layers = self.layers(theta)
        last = layers[-1][0][0]

        def pullback(u: Tensor) -> Tensor:
            parts = [u.sum()[None], inputs[-1] @ u]
            derivative = torch.outer(last, u)
            for layer in range(len(before) - 1, -1, -1):
                derivative = back(derivative, before[layer])
                parts += [derivative.sum(1), (derivative @ inputs[layer].T).reshape(-1)]
                if layer:
                    derivative = layers[layer][0].T @ derivative
            return torch.cat(parts[::-1])

        return inputs[-1].T @ last + layers[-1][1], pullback

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, LayeredRows]:
        """Return g and the rows of the Jacobian as outer products, layer by layer."""
        g, factors = self.factors(theta, time, x)
        return g, LayeredRows(tuple(factors))

    @cached_property
    def unit_precision(self) -> Tensor:
        """Fan-in of the layer that each weight belongs to, shape (m,): a prior precision that keeps g of order 1."""
        precision = torch.empty(self.size, dtype=torch.float64)
        for weight, bias in self.layers(precision):
            # The layers are views: this fills the flat vector.
            weight.fill_(weight.shape[1] + 1)
            bias.fill_(weight.shape[1] + 1)
        return precision

    @property
    def first_layer(self) -> FirstLayer:
        """Where the weights of the first layer are."""
        return FirstLayer(0, *self._shapes[0])

    @property
    def architecture(self) -> str:
        """Widths of the hidden layers and their activation."""
        return f"{'-'.join(map(str, self.hidden))} {self.activation}" if self.hidden else "linear"

    def describe(self) -> Description:
        """Return the architecture."""
        table = {"covariates": self.covariates, "hidden": list(self.hidden), "activation": self.activation}
        return Description(table, {})
