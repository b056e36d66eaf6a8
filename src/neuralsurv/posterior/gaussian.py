"""The posterior of a linearised model: moments and joint draws, in scaled time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant, Normaliser, hazard
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.posterior.on_times import PANEL_NODES, DrawsOnTimes, OnTimes, TimeNodes
from neuralsurv.solvers.interface import Description, Gaussian
from neuralsurv.solvers.rows import row_slices

# Nodes for the integral of a single row, from its entry to its time.
_ROW_NODES = 32


@dataclass(frozen=True)
class Draws:
    """Joint draws: one draw is one theta and one phi, used at every time and for every person.

    Attributes
    ----------
    theta : Tensor of shape (S, m)
        Weights.
    phi : Tensor of shape (S,)
        Hazard scale.
    """

    theta: Tensor
    phi: Tensor

    def __len__(self) -> int:
        """Return the number of draws S."""
        return len(self.phi)

    def take(self, chosen: slice | Tensor) -> Draws:
        """Return some of the draws."""
        return Draws(self.theta[chosen], self.phi[chosen])

    def around(self, mode: int) -> Tensor:
        """Return a mask, shape (S,), of the draws that lie around mode number `mode`: all of them around the first."""
        return torch.full((len(self),), mode == 0)


@dataclass(frozen=True)
class Posterior:
    """The variational posterior of the linearised model.

    Attributes
    ----------
    phi : Gamma or PointMass
        q(phi), in scaled time.
    theta : Gaussian
        q(theta).
    theta_star : Tensor of shape (m,)
        Where the network is linearised.
    network, normaliser, rho
        The model.
    """

    phi: Gamma | PointMass
    theta: Gaussian
    theta_star: Tensor
    network: Network
    normaliser: Normaliser
    rho: float

    @property
    def modes(self) -> tuple[Posterior, ...]:
        """The posteriors around the modes that it is linearised at: here a single one, itself."""
        return (self,)

    def describe(self) -> Description:
        """Return what the posterior around one mode is made of, for a model file."""
        network, theta, normaliser = self.network.describe(), self.theta.describe(), self.normaliser.describe()
        values = {
            "phi": self.phi.describe(),
            "rho": self.rho,
            "network": network.values,
            **theta.values,
            **normaliser.values,
        }
        weights = {f"theta_{name}": array for name, array in theta.arrays.items()}
        return Description(values, {"theta_star": self.theta_star, **network.arrays, **weights, **normaliser.arrays})

    def draw(self, count: int, seed: int) -> Draws:
        """Return `count` joint draws of (theta, phi)."""
        generator = torch.Generator().manual_seed(seed)
        return Draws(self.theta.draw(count, generator), self.phi.draw(count, generator))

    def g_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return g of every draw at P points, shape (S, P)."""
        linearised = linearise_network(self.network, self.theta_star, time, x)
        rows, g = linearised.rows, draws.theta.new_empty(len(draws), len(time))
        # In blocks: the rows of a network of millions of weights are too long to hold for all points of one person.
        for part in row_slices(*rows.shape):
            g[:, part] = torch.addmm(linearised.offset[part], draws.theta, rows.take(part).dense().T)
        return g

    def on_times(self, draws: Draws, times: Tensor) -> OnTimes | None:
        """Return the draws at the nodes of some times, for people in turn; None unless g is a sum of products."""
        network, normaliser = self.network, self.normaliser
        if not isinstance(network, Additive) or network.inner is not None or not isinstance(normaliser, Constant):
            return None
        nodes = TimeNodes.up_to(times, network, self.rho)
        return DrawsOnTimes.of(network, nodes, normaliser.value, draws.theta, draws.phi)

    def hazard_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return the hazard of every draw at P points, shape (S, P), for scaled time."""
        g = self.g_draws(draws, time, x)
        return hazard(draws.phi[:, None], time, g, self.normaliser(time, x), self.rho)

    def cumulative_hazard_draws(self, draws: Draws, times: Tensor, x: Tensor) -> Tensor:
        """Return the cumulative hazard of every draw for n people at T times, shape (S, n, T).

        The pieces of the integral are non-negative and added up in order, so every drawn curve is monotone. For smooth
        activations the error is negligible. A relu unit that switches at some time makes the hazard of a linearised
        draw jump there; the jump is misplaced by less than 0.3 of a panel, 0.006 in scaled time.
        """
        shared = self.on_times(draws, times)
        if shared is not None:
            return shared.cumulative_hazard(shared.of_people(draws.theta, x))
        nodes = TimeNodes.up_to(times, self.network, self.rho)
        time, rows = nodes.time.repeat(len(x)), x.repeat_interleave(len(nodes.time), 0)
        mass = nodes.weight.repeat(len(x)) / self.normaliser(time, rows)
        pieces = self.g_draws(draws, time, rows).sigmoid_().mul_(mass)
        found = nodes.integrals(pieces.reshape(len(draws), len(x), -1).permute(1, 2, 0))
        return found.mul_(draws.phi).permute(2, 0, 1)

    def log_likelihood_draws(self, draws: Draws, entry: Tensor, time: Tensor, event: Tensor, x: Tensor) -> Tensor:
        """Return the log-likelihood of n rows for every draw, shape (S, n), for scaled time."""
        rule = GaussLegendre(_ROW_NODES).nodes(entry, time, self.rho)
        rows = x[rule.row]
        mass = rule.weight / self.normaliser(rule.time, rows)
        pieces = torch.sigmoid(self.g_draws(draws, rule.time, rows)) * mass
        exposure = pieces.reshape(len(draws), len(x), _ROW_NODES).sum(2)
        at_end = torch.log(self.hazard_draws(draws, time, x))
        return torch.where(event, at_end, torch.zeros_like(at_end)) - draws.phi[:, None] * exposure

    def points_per_person(self, times: Tensor) -> int:
        """Return how many points the cumulative hazard of one person needs for `times`."""
        return (len(self.network.panels(times)[0]) - 1) * PANEL_NODES


def people_blocks(people: int, numbers_per_person: int, budget: int = 2**23) -> Iterator[slice]:
    """Yield slices of people so that a block of temporaries holds about `budget` numbers."""
    step = max(1, budget // max(1, numbers_per_person))
    for first in range(0, people, step):
        yield slice(first, min(people, first + step))
