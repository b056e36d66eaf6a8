r"""A linear path, a time basis and a network, added up.

.. math:: g(t, x) = o + b + w^\top x + c^\top B(t) + v^\top x\,z(t) + \sum_{j<k} u_{jk} x_j x_k
          + f(z(t), x; \theta_0 + \delta) - f(z(t), x; \theta_0)

The weights are (w, c, v, u, b, δ). With neighbourhoods, their columns follow those of x in the linear path and in the
changes. The network f is measured from a random draw :math:`\theta_0`, so that all weights
at 0 give g = o, the place where the prior is centred; there its Jacobian is rich, which it is not at a weight-space
mode.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP, FirstLayer, Network, Pullback
from neuralsurv.model.panels import panels_between
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.rows import LayeredRows, Rows

# How many units of the inner network look at a second input.
_SECOND_INPUT = 0.5


@dataclass(frozen=True)
class Additive(Network):
    """The network of the default model.

    Attributes
    ----------
    covariates : int
        Number of covariates d of the linear path: the first columns of x. Only the user's own module sees further ones.
    basis : TimeBasis
        The columns B(t) and the clock z(t).
    offset : float
        o, the value of g in the middle of the prior.
    inner : MLP, ModuleNetwork or None
        f; its time input is the clock. None for a model without a network.
    origin : Tensor of shape (inner.size,)
        θ0; empty without a network.
    linear : bool
        Whether there is a linear path of the covariates.
    varying : bool
        Whether effects of covariates may change along the clock.
    pairs : bool
        Whether there are products of two covariates.
    near : Neighbourhoods or None
        Units that respond to a neighbourhood, which a large cohort has in place of the network.
    """

    covariates: int
    basis: TimeBasis
    offset: float
    inner: MLP | ModuleNetwork | None
    origin: Tensor
    linear: bool = True
    varying: bool = False
    pairs: bool = False
    near: Neighbourhoods | None = None

    @property
    def symmetric(self) -> bool:
        """False: g is centred at the offset."""
        return False

    @property
    def linear_size(self) -> int:
        """Number of weights before those of the network: linear path, time, changes, products, bias."""
        return self.slopes + self.basis.size + self.changes + self.products + 1

    @property
    def products(self) -> int:
        """Number of weights of products of two covariates."""
        return self.covariates * (self.covariates - 1) // 2 if self.pairs else 0

    @property
    def reach(self) -> int:
        """Number of columns of the neighbourhoods."""
        return 0 if self.near is None else self.near.size

    @property
    def changes(self) -> int:
        """Number of weights of effects that change with time."""
        return self.covariates + self.reach if self.varying else 0

    @property
    def slopes(self) -> int:
        """Number of weights of the linear path."""
        return (self.covariates if self.linear else 0) + self.reach

    @cached_property
    def size(self) -> int:
        """Number of weights m."""
        return self.linear_size + len(self.origin)

    @property
    def first_layer(self) -> FirstLayer | None:
        """Where the weights of the first layer of the network are, if it has dense layers."""
        layer = None if self.inner is None else self.inner.first_layer
        return None if layer is None else layer._replace(start=self.linear_size + layer.start)

    @property
    def architecture(self) -> str:
        """The architecture of the network, or what there is in its place."""
        if self.inner is not None:
            return self.inner.architecture
        return "linear" if self.near is None else f"neighbourhoods of {len(self.near.centres)} rows"

    @property
    def bayesian_share(self) -> str:
        """How many weights of the inner network are Bayesian, where that is the user's own module."""
        return "" if self.inner is None else self.inner.bayesian_share

    def panels(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Return the panels of an integral over time: even on the clock."""
        count = (self if self.inner is None else self.inner).clock_panels
        return panels_between(times, self.basis.even_times(count, float(times.max())))

    def initial(self, generator: torch.Generator) -> Tensor:
        """Return zeros: the middle of the prior."""
        return torch.zeros(self.size, dtype=torch.float64)

    def columns(self, time: Tensor, x: Tensor) -> Tensor:
        """Return the columns of the linear path, the time basis and the changing effects at P points."""
        x = x[:, : self.covariates]
        near = [] if self.near is None else [self.near.columns(x)]
        parts = [x, *near] if self.linear else near
        parts = [*parts, self.basis.columns(time)]
        if self.varying:
            clock = self.basis.clock(time)[:, None]
            parts += [part * clock for part in (x, *near)]
        if self.pairs:
            one, other = torch.triu_indices(self.covariates, self.covariates, 1)
            parts.append(x[:, one] * x[:, other])
        return torch.cat(parts, 1)

    def _cut(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the weights into those of the columns, the bias and the network's deviation."""
        return theta[: self.linear_size - 1], theta[self.linear_size - 1], theta[self.linear_size :]

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points."""
        weights, bias, deviation = self._cut(theta)
        g = self.offset + bias + self.columns(time, x) @ weights
        if self.inner is not None:
            clock = self.basis.clock(time)
            g = g + self.inner.value(self.origin + deviation, clock, x) - self.inner.value(self.origin, clock, x)
        return g

    def bind(self, time: Tensor, x: Tensor) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
        """Return the map from theta to g at these points and its pullback."""
        columns = self.columns(time, x)
        inner = None if self.inner is None else self.inner.bind(self.basis.clock(time), x)
        at_origin = 0.0 if inner is None else inner(self.origin)[0]

        def evaluate(theta: Tensor) -> tuple[Tensor, Pullback]:
            weights, bias, deviation = self._cut(theta)
            g = self.offset + bias + columns @ weights
            if inner is None:
                return g, lambda u: torch.cat([columns.T @ u, u.sum()[None]])
            value, back = inner(self.origin + deviation)
            return g + value - at_origin, lambda u: torch.cat([columns.T @ u, u.sum()[None], back(u)])

        return evaluate

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, Rows]:
        """Return g and the rows of the Jacobian, of which the linear path is a layer with one output."""
        lead, tail = self.rows_by_part(theta, time, x)
        return self.value(theta, time, x), lead if tail is None else tail.after(lead)

    def rows_by_part(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[LayeredRows, Rows | None]:
        """Return the rows of the linear path, and those of the network within if there is one."""
        lead = LayeredRows(((self.columns(time, x), torch.ones_like(time)[:, None]),))
        if self.inner is None:
            return lead, None
        place = self.origin + self._cut(theta)[2]
        return lead, self.inner.value_and_rows(place, self.basis.clock(time), x)[1]

    def describe(self) -> Description:
        """Return the sizes of the parts, the time basis and the network within."""
        inner = None if self.inner is None else self.inner.describe()
        basis = self.basis
        table = {
            "covariates": self.covariates,
            "offset": self.offset,
            "linear": self.linear,
            "varying": self.varying,
            "pairs": self.pairs,
            "inner": None if inner is None else inner.values,
            "time": {
                "shift": basis.shift,
                "center": basis.center,
                "spread": basis.spread,
                "width": basis.width,
                "bumps": list(basis.bumps),
            },
        }
        arrays = {"origin": self.origin, **({} if inner is None else inner.arrays)}
        if self.near is not None:
            arrays |= {f"near_{field.name}": getattr(self.near, field.name) for field in fields(self.near)}
        return Description(table, arrays)


def sparse_draw(network: MLP, generator: torch.Generator) -> Tensor:
    """Return random weights for which the units of the first hidden layer look at one input or two.

    The inputs (time and covariates) take turns, and every other unit on average sees a second one: units that see a
    mixture of all inputs are nearly linear in each of them, and hazards are mostly sums of curved effects of single
    covariates. Weights and biases of these units are standard normal; the other layers are drawn as usual.
    """
    theta = network.initial(generator)
    if not network.hidden:
        return theta
    weight, bias = network.layers(theta)[0]
    units, inputs = weight.shape
    turns = [torch.randperm(inputs, generator=generator) for _ in range(-(-units // inputs))]
    first = torch.cat(turns)[:units]
    second = torch.randint(inputs, (units,), generator=generator)
    both = torch.rand(units, generator=generator, dtype=theta.dtype) < _SECOND_INPUT
    strength = torch.randn(units, 2, generator=generator, dtype=theta.dtype)
    every = torch.arange(units)
    weight.zero_()
    weight[every[both], second[both]] = strength[both, 1]
    weight[every, first] = strength[:, 0]
    bias.copy_(torch.randn(units, generator=generator, dtype=theta.dtype))
    return theta
