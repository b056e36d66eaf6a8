r"""The directions of the weights that the data inform: few enough to sample.

The weights are whitened and, in a large network, reduced to the directions V that carry information,
:math:`\theta = T^{-1/2}\big(Vz + s\,(I - VV^\top)\varepsilon\big)`: z is what is inferred, everything across V keeps
its prior, and what that gives up is less than a thousandth of a nat.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.linearised_fit import LinearisedFit
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.solvers.grouped import GroupedSolver
from neuralsurv.solvers.rows import Rows

# A network of no more weights than this is sampled as it is.
_MOST_WEIGHTS = 200
# Information that the omitted directions may carry, in nats.
_TOLERANCE = 1e-3
# Nodes per row from which the directions are found.
_NODES = 32


@dataclass(frozen=True)
class SampledCoordinates:
    """The coordinates z that are sampled, and what they mean."""

    prior: GroupedPrior  # the prior of the weights; T is its precision for scales of 1
    solver: GroupedSolver | None  # the solver whose basis is V; None where every weight is a coordinate

    @property
    def rank(self) -> int:
        """Number of coordinates r."""
        return len(self.prior.unit) if self.solver is None else self.solver.basis.shape[1]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of weights as groups of coordinates."""
        if self.solver is None:
            return self.prior.groups
        places = [self.solver.directions(group.start, group.stop) for group in self.prior.groups]
        return tuple(
            replace(group, start=place.start, stop=place.stop)
            for group, place in zip(self.prior.groups, places, strict=True)
        )

    def project(self, rows: Rows) -> Tensor:
        """Return rows (P, m) of the network as rows (P, r) of the coordinates."""
        root = self.prior.unit.sqrt()
        return rows.times_basis(torch.diag(1 / root) if self.solver is None else self.solver.basis / root[:, None])

    def weights(self, z: Tensor, log_scales: Tensor, generator: torch.Generator) -> Tensor:
        """Return weights (S, m) for coordinates (S, r) and log scales (S, G); across V they are draws of the prior."""
        root = self.prior.unit.sqrt()
        if self.solver is None:
            return z / root
        basis = self.solver.basis
        noise = torch.randn(len(z), len(root), generator=generator, dtype=z.dtype)
        across = torch.addmm(noise, noise @ basis, basis.T, alpha=-1)
        for group, log_scale in zip(self.prior.groups, log_scales.T, strict=True):
            across[:, group.start : group.stop] *= log_scale.exp()[:, None]
        return (z @ basis.T + across) / root


def find_coordinates(fit: LinearisedFit, cohort: Cohort) -> SampledCoordinates:
    """Return the coordinates: all weights, or in a large network the directions that carry information."""
    likelihood, prior = fit.likelihood, fit.prior
    network = likelihood.network
    if network.size <= _MOST_WEIGHTS:
        return SampledCoordinates(prior, None)
    points = build_points(cohort, fit.rule(_NODES), likelihood.rho)
    with threads_for(len(points) * network.size):
        point_x, events = cohort.x[points.row], points.events
        linearised = linearise_network(network, fit.theta_star, points.time, point_x)
        share = torch.sigmoid(linearised.offset + linearised.rows.times(fit.theta.mean))[events:]
        mass = points.weight[events:] / likelihood.normaliser(points.time, point_x)[events:]
        # Bounds of the information: of log σ(g) at an event, and of the point process at a node.
        importance = torch.cat([points.weight[:events] / 4, fit.phi.mean * mass * share])
        return SampledCoordinates(prior, fit.reduce(points.time, point_x, importance, _TOLERANCE))
