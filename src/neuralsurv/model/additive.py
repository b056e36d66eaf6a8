r"""A linear path, a time basis, curved effects, products, neighbourhoods and a network, added up.

.. math:: g(t, x) = o + b + c^\top B(t) + w^\top x + f(x) + e(t)\,(w'^\top x + f'(x)) + (v^\top x + f''(x))\,z(t)
          + h(x) + h'(x)\,z(t) + \sum_{j<k} u_{jk} x_j x_k + n(z(t), x; \theta_0 + \delta) - n(z(t), x; \theta_0)

f are the curves of single covariates, h the neighbourhoods, z the clock, and e is a function of time that fades after
early times: before the first fifth of the events effects may differ from what they are later, by as much as their own
size. The network n, which a user may ask for or supply, is measured from a random draw :math:`\theta_0`, so that all
weights at 0 give g = o, the place where the prior is centred; there its Jacobian is rich, which it is not at a
weight-space mode.

Without a network g is a sum of products of a function of x and a function of t. `terms` lists them in the order of
their weights; the bias and the weights of the network follow.

With K causes of events there is one g for each. They share these terms, and deviate from them by contrasts between
causes: deviation k of a term is :math:`\sum_j C_{kj}` times the term with weights of contrast j. See
:mod:`neuralsurv.model.contrasts`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import accumulate, pairwise, starmap
from typing import NamedTuple

import torch
from torch import Tensor

from neuralsurv.model.contrasts import cause_contrasts
from neuralsurv.model.covariate_curves import CovariateCurves
from neuralsurv.model.module_network import ModuleNetwork
from neuralsurv.model.neighbourhoods import Neighbourhoods
from neuralsurv.model.network import MLP, FirstLayer, Network, Pullback
from neuralsurv.model.panels import panels_between
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.names import counted
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.rows import LayeredRows, Rows

# The groups of weights whose columns are the same for everybody.
TIME_GROUPS = ("trend", "bumps", "time by cause")
# How many units of the inner network look at a second input.
_SECOND_INPUT = 0.5
# What is added to scaled time before the logarithm of the early function, as a share of the shift of the clock.
_EARLY_SHIFT = 0.2


class Term(NamedTuple):
    """Neighbouring columns of g: each a feature of x, times one function of time."""

    group: str | None  # the group of weights with a common scale that they belong to; None where the scale is known
    feature: str | None  # the block of features of x; None for columns of time alone
    factor: str  # the function of time
    size: int
    contrast: int | None = None  # the contrast between causes that they are multiplied by; None for what causes share


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
        Units that respond to a neighbourhood.
    curves : CovariateCurves or None
        Curved effects of single covariates.
    early : float
        Scaled time before which effects of covariates may differ from later ones; 0 for never.
    levels : tuple of float
        The offset of each cause in place of o, where there are several causes; else empty.
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
    curves: CovariateCurves | None = None
    early: float = 0.0
    levels: tuple[float, ...] = ()

    @property
    def causes(self) -> int:
        """Number of causes of events K."""
        return max(1, len(self.levels))

    @cached_property
    def contrasts(self) -> Tensor:
        """C, shape (K, K - 1)."""
        return cause_contrasts(self.causes)

    @property
    def symmetric(self) -> bool:
        """False: g is centred at the offset."""
        return False

    @cached_property
    def terms(self) -> tuple[Term, ...]:
        """The columns of the linear path and of time, in the order of their weights."""
        d = self.covariates
        curves = 0 if self.curves is None else self.curves.size
        near = 0 if self.near is None else self.near.size
        early, varying = self.early > 0, self.varying
        listed: tuple[Term, ...] = (
            Term("covariates", "covariates", "always", d * self.linear),
            Term("covariates", "covariates", "early", d * (self.linear and early)),
            Term("curves", "curves", "always", curves),
            Term("curves", "curves", "early", curves * early),
            Term("neighbourhoods", "neighbourhoods", "always", near),
            Term("trend", None, "trend", 1),
            Term("bumps", None, "bumps", len(self.basis.bumps)),
            Term("changes", "covariates", "clock", d * varying),
            Term("changes of curves", "curves", "clock", curves * varying),
            Term("changes of neighbourhoods", "neighbourhoods", "clock", near * varying),
            Term("pairs", "pairs", "always", d * (d - 1) // 2 * self.pairs),
        )
        # By cause what there are few columns of, or where a difference matters most: the level, time, linear effects.
        by_cause = (
            Term(None, None, "always", 1),
            Term("time by cause", None, "trend", 1),
            Term("time by cause", None, "bumps", len(self.basis.bumps)),
            Term("covariates by cause", "covariates", "always", d * self.linear),
            Term("covariates by cause", "covariates", "early", d * (self.linear and early)),
            Term("covariates by cause", "covariates", "clock", d * varying),
            Term("curves by cause", "curves", "always", curves),
        )
        listed += tuple(term._replace(contrast=j) for term in by_cause for j in range(self.causes - 1))
        return tuple(term for term in listed if term.size)

    @cached_property
    def groups(self) -> dict[str, slice]:
        """Where the weights of each group are, but for the levels, which are in none, and the network."""
        found: dict[str, slice] = {}
        for term, place in zip(self.terms, self.places, strict=True):
            if term.group is not None:
                start = found[term.group].start if term.group in found else place.start
                found[term.group] = slice(start, place.stop)
        return found

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Where the weights of each term are."""
        return tuple(starmap(slice, pairwise(accumulate((term.size for term in self.terms), initial=0))))

    @cached_property
    def linear_size(self) -> int:
        """Number of weights before those of the network: all terms, and the bias."""
        return sum(term.size for term in self.terms) + 1

    @cached_property
    def size(self) -> int:
        """Number of weights m."""
        return self.linear_size + len(self.origin)

    @property
    def first_layer(self) -> FirstLayer | None:
        """Where the weights of the first layer of the network are, if it has dense layers."""
        layer = None if self.inner is None else self.inner.first_layer
        return None if layer is None else layer._replace(start=self.linear_size + layer.start)

    def without_covariates(self) -> Additive:
        """Return the part of g that is the same for everybody, as a model of its own."""
        return Additive(0, self.basis, self.offset, None, self.origin[:0], linear=False, levels=self.levels)

    @property
    def architecture(self) -> str:
        """The architecture of the network, or what there is in its place."""
        if self.inner is not None:
            return self.inner.architecture
        parts = [] if self.curves is None else [counted(len(self.curves.which), "curve")]
        parts += [] if self.near is None else [f"neighbourhoods of {counted(len(self.near.centres), 'row')}"]
        return " and ".join(parts) or "linear"

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

    def features(self, x: Tensor) -> dict[str, Tensor]:
        """Return the blocks of features of n rows of covariates, each of shape (n, size)."""
        x = x[:, : self.covariates]
        found = {"covariates": x}
        if self.curves is not None:
            found["curves"] = self.curves.columns(x)
        if self.near is not None:
            found["neighbourhoods"] = self.near.columns(x)
        if self.pairs:
            one, other = torch.triu_indices(self.covariates, self.covariates, 1)
            found["pairs"] = x[:, one] * x[:, other]
        return found

    def factors(self, time: Tensor) -> dict[str, Tensor]:
        """Return the functions of time at P scaled times, each of shape (P, 1), the bumps (P, bumps)."""
        basis = self.basis.columns(time)
        found = {"always": torch.ones_like(basis[:, :1]), "clock": basis[:, :1], "trend": basis[:, :1]}
        found["bumps"] = basis[:, 1:]
        if self.early > 0:
            since = time[:, None] + _EARLY_SHIFT * self.basis.shift
            found["early"] = torch.log(since / (since + self.early))
        return found

    def functions(self, time: Tensor, cause: Tensor | None = None) -> list[Tensor]:
        """Return the function of each term at P points, shape (P, 1), of the bumps (P, bumps).

        `cause`, shape (P,), is the cause of each point where there are several.
        """
        factors = self.factors(time)
        return [
            factors[term.factor]
            if term.contrast is None or cause is None
            else factors[term.factor] * self.contrasts[cause, term.contrast, None]
            for term in self.terms
        ]

    def offsets(self, time: Tensor, cause: Tensor | None = None) -> Tensor:
        """Return g at P points where all weights are 0."""
        if cause is None:
            return torch.full_like(time, self.offset)
        return torch.tensor(self.levels, dtype=time.dtype)[cause]

    def cause_of(self, x: Tensor) -> Tensor | None:
        """Return the cause of each point, the column of x that follows the covariates; None where there is one."""
        return x[:, self.covariates].long() if self.levels else None

    def columns(self, time: Tensor, x: Tensor) -> Tensor:
        """Return the columns of all terms at P points; features of points of a row that follow each other come once."""
        fresh = torch.ones(len(x), dtype=torch.bool)
        fresh[1:] = (x[1:] != x[:-1]).any(1)
        features, functions = self.features(x[fresh]), self.functions(time, self.cause_of(x))
        row = fresh.cumsum(0) - 1
        parts = [
            function if term.feature is None else features[term.feature][row] * function
            for term, function in zip(self.terms, functions, strict=True)
        ]
        return torch.cat(parts, 1)

    def of_cause(self, cause: int) -> Additive:
        """Return g of one cause, without contrasts; `weights_of` gives its weights."""
        return replace(self, offset=self.levels[cause], levels=())

    def weights_of(self, cause: int, theta: Tensor) -> Tensor:
        """Return the weights of `of_cause`, shape (S, m), from those of all causes, shape (S, M)."""
        found = theta[:, self.shared_places]
        for source, target, contrast in self.contrast_places:
            found[:, source] += self.contrasts[cause, contrast] * theta[:, target]
        return found

    @cached_property
    def shared_places(self) -> Tensor:
        """Where the weights of `of_cause` are among those of all causes, shape (m,)."""
        own = [place for term, place in zip(self.terms, self.places, strict=True) if term.contrast is None]
        listed = [torch.arange(place.start, place.stop) for place in own]
        return torch.cat([*listed, torch.arange(self.linear_size - 1, self.size)])

    @cached_property
    def contrast_places(self) -> tuple[tuple[slice, slice, int], ...]:
        """Of each term of a contrast: the weights of `of_cause` that it changes, its own, and its contrast."""
        alone = self.of_cause(0)
        places = {(term.feature, term.factor): place for term, place in zip(alone.terms, alone.places, strict=True)}
        # The level is the bias, which is no term.
        places[None, "always"] = slice(alone.linear_size - 1, alone.linear_size)
        return tuple(
            (places[term.feature, term.factor], place, term.contrast)
            for term, place in zip(self.terms, self.places, strict=True)
            if term.contrast is not None
        )

    def _cut(self, theta: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Cut the weights into those of the columns, the bias and the network's deviation."""
        return theta[: self.linear_size - 1], theta[self.linear_size - 1], theta[self.linear_size :]

    def value(self, theta: Tensor, time: Tensor, x: Tensor) -> Tensor:
        """Return g at P points."""
        return self._value(theta, time, x, self.columns(time, x))

    def _value(self, theta: Tensor, time: Tensor, x: Tensor, columns: Tensor) -> Tensor:
        weights, bias, deviation = self._cut(theta)
        g = self.offsets(time, self.cause_of(x)) + bias + columns @ weights
        if self.inner is not None:
            clock = self.basis.clock(time)
            g = g + self.inner.value(self.origin + deviation, clock, x) - self.inner.value(self.origin, clock, x)
        return g

    def bind(self, time: Tensor, x: Tensor) -> Callable[[Tensor], tuple[Tensor, Pullback]]:
        """Return the map from theta to g at these points and its pullback."""
        columns = self.columns(time, x)
        inner = None if self.inner is None else self.inner.bind(self.basis.clock(time), x)
        at_origin = 0.0 if inner is None else inner(self.origin)[0]
        offset = self.offsets(time, self.cause_of(x))

        def evaluate(theta: Tensor) -> tuple[Tensor, Pullback]:
            weights, bias, deviation = self._cut(theta)
            g = offset + bias + columns @ weights
            if inner is None:
                return g, lambda u: torch.cat([columns.T @ u, u.sum()[None]])
            value, back = inner(self.origin + deviation)
            return g + value - at_origin, lambda u: torch.cat([columns.T @ u, u.sum()[None], back(u)])

        return evaluate

    def value_and_rows(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[Tensor, Rows]:
        """Return g and the rows of the Jacobian, of which the linear path is a layer with one output."""
        lead, tail = self.rows_by_part(theta, time, x)
        ((columns, _),) = lead.layers
        return self._value(theta, time, x, columns), lead if tail is None else tail.after(lead)

    def rows_by_part(self, theta: Tensor, time: Tensor, x: Tensor) -> tuple[LayeredRows, Rows | None]:
        """Return the rows of the linear path, and those of the network within if there is one."""
        lead = LayeredRows(((self.columns(time, x), torch.ones_like(time)[:, None]),))
        if self.inner is None:
            return lead, None
        place = self.origin + self._cut(theta)[2]
        return lead, self.inner.value_and_rows(place, self.basis.clock(time), x)[1]

    @property
    def numbers_per_point(self) -> int:
        """How many numbers a prediction holds for each point beside its draws: next to none without a network."""
        return 1 if self.inner is None else self.size

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
            "early": self.early,
            **({"levels": list(self.levels)} if self.levels else {}),
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
        for name, layer in (("near", self.near), ("curves", self.curves)):
            if layer is not None:
                arrays |= {f"{name}_{field.name}": getattr(layer, field.name).double() for field in fields(layer)}
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
