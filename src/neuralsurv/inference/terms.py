r"""What a batch of rows says under a belief, as one flat vector that can be added up over batches and processes.

For the default preset (φ held, exact expectations) it holds :math:`\mathrm{E}\log p`,
:math:`Z^\top\mathrm{diag}(\kappa)Z` and :math:`Z^\top b`; for the augmented model of the paper the same for events and
for nodes apart, because φ, which follows from the sum of the thinned mass, scales the nodes' part. A belief follows
from the sums alone, so a step of coordinate ascent, exact or on a sample of the rows, is a step from sums to sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from neuralsurv.inference.cavi import phi_shape
from neuralsurv.inference.evidence import gamma_divergence
from neuralsurv.inference.gaussian import bounded_expectations, expectations
from neuralsurv.inference.kept_directions import Belief, Directions, Information
from neuralsurv.inference.linearise import linearise_network
from neuralsurv.inference.packed import RowBatch
from neuralsurv.inference.problem import Likelihood
from neuralsurv.model.augmentation import log_sigmoid_bound, log_thinning, polya_gamma_mean
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.network import Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma
from neuralsurv.model.quadrature import Rule
from neuralsurv.solvers.triangles import add_weighted_gram, mirrored

# A hazard above this share of its ceiling can hardly rise any further; how much exposure there is, is reported.
_CROWDED = 0.5


class Terms(Protocol):
    """What rows say, for one model."""

    @property
    def directions(self) -> Directions:
        """What is kept of the weights."""
        ...

    @property
    def length(self) -> int:
        """Length of the vector of sums."""
        ...

    def batch(self, rows: RowBatch, belief: Belief) -> Tensor:
        """Return the sums of a batch under a belief."""
        ...

    def told(self, sums: Tensor) -> Information:
        """Return what the rows say of the weights, for the sums of all rows."""
        ...

    def elbo(self, sums: Tensor, belief: Belief, log_scales: Tensor) -> float:
        """Return the ELBO of a belief, plus the log hyper-prior, from the sums of all rows under it."""
        ...


@dataclass(frozen=True)
class Linear:
    """The linearised model at the points of a batch.

    Attributes
    ----------
    network, normaliser, rho
        The hazard.
    rule : Rule
        Quadrature.
    theta_star : Tensor of shape (m,)
        Where the network is linearised.
    directions : Directions
        What is kept of the weights.
    """

    network: Network
    normaliser: Normaliser
    rho: float
    rule: Rule
    theta_star: Tensor
    directions: Directions

    def at(self, rows: RowBatch) -> tuple[Likelihood, Tensor, Tensor, Tensor]:
        """Return the points of a batch, g at theta = 0 there, the reduced rows and what lies across them."""
        points = build_points(rows.time, rows.event, rows.entry, rows.weight, self.rule, self.rho)
        likelihood = Likelihood(points, rows.x, self.network, self.normaliser, self.rho)
        linearised = linearise_network(self.network, self.theta_star, points.time, likelihood.point_x)
        return likelihood, linearised.offset, *self.directions.reduce(linearised.rows, points, rows.x)


def triangle_length(rank: int) -> int:
    """Return how many numbers the lower triangle of an r×r matrix holds."""
    return rank * (rank + 1) // 2


def _gram(reduced: Tensor, weight: Tensor) -> Tensor:
    """Return the lower triangle of Zᵀ diag(weight) Z as a vector."""
    matrix = reduced.new_zeros(reduced.shape[1], reduced.shape[1])
    add_weighted_gram(matrix, reduced, weight)
    rows, columns = torch.tril_indices(*matrix.shape)
    return matrix[rows, columns]


def _square(triangle: Tensor, rank: int) -> Tensor:
    matrix = triangle.new_zeros(rank, rank)
    rows, columns = torch.tril_indices(rank, rank)
    matrix[rows, columns] = triangle
    return mirrored(matrix)


@dataclass(frozen=True)
class HeldTerms:
    """The default preset: φ held, exact expectations.

    Attributes
    ----------
    linear : Linear
        The linearised model.
    phi : float
        φ.
    curvature : {"exact", "fisher", "polya-gamma"}
        Which curvature of a point is used.
    hyper_priors : bool
        Whether the hyper-prior of the scales counts.
    """

    linear: Linear
    phi: float
    curvature: str = "exact"
    hyper_priors: bool = True

    @property
    def directions(self) -> Directions:
        """What is kept of the weights."""
        return self.linear.directions

    @property
    def length(self) -> int:
        """Value, mass without hazard, crowded mass, information across; then b and the triangle of H."""
        return 4 + self.directions.rank + triangle_length(self.directions.rank)

    def batch(self, rows: RowBatch, belief: Belief) -> Tensor:
        """Return the sums of a batch."""
        likelihood, offset, reduced, remainder = self.linear.at(rows)
        mean, variance = belief.moments(reduced, remainder)
        if self.curvature == "polya-gamma":
            found = bounded_expectations(likelihood, self.phi, offset + mean, variance)
        else:
            found = expectations(likelihood, self.phi, offset + mean, variance, fisher=self.curvature == "fisher")
        share = torch.sigmoid((offset + mean)[likelihood.points.events :])
        numbers = torch.tensor(
            [
                found.value,
                float(likelihood.baseline @ (1 - share)),
                float(likelihood.baseline @ (share > _CROWDED).double()),
                float(found.curvature @ remainder),
            ],
            dtype=torch.float64,
        )
        slope = found.slope + found.curvature * mean
        return torch.cat([numbers, reduced.T @ slope, _gram(reduced, found.curvature)])

    def told(self, sums: Tensor) -> Information:
        """Return what the rows say of the weights."""
        rank = self.directions.rank
        return Information(_square(sums[4 + rank :], rank), sums[4 : 4 + rank], float(sums[3]))

    def elbo(self, sums: Tensor, belief: Belief, log_scales: Tensor) -> float:
        """Return ELBO plus log hyper-prior."""
        value = float(sums[0]) - self.directions.divergence(belief, log_scales)
        return value + self.directions.prior.log_density(log_scales) if self.hyper_priors else value


@dataclass(frozen=True)
class AugmentedTerms:
    """The augmented model of the paper: Pólya–Gamma bound, φ ~ Gamma.

    Attributes
    ----------
    linear : Linear
        The linearised model.
    phi_prior : Gamma
        The prior of φ.
    event_count, baseline : float
        Weighted number of events, and Σ c over all nodes: known before the sweeps, and the same in every one.
    """

    linear: Linear
    phi_prior: Gamma
    event_count: float
    baseline: float

    @property
    def directions(self) -> Directions:
        """What is kept of the weights."""
        return self.linear.directions

    @property
    def length(self) -> int:
        """Bound at events, thinned mass; then information across, b and H for events and, at φ = 1, for nodes."""
        return 2 + 2 * (1 + self.directions.rank + triangle_length(self.directions.rank))

    def batch(self, rows: RowBatch, belief: Belief) -> Tensor:
        """Return the sums of a batch."""
        likelihood, offset, reduced, remainder = self.linear.at(rows)
        mean, variance = belief.moments(reduced, remainder)
        m = offset + mean
        s = torch.sqrt(m**2 + variance)
        events = likelihood.points.events
        at_events = likelihood.event_weight * log_sigmoid_bound(m[:events], s[:events])
        thinned = likelihood.baseline * torch.exp(log_thinning(m[events:], s[events:]))
        strength = torch.cat([likelihood.event_weight, thinned])
        curvature = strength * polya_gamma_mean(s)
        slope = torch.cat([likelihood.event_weight, -thinned]) / 2 - curvature * offset
        numbers = torch.tensor(
            [float(at_events.sum()) + likelihood.event_constant, float(thinned.sum())], dtype=torch.float64
        )
        parts = [numbers]
        for part in (slice(None, events), slice(events, None)):
            across = (curvature[part] @ remainder[part])[None]
            parts += [across, reduced[part].T @ slope[part], _gram(reduced[part], curvature[part])]
        return torch.cat(parts)

    def phi(self, sums: Tensor) -> Gamma:
        """Return q(φ), with q(Ψ) at its optimum for it."""
        rate = self.phi_prior.rate + self.baseline
        return Gamma(phi_shape(self.phi_prior.shape + self.event_count, float(sums[1]), rate), rate)

    def told(self, sums: Tensor) -> Information:
        """Return what the rows say of the weights: events, and nodes times e^E[log φ]."""
        rank = self.directions.rank
        events, nodes = sums[2:].reshape(2, -1)
        both = events + math.exp(self.phi(sums).mean_log) * nodes
        return Information(_square(both[1 + rank :], rank), both[1 : 1 + rank], float(both[0]))

    def elbo(self, sums: Tensor, belief: Belief, log_scales: Tensor) -> float:
        """Return the ELBO with q(φ), q(Ψ) and q(ω) at their optimum for the belief."""
        phi = self.phi(sums)
        latent = float(sums[1]) * math.exp(phi.mean_log)
        return (
            self.event_count * phi.mean_log
            + float(sums[0])
            + latent
            - phi.mean * self.baseline
            - self.directions.divergence(belief, log_scales)
            - gamma_divergence(phi, self.phi_prior)
        )
