"""Cumulative hazards of the same draws at the same times: what does not depend on people is computed once.

Without a network, g is a sum of products of a function of x and a function of t. The part of every draw that depends on
time alone is then the same for everybody, and a person adds a few numbers for each draw. Numbers for every draw, person
and node are in single precision, which halves the time: cumulative hazards are off by about a millionth of their size.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor

from neuralsurv.model.additive import Additive, Term
from neuralsurv.model.network import Network
from neuralsurv.model.quadrature import GaussLegendre

# Gauss–Legendre nodes of each panel that an integral over time is cut into.
PANEL_NODES = 2
# Parts of g beyond this are as good as infinite; sums of them stay finite in single precision.
_LARGEST = 1e30


@dataclass(frozen=True)
class TimeNodes:
    """Nodes of the integrals from 0 up to each of T times."""

    # Shape (P,): the first nodes of all panels, then the second ones, so that whole blocks are added up.
    time: Tensor
    weight: Tensor
    which: Tensor  # the number of panels up to each time, shape (T,)

    @classmethod
    def up_to(cls, times: Tensor, network: Network, rho: float) -> Self:
        """Return the nodes for these times, in the panels of a network."""
        edges, which = network.panels(times)
        rule = GaussLegendre(PANEL_NODES).nodes(edges[:-1], edges[1:], rho)
        time, weight = (part.reshape(-1, PANEL_NODES).T.reshape(-1) for part in (rule.time, rule.weight))
        return cls(time, weight, which)

    def integrals(self, pieces: Tensor) -> Tensor:
        """Return integrals of shape (n, T, S) from the integrand times the weights at the nodes, shape (n, P, S).

        The pieces are overwritten. They are not negative and added up in order, so that the integrals are monotone.
        """
        first, *others = pieces.chunk(PANEL_NODES, 1)
        for other in others:
            first += other
        sums = pieces.new_empty(len(pieces), first.shape[1] + 1, pieces.shape[2])
        sums[:, 0] = 0.0
        torch.cumsum(first, 1, out=sums[:, 1:])
        return sums[:, self.which]


class OnTimes(Protocol):
    """Draws at the nodes of some times, in a form that is quick for many people in turn."""

    @property
    def numbers(self) -> int:
        """How many numbers it holds, about."""

    def of_people(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return what n people multiply the functions of time by, for S weight vectors, shape (S, n, F)."""

    def cumulative_hazard(self, of_people: Tensor) -> Tensor:
        """Return the cumulative hazard, shape (S, n, T), of people with these parts of g, shape (S, n, F)."""


@dataclass(frozen=True)
class DrawsOnTimes:
    """Draws of a network that is a sum of products, at the nodes of some times; draws run along the last axis."""

    network: Additive
    nodes: TimeNodes
    mass: Tensor  # weights of the nodes, over the normaliser, shape (P, 1)
    functions: Tensor  # the F functions of time that features of people are multiplied by, shape (P, F)
    of_time: Tensor  # the part of g that is the same for everybody, shape (P, S)
    phi: Tensor  # hazard scales, shape (S,)

    @classmethod
    def of(cls, network: Additive, nodes: TimeNodes, normaliser: float, theta: Tensor, phi: Tensor) -> Self:
        """Return the draws `theta` (S, m) and `phi` (S,) on some nodes."""
        factors = network.factors(nodes.time)
        of_time = (network.offset + theta[:, -1]).expand(len(nodes.time), -1)
        for term, weights in _weights(network, theta):
            if term.feature is None:
                of_time = torch.addmm(of_time, factors[term.factor], weights.T)
        names = dict.fromkeys(term.factor for term in network.terms if term.feature is not None)
        functions = torch.cat([nodes.time.new_empty(len(nodes.time), 0), *(factors[name] for name in names)], 1)
        mass = (nodes.weight / normaliser)[:, None].float()
        return cls(network, nodes, mass, _single(functions), _single(of_time), phi)

    @property
    def numbers(self) -> int:
        """How many numbers it holds, about."""
        return self.of_time.numel()

    def of_people(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return what n people multiply the functions of time by, for S weight vectors, shape (S, n, F)."""
        features = self.network.features(x)
        found: dict[str, Tensor] = {}
        for term, weights in _weights(self.network, theta):
            if term.feature is not None:
                product = features[term.feature] @ weights.T
                found[term.factor] = found[term.factor].add_(product) if term.factor in found else product
        parts = torch.stack(list(found.values()), 1) if found else theta.new_empty(len(x), 0, len(theta))
        return parts.permute(2, 0, 1)

    def cumulative_hazard(self, of_people: Tensor) -> Tensor:
        """Return the cumulative hazard, shape (S, n, T), of people with these parts of g, shape (S, n, F)."""
        own = _single(of_people.permute(1, 2, 0))
        shared = (len(own), -1, -1)
        g = torch.baddbmm(self.of_time.expand(shared), self.functions.expand(shared), own)
        return self.nodes.integrals(g.sigmoid_().mul_(self.mass)).double().mul_(self.phi).permute(2, 0, 1)


def _single(values: Tensor) -> Tensor:
    return values.clamp(-_LARGEST, _LARGEST).float()


def _weights(network: Additive, theta: Tensor) -> Iterator[tuple[Term, Tensor]]:
    """Yield each term with its weights, shape (S, size)."""
    start = 0
    for term in network.terms:
        yield term, theta[:, start : start + term.size]
        start += term.size
