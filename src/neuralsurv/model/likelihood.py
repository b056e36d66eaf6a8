"""What is to be inferred from: the points of a cohort with their covariates, and the hazard at them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Normaliser, log_baseline
from neuralsurv.model.network import Evaluate, EvaluateTogether, Network
from neuralsurv.model.points import Points


@dataclass(frozen=True)
class Likelihood:
    """The points of a cohort and the hazard at them, in scaled time: everything but the priors.

    Attributes
    ----------
    points : Points
        Events, then nodes.
    x : Tensor of shape (N, d)
        Covariates of the rows.
    network, normaliser, rho
        The hazard.
    """

    points: Points
    x: Tensor
    network: Network
    normaliser: Normaliser
    rho: float

    @cached_property
    def point_x(self) -> Tensor:
        """Covariates of every point, shape (P, d), and in a further column the cause where there are several."""
        return self.points.inputs(self.x)

    @cached_property
    def evaluate(self) -> Evaluate:
        """The map from theta to g at every point and its pullback u -> Jᵀu."""
        return self.network.bind(self.points.time, self.point_x)

    @cached_property
    def evaluate_together(self) -> EvaluateTogether:
        """The map from several weight vectors to what `evaluate` gives for each, in less time."""
        return self.network.bind_together(self.points.time, self.point_x)

    @cached_property
    def event_weight(self) -> Tensor:
        """Row weights of the event points, shape (D,)."""
        return self.points.weight[: self.points.events]

    @cached_property
    def event_count(self) -> float:
        """Weighted number of events."""
        return float(self.event_weight.sum())

    @cached_property
    def cause_counts(self) -> Tensor:
        """Weighted number of events of each cause, shape (K,)."""
        if self.points.cause is None:
            return self.event_weight.sum()[None]
        own = self.points.cause[: self.points.events]
        return torch.bincount(own, self.event_weight, minlength=self.network.causes)

    @cached_property
    def _z(self) -> Tensor:
        return self.normaliser(self.points.time, self.point_x)

    @cached_property
    def baseline(self) -> Tensor:
        """c: row weight times quadrature weight over Z at the nodes, shape (Q,)."""
        return self.points.weight[self.points.events :] / self._z[self.points.events :]

    @cached_property
    def event_constant(self) -> float:
        """The part of the log-likelihood that is known: Σ w [(ρ−1) log y − log Z] over events."""
        events = self.points.events
        log_z = torch.log(self._z[:events])
        return float((self.event_weight * (log_baseline(self.points.time[:events], self.rho) - log_z)).sum())


@dataclass(frozen=True)
class AdditiveLikelihood(Likelihood):
    """The likelihood of the default model, whose network is a sum of parts."""

    network: Additive
