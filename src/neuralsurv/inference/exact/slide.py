r"""Slides: exact Metropolis moves of the Gibbs sampler along the ridge between phi and the level of g.

Phi and the level of g are strongly coupled (where :math:`\sigma(g)` is small only the product
:math:`\phi\,\sigma(g)` is known at all), and a sweep moves along that ridge by small steps. A slide proposes
:math:`\phi' = \phi e^{-s},\ \theta' = \theta + s v` with s symmetric about 0 and v a fixed direction along which g
makes up for the change of phi. Write the posterior with all latent variables integrated out as
:math:`R(\theta,\phi)\,e^{-\int f}`, :math:`f = w\phi b\,\sigma(g)` summed over rows; R holds priors and events. With
:math:`F = f' - f`, and q the linear interpolant of F between fixed nodes, whose integral Q is a finite sum, the slide
is accepted with probability

.. math:: a = \min\{1, \phi'R'e^{-Q}/(\phi R)\}\;\exp\Big(-\int (F - q)^{+}\Big).

*It leaves the posterior invariant, however coarse the nodes are.* In the coordinates :math:`(\theta, \log\phi)` the
proposal is symmetric, and the density of the target is :math:`\phi R\,e^{-\int f}`. So the flow from one state to the
other is :math:`\min\{\phi R, \phi'R'e^{-Q}\}\,e^{-\int f - \int(F-q)^+}`. On the way back F and q change sign, and the
flow is

.. math:: \min\{\phi'R', \phi R e^{Q}\}\,e^{-\int f' - \int(F-q)^-}
          = \min\{\phi R, \phi'R'e^{-Q}\}\,e^{Q - \int f' - \int(F-q)^-}.

Since :math:`\int f' = \int f + Q + \int(F-q)^+ - \int(F-q)^-`, the two are equal: detailed balance.
The second factor of a is the probability that a Poisson process of rate :math:`(F-q)^+` has no point, and thinning
decides that without an integral. q only keeps it close to 1: without q, slides would have to be shorter by a factor of
about the root of the number of events. Latent variables are drawn afresh after a slide, so that integrating them out
is legitimate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from neuralsurv.inference.exact.thinning import GibbsState, LinearPoints, Thinning
from neuralsurv.solvers.primal import cholesky

# Steps of a slide in log phi; one of the scales is drawn each time, so that none has to be tuned to the problem.
_SLIDE_SCALES = (0.1, 0.3, 1.0, 3.0)
# Cells of a row between whose ends a slide interpolates.
_CELLS = 16


@dataclass(frozen=True)
class Slider:
    """Slides of C chains at once, with what stays the same between them."""

    thinning: Thinning

    @cached_property
    def nodes(self) -> tuple[Tensor, Tensor, Tensor]:
        """Offsets h (N, K+1), J (N, K+1, m) and 1/Z (N, K+1) at the ends of K equal cells of each row."""
        model, (low, high) = self.thinning.model, self.thinning.ends
        u = low[:, None] + (high - low)[:, None] * torch.linspace(0, 1, _CELLS + 1, dtype=torch.float64)
        row = torch.arange(len(low)).repeat_interleave(_CELLS + 1)
        time = u.reshape(-1) ** (1 / model.rho)
        offset, jacobian = model.linear(time, row)
        return offset.reshape(u.shape), jacobian.reshape(*u.shape, -1), 1 / model.normaliser(time, row).reshape(u.shape)

    def node_hazard(self, theta: Tensor, phi: Tensor) -> Tensor:
        """Return φσ(g)/Z at the nodes for theta (C, m) and phi (C,), shape (C, N, K+1)."""
        offset, jacobian, inverse = self.nodes
        g = offset + (theta @ jacobian.flatten(0, 1).T).reshape(-1, *offset.shape)
        return phi[:, None, None] * torch.sigmoid(g) * inverse

    def integrate(self, values: Tensor) -> Tensor:
        """Return the integral of the interpolant of values (C, N, K+1) over the baseline mass of all rows, (C,)."""
        low, high = self.thinning.ends
        mean = torch.trapezoid(values, dim=2) / _CELLS
        return mean @ (self.thinning.model.cohort.weight * (high - low) / self.thinning.model.rho)

    def interpolate(self, values: Tensor, points: LinearPoints) -> Tensor:
        """Return the interpolant of values (C, N, K+1) at points."""
        low, high = (end[points.row] for end in self.thinning.ends)
        place = (points.time**self.thinning.model.rho - low) / (high - low) * _CELLS
        cell = place.long().clamp(0, _CELLS - 1)
        left, right = (values[points.chain, points.row, cell + side] for side in (0, 1))
        return left + (place - cell) * (right - left)

    def direction(self, theta: Tensor, phi: float) -> Tensor:
        """Return v (m,): how theta (m,) has to move to make up for a fall of log phi by 1.

        It is the regression of theta on −log phi in the Gaussian with the Fisher information of the point process at
        a pilot value. A poor pilot value makes slides short and nothing else.
        """
        offset, jacobian, _ = self.nodes
        low, high = self.thinning.ends
        hazard = self.node_hazard(theta[None], torch.tensor([phi], dtype=torch.float64))[0]
        events = (
            hazard
            * (self.thinning.model.cohort.weight * (high - low) / (self.thinning.model.rho * (_CELLS + 1)))[:, None]
        ).reshape(-1)
        rows = jacobian.flatten(0, 1)
        slope = torch.sigmoid(-offset.reshape(-1) - rows @ theta)
        matrix = torch.diag(self.thinning.model.precision) + rows.T @ ((events * slope**2)[:, None] * rows)
        return torch.cholesky_solve((rows.T @ (events * slope))[:, None], cholesky(matrix)).squeeze(1)

    def log_ratio(self, state: GibbsState, new: GibbsState) -> Tensor:
        """Return log(R'φ'/(Rφ)) of each chain: priors, events, and the Jacobian of log phi."""
        prior = self.thinning.model.phi_prior.inferred
        assert prior is not None
        before, after = (
            logsigmoid(self.thinning.g_events(one.theta)) @ self.thinning.event_weight for one in (state, new)
        )
        precision = self.thinning.model.precision_at(state.log_scales)
        weights = ((new.theta**2 - state.theta**2) * precision).sum(1) / 2
        scale = (prior.shape + self.thinning.event_count) * torch.log(new.phi / state.phi)
        return scale - prior.rate * (new.phi - state.phi) + after - before - weights

    def slide(self, state: GibbsState, direction: Tensor, rng: np.random.Generator) -> tuple[GibbsState, Tensor]:
        """Try one slide in every chain; return the states and which chains (C,) have moved."""
        chains = len(state.phi)
        step = torch.from_numpy(rng.choice(_SLIDE_SCALES, chains) * rng.standard_normal(chains))
        new = replace(state, theta=state.theta + step[:, None] * direction, phi=state.phi * torch.exp(-step))
        change = self.node_hazard(new.theta, new.phi) - self.node_hazard(state.theta, state.phi)
        log_ratio = self.log_ratio(state, new) - self.integrate(change)
        moved = torch.log(torch.from_numpy(1 - rng.random(chains))) < log_ratio
        # F is at most φ'c, and −q at most φc. Chains that are refused already need no points.
        bound = state.phi + new.phi
        points = self.thinning.candidates(torch.where(moved, bound, torch.zeros_like(bound)), rng)
        before, after = (one.phi[points.chain] * torch.sigmoid(points.g(one.theta)) for one in (state, new))
        excess = self.thinning.share_of_ceiling(points) * (after - before)
        excess -= self.interpolate(change, points) / self.thinning.ceiling[points.row]
        hit = torch.from_numpy(rng.random(len(excess))) * bound[points.chain] < excess
        moved[points.chain[hit]] = False
        theta = torch.where(moved[:, None], new.theta, state.theta)
        return replace(state, theta=theta, phi=torch.where(moved, new.phi, state.phi)), moved
