r"""Points of the Gibbs sampler: a Poisson process under a ceiling, of which conditionals and slides keep a part."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import InputError, NotFiniteError
from neuralsurv.inference.exact.linear_model import LinearModel

# Nodes at which the largest 1/Z on the interval of a row is found, and by how much the ceiling exceeds it.
_CEILING_NODES = 65
_CEILING_MARGIN = 1.5
# Rounding may lift a constant 1/Z above itself.
_ROUNDING = 1e-9
# A sweep of more candidates than this would take minutes, and is refused.
_MOST_CANDIDATES = 5_000_000


@dataclass(frozen=True)
class GibbsState:
    """What the next sweep needs of C chains: theta (C, m), phi (C,), and log scales (C, G) where they are unknown."""

    theta: Tensor
    phi: Tensor
    log_scales: Tensor | None = None


@dataclass(frozen=True)
class LinearPoints:
    """Points of all chains, those of the first chain first."""

    # The chain and the row of each point, shape (P,).
    chain: Tensor
    row: Tensor
    # Its time, and h there, shape (P,).
    time: Tensor
    offset: Tensor
    jacobian: Tensor  # J there, shape (P, m)

    def take(self, which: Tensor) -> LinearPoints:
        """Return some of the points."""
        return LinearPoints(
            self.chain[which], self.row[which], self.time[which], self.offset[which], self.jacobian[which]
        )

    def g(self, theta: Tensor) -> Tensor:
        """Return g at the points for the weights (C, m) of their chains."""
        return self.offset + (self.jacobian * theta[self.chain]).sum(1)


@dataclass(frozen=True)
class Thinning:
    """Draws candidates for C chains at once, and holds all that stays the same between sweeps.

    `ceiling_margin` is the factor by which the ceiling of a row exceeds the largest 1/Z that was seen on its interval:
    by default 1.5, or 1 where Z looks constant, so that no candidate is wasted.
    """

    model: LinearModel
    ceiling_margin: float | None = None

    @cached_property
    def ends(self) -> tuple[Tensor, Tensor]:
        """Ends of the rows in u = t^ρ, in which the baseline is flat, each of shape (N,)."""
        return self.model.cohort.entry**self.model.rho, self.model.cohort.time**self.model.rho

    @cached_property
    def ceiling(self) -> Tensor:
        """Upper bound of 1/Z on the interval of each row, shape (N,)."""
        model, rows = self.model, len(self.model.cohort)
        share = torch.linspace(0, 1, _CEILING_NODES, dtype=torch.float64)
        low, high = self.ends
        u = low[:, None] + (high - low)[:, None] * share
        row = torch.arange(rows).repeat_interleave(_CEILING_NODES)
        inverse = (1 / model.normaliser(u.reshape(-1) ** (1 / model.rho), row)).reshape(rows, -1)
        highest = inverse.max(1).values
        if self.ceiling_margin is not None:
            return self.ceiling_margin * highest
        return torch.where(highest == inverse.min(1).values, highest, _CEILING_MARGIN * highest)

    @cached_property
    def mass(self) -> np.ndarray:
        """Baseline mass under the ceiling for phi = 1, w c (y^ρ − e^ρ)/ρ, shape (N,)."""
        low, high = self.ends
        return np.asarray((self.model.cohort.weight * self.ceiling * (high - low) / self.model.rho).numpy())

    @cached_property
    def event_weight(self) -> Tensor:
        """Row weights of the events, shape (D,)."""
        return self.model.cohort.event_weight

    @cached_property
    def event_count(self) -> float:
        """Weighted number of events."""
        return float(self.event_weight.sum())

    @cached_property
    def at_events(self) -> tuple[Tensor, Tensor]:
        """Offsets h (D,) and rows J (D, m) at the events."""
        who = torch.nonzero(self.model.cohort.event).squeeze(1)
        return self.model.linear(self.model.cohort.time[who], who)

    def g_events(self, theta: Tensor) -> Tensor:
        """Return g at the events for theta (C, m), shape (C, D)."""
        offset, jacobian = self.at_events
        return torch.addmm(offset, theta, jacobian.T)

    def candidates(self, phi: Tensor, rng: np.random.Generator) -> LinearPoints:
        """Draw a Poisson process of rate w φ c t^(ρ−1) on every row, for every chain."""
        mean = phi.numpy()[:, None] * self.mass
        expected = float(mean.sum())
        if not expected <= _MOST_CANDIDATES:
            raise NotFiniteError(
                f"a sweep would draw {expected:.3g} latent points (phi is up to {float(phi.max()):.3g}); the Gibbs "
                "sampler is for small cohorts. Use variational inference, or a prior that keeps phi smaller."
            )
        flat = torch.from_numpy(np.repeat(np.arange(mean.size), rng.poisson(mean).reshape(-1)))
        rows = len(self.mass)
        chain, row = flat // rows, flat % rows
        low, high = (end[row] for end in self.ends)
        u = low + (high - low) * torch.from_numpy(rng.random(len(row)))
        time = u if self.model.rho == 1 else u ** (1 / self.model.rho)
        return LinearPoints(chain, row, time, *self.model.linear(time, row))

    def share_of_ceiling(self, points: LinearPoints) -> Tensor:
        """Return 1/(Z c) at candidates, and refuse a ceiling that is too low."""
        share = 1 / (self.model.normaliser(points.time, points.row) * self.ceiling[points.row])
        highest = float(share.max()) if len(share) else 0.0
        if highest > 1 + _ROUNDING:
            raise InputError(
                f"1/Z exceeds its ceiling by a factor of {highest:.3g} between the times where it was looked at; "
                f"set ceiling_margin, now {self.ceiling_margin or 'not given'}, to more than that and sample again."
            )
        return share.clamp(max=1)
