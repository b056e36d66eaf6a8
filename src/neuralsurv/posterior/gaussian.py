"""Posterior: moments and joint draws of g and of phi, in scaled time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Normaliser, hazard
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, Held
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.rows import row_slices

# Between two times at which a curve is asked for, the integral is cut into panels no longer than this (in scaled
# time), each with this many Gauss–Legendre nodes.
_LONGEST_PANEL = 1 / 50
_PANEL_NODES = 2
# Nodes for the integral of a single row, from its entry to its time.
_ROW_NODES = 32
# Beyond the training range, which ends at 1, panels are made longer where there would be more than this many of them;
# such times are marked as extrapolated anyway.
_MOST_PANELS_BEYOND = 500


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

    def take(self, chosen: slice) -> Draws:
        """Return some of the draws."""
        return replace(self, theta=self.theta[chosen], phi=self.phi[chosen])


@dataclass(frozen=True)
class Posterior:
    """The variational posterior of the linearised model.

    Attributes
    ----------
    phi : Gamma or Held
        q(phi), in scaled time.
    theta : Gaussian
        q(theta).
    theta_star : Tensor of shape (m,)
        Where the network is linearised.
    network, normaliser, rho
        The model.
    """

    phi: Gamma | Held
    theta: Gaussian
    theta_star: Tensor
    network: Network
    normaliser: Normaliser
    rho: float

    def g_moments(self, time: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return mean and variance of g at P points, `time` (P,) and `x` (P, d)."""
        linearised = linearise_network(self.network, self.theta_star, time, x)
        return linearised.offset + linearised.rows.times(self.theta.mean), self.theta.variance(linearised.jacobian)

    def g_covariance(self, time: Tensor, x: Tensor) -> Tensor:
        """Return the covariance matrix of g over P points."""
        rows = linearise_network(self.network, self.theta_star, time, x).jacobian
        return self.theta.covariance(rows, rows)

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
        edges, which = self._panels(times)
        rule = GaussLegendre(_PANEL_NODES).nodes(edges[:-1], edges[1:], self.rho)
        # The first nodes of all panels come first, then the second ones: what is added up lies in whole blocks.
        layout = (_PANEL_NODES, len(x), len(edges) - 1)
        node_time, node_weight = (part.reshape(-1, _PANEL_NODES).T[:, None] for part in (rule.time, rule.weight))
        point_time = node_time.expand(layout).reshape(-1)
        point_x = x[None, :, None, :].expand(*layout, -1).flatten(0, 2)
        mass = node_weight.expand(layout).reshape(-1) / self.normaliser(point_time, point_x)
        pieces = self.g_draws(draws, point_time, point_x).sigmoid_().mul_(mass)
        sums = pieces.new_zeros(len(draws), len(x), len(edges))
        torch.cumsum(pieces.reshape(len(draws), *layout).sum(1), dim=2, out=sums[:, :, 1:])
        return _columns(sums, which) * draws.phi[:, None, None]

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
        return (len(self._panels(times)[0]) - 1) * _PANEL_NODES

    def _panels(self, times: Tensor) -> tuple[Tensor, Tensor]:
        """Return the panels of the integral: where the network says that it changes little, else of even length."""
        if isinstance(self.network, Additive):
            return join_stops(times, self.network.stops(float(times.max())))
        return panels(times)


def panels(times: Tensor) -> tuple[Tensor, Tensor]:
    """Cut [0, last time] into panels whose edges hold every time.

    Inside the training range the panels up to a time do not depend on times after it.

    Parameters
    ----------
    times : Tensor of shape (T,)
        Non-negative times.

    Returns
    -------
    edges : Tensor
        Edges of the panels, from 0.
    which : Tensor of shape (T,)
        The edge at each of the times.
    """
    last = float(times.max())
    stops = torch.unique(torch.cat([times.new_tensor([0.0, min(1.0, last)]), times]))
    beyond = max(_LONGEST_PANEL, (last - 1) / _MOST_PANELS_BEYOND)
    low, high = stops[:-1], stops[1:]
    longest = torch.full_like(high, beyond).masked_fill(high <= 1, _LONGEST_PANEL)
    pieces = torch.ceil((high - low) / longest).long()
    # Piece 1, 2, … of every stretch between two stops ends at an edge; the last of them at the stop itself.
    stretch = torch.repeat_interleave(pieces)
    number = torch.arange(1, len(stretch) + 1) - (pieces.cumsum(0) - pieces)[stretch]
    inner = low[stretch] + (high - low)[stretch] * number / pieces[stretch]
    edges = torch.cat([stops[:1], torch.where(number == pieces[stretch], high[stretch], inner)])
    return edges, torch.searchsorted(edges, times)


def join_stops(times: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
    """Cut [0, last time] at every time and at every stop before the last time; returns as `panels` does."""
    edges = torch.unique(torch.cat([stops[stops < times.max()], times.new_zeros(1), times]))
    return edges, torch.searchsorted(edges, times)


def _columns(values: Tensor, which: Tensor) -> Tensor:
    """Return columns of values (S, n, E); a view where they follow each other, which is much faster than a copy."""
    first = int(which[0])
    if torch.equal(which, torch.arange(first, first + len(which))):
        return values[:, :, first : first + len(which)]
    return values[:, :, which]


def people_blocks(people: int, numbers_per_person: int, budget: int = 2**23) -> Iterator[slice]:
    """Yield slices of people so that a block of temporaries holds about `budget` numbers."""
    step = max(1, budget // max(1, numbers_per_person))
    for first in range(0, people, step):
        yield slice(first, min(people, first + step))
