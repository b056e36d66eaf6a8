r"""The terms of the ELBO of a batch of rows, as one flat vector that can be summed over batches and processes.

It holds :math:`\mathrm{E}\log p`, :math:`Z^\top\mathrm{diag}(\kappa)Z` and :math:`Z^\top b`. The posterior follows from
the sums alone, so a step of coordinate ascent, exact or on a sample of the rows, is a step from sums to sums.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.expectations import bounded_expectations, expectations
from neuralsurv.inference.stream.kept_directions import Information, KeptDirections, ReducedGaussian
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import Network
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import ShiftedLog
from neuralsurv.posterior.concerns import CEILING_SHARE
from neuralsurv.solvers.triangles import add_weighted_gram, mirrored


def triangle_length(rank: int) -> int:
    """Return the number of elements of the lower triangle of an r×r matrix."""
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
class BatchTerms:
    """The terms of a batch under the linearised model, with φ fixed."""

    network: Network
    normaliser: Normaliser
    rule: ShiftedLog  # quadrature, with the same number of nodes for each row
    theta_star: Tensor  # where the network is linearised, shape (m,)
    directions: KeptDirections
    phi: float
    curvature: str = "exact"  # which curvature of a point is used: "exact", "fisher" or "polya-gamma"
    hyper_priors: bool = True  # whether the hyper-prior of the scales counts

    @property
    def length(self) -> int:
        """Value, mass without hazard, crowded mass, information across; then b and the triangle of H."""
        return 4 + self.directions.rank + triangle_length(self.directions.rank)

    def batch(self, rows: Cohort, q: ReducedGaussian) -> Tensor:
        """Return the sums of a batch under q."""
        points = build_points(rows, self.rule, 1.0)
        likelihood = Likelihood(points, rows.x, self.network, self.normaliser, 1.0)
        linearised = linearise_network(self.network, self.theta_star, points.time, likelihood.point_x)
        offset = linearised.offset
        reduced, remainder = self.directions.reduce(linearised.rows, points, rows.x)
        mean, variance = q.moments(reduced, remainder)
        if self.curvature == "polya-gamma":
            found = bounded_expectations(likelihood, self.phi, offset + mean, variance)
        else:
            found = expectations(likelihood, self.phi, offset + mean, variance, fisher=self.curvature == "fisher")
        share = torch.sigmoid((offset + mean)[points.events :])
        numbers = torch.tensor(
            [
                found.value,
                float(likelihood.baseline @ (1 - share)),
                float(likelihood.baseline @ (share > CEILING_SHARE).double()),
                float(found.curvature @ remainder),
            ],
            dtype=torch.float64,
        )
        slope = found.slope + found.curvature * mean
        return torch.cat([numbers, reduced.T @ slope, _gram(reduced, found.curvature)])

    def information(self, sums: Tensor) -> Information:
        """Return the information of the rows about the weights."""
        rank = self.directions.rank
        return Information(_square(sums[4 + rank :], rank), sums[4 : 4 + rank], float(sums[3]))

    def elbo(self, sums: Tensor, q: ReducedGaussian, log_scales: Tensor) -> float:
        """Return ELBO plus log hyper-prior."""
        value = float(sums[0]) - self.directions.divergence(q, log_scales)
        return value + self.directions.prior.log_density(log_scales) if self.hyper_priors else value
