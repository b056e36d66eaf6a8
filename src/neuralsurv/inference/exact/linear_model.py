"""The linearised model with its data, as the Gibbs sampler takes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, Group, GroupedPrior, WeightPrior

LinearFunction = Callable[[Tensor, Tensor], tuple[Tensor, Tensor]]
PointFunction = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class LinearModel:
    """The linearised model with its data, in scaled time, at any time and for any row.

    Attributes
    ----------
    time, entry, weight : Tensor of shape (N,)
        Scaled times, scaled entries (0 where nothing is truncated), row weights. A weight may be any positive number
        at a censored row, and any number of at least 1 at an event: below 1 there is no exact Pólya–Gamma sampler.
    event : bool Tensor of shape (N,)
        Event flags.
    linear : callable
        From times (P,) and rows (P,) to h (P,) and J (P, m).
    normaliser : callable
        From times (P,) and rows (P,) to Z (P,).
    precision : Tensor of shape (m,)
        Diagonal of the prior precision of theta; where scales are unknown, that for scales of 1.
    phi_prior : Gamma or float
        Prior of phi; a number where phi is known.
    rho : float
        Exponent of the baseline hazard.
    groups : tuple of Group
        Weights that share an unknown scale, with its hyper-prior; empty where the prior is known.
    """

    time: Tensor
    event: Tensor
    entry: Tensor
    weight: Tensor
    linear: LinearFunction
    normaliser: PointFunction
    precision: Tensor
    phi_prior: Gamma | float
    rho: float
    groups: tuple[Group, ...] = ()

    def __post_init__(self) -> None:
        """Check the rows."""
        late = int((self.entry >= self.time).sum())
        if late:
            raise InputError(f"{late} of {len(self.time)} rows have an entry that is not before their time; drop them.")
        if bool((self.weight <= 0).any()):
            raise InputError(
                f"{int((self.weight <= 0).sum())} of {len(self.weight)} rows have a weight that is not positive; "
                "drop them."
            )
        if not isinstance(self.phi_prior, Gamma) and not 0 < self.phi_prior < math.inf:
            raise InputError(f"phi is known to be {self.phi_prior!r}, but it must be a positive number.")
        light = int((self.weight[self.event] < 1).sum())
        if light:
            raise InputError(
                f"{light} of {int(self.event.sum())} events have a weight below 1, for which there is no exact "
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
        time: Tensor,
        event: Tensor,
        entry: Tensor,
        weight: Tensor,
        x: Tensor,
        *,
        network: Network,
        theta_star: Tensor,
        weight_prior: WeightPrior,
        phi_prior: Gamma | float,
        normaliser: Normaliser,
        rho: float,
    ) -> LinearModel:
        """Return the model of rows with covariates `x` (N, d) and a network linearised at `theta_star` (m,)."""

        def linear(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
            linearised = linearise_network(network, theta_star, at, x[row])
            return linearised.offset, linearised.jacobian

        return cls(
            time=time,
            event=event,
            entry=entry,
            weight=weight,
            linear=linear,
            normaliser=lambda at, row: normaliser(at, x[row]),
            precision=weight_prior.precision,
            phi_prior=phi_prior,
            rho=rho,
        )
