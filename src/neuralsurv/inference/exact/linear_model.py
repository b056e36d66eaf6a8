"""The linearised model with its data, as the Gibbs sampler takes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import InputError
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, Group, GroupedPrior, PointMass, WeightPrior
from neuralsurv.solvers.rows import Rows

LinearFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
PointFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LinearModel:
    """The linearised model with its data, in scaled time, at any time and for any row.

    Attributes
    ----------
    cohort : Cohort
        The rows. A weight may be any positive number at a censored row, and any number of at least 1 at an event:
        below 1 there is no exact Pólya–Gamma sampler.
    linear : callable
        From times (P,) and rows (P,) to h (P,) and J (P, m).
    normaliser : callable
        From times (P,) and rows (P,) to Z (P,).
    precision : Tensor of shape (m,)
        Diagonal of the prior precision of theta; where scales are unknown, that for scales of 1.
    phi_prior : Gamma or PointMass
        Prior of phi.
    rho : float
        Exponent of the baseline hazard.
    groups : tuple of Group
        Weights that share an unknown scale, with its hyper-prior; empty where the prior is known.
    """

    cohort: Cohort
    linear: LinearFunction
    normaliser: PointFunction
    precision: Tensor
    phi_prior: Gamma | PointMass
    rho: float
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        """Check the rows."""
        time, entry, weight = self.cohort.time, self.cohort.entry, self.cohort.weight
        late = int((entry >= time).sum())
        if late:
            raise InputError(f"{late} of {len(time)} rows have an entry that is not before their time; drop them.")
        empty = int((weight <= 0).sum())
        if empty:
            raise InputError(f"{empty} of {len(weight)} rows have a weight that is not positive; drop them.")
        if not 0 < self.phi_prior.mean < math.inf:
            raise InputError(f"phi is about {self.phi_prior.mean!r} by its prior, but it must be a positive number.")
        light = int((self.cohort.event_weight < 1).sum())
        if light:
            raise InputError(
                f"{light} of {len(self.cohort.event_weight)} events have a weight below 1, for which there is no exact "
                "Pólya–Gamma sampler; rescale the weights to at least 1 at events, or use variational inference."
            )

    @property
    def grouped_prior(self) -> GroupedPrior:
        """The prior of theta with its unknown scales."""
        return GroupedPrior(self.precision, self.groups)

    def precision_at(self, log_scales: Tensor | None) -> Tensor:
        """Return the prior precision for log scales (C, G), shape (C, m); (m,) where there are none."""
        if log_scales is None:
            return self.precision
        return torch.stack([self.grouped_prior.at(one).precision for one in log_scales])

    @classmethod
    def from_network(
        cls,
        cohort: Cohort,
        *,
        network: Network,
        theta_star: Tensor,
        weight_prior: WeightPrior,
        phi_prior: Gamma | PointMass,
        normaliser: Normaliser,
        rho: float,
        groups: tuple[Group, ...] = (),
        project: Callable[[Rows], Tensor] = lambda rows: rows.dense(),
    ) -> LinearModel:
        """Return the model of a cohort and a network linearised at `theta_star` (m,).

        `project` turns rows of the network into those of the coordinates that theta stands for.
        """

        def linear(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            linearised = linearise_network(network, theta_star, at, cohort.x[row])
            return linearised.offset, project(linearised.rows)

        precision = weight_prior.precision
        return cls(cohort, linear, lambda at, row: normaliser(at, cohort.x[row]), precision, phi_prior, rho, groups)
