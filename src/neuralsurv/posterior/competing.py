r"""The posterior of several causes of events: the hazards of the causes come from the same joint draws.

The time to the first event has the sum of the hazards. With the increments :math:`\Delta\Lambda_k` of the cumulative
hazards over a panel, the probability 1 − e^(−ΣΔΛ) of an event in it is shared out in proportion to them, so that the
cumulative incidences and event-free survival add up to 1 in every draw.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.model.additive import Additive
from neuralsurv.model.functionals import mean_survival
from neuralsurv.model.hazard import Constant
from neuralsurv.model.network import Network
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.posterior.on_times import DrawsOnTimes, OnTimes, TimeNodes


@dataclass(frozen=True)
class CausesOnTimes:
    """Draws of all causes at the nodes of some times; see `DrawsOnTimes`."""

    causes: tuple[OnTimes, ...]

    @property
    def numbers(self) -> int:
        """How many numbers it holds, about."""
        return sum(cause.numbers for cause in self.causes)

    def of_people(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return what n people multiply the functions of time by, one cause after another, shape (S, n, K·F)."""
        return torch.cat([cause.of_people(theta, x) for cause in self.causes], 2)

    def by_cause(self, of_people: Tensor) -> Tensor:
        """Return the cumulative hazard of each cause, shape (K, S, n, T), of people with these parts of g."""
        parts = of_people.chunk(len(self.causes), 2)
        return torch.stack([c.cumulative_hazard(own) for c, own in zip(self.causes, parts, strict=True)])

    def cumulative_hazard(self, of_people: Tensor) -> Tensor:
        """Return the cumulative hazard of any event, shape (S, n, T)."""
        return self.by_cause(of_people).sum(0)


@dataclass(frozen=True)
class CauseOnTimes:
    """Draws of one cause at the nodes of some times; weights are given for all causes together."""

    drawn: OnTimes
    network: Additive  # of all causes
    cause: int

    @property
    def numbers(self) -> int:
        """How many numbers it holds, about."""
        return self.drawn.numbers

    def of_people(self, theta: Tensor, x: Tensor) -> Tensor:
        """Return what n people multiply the functions of time by, for S weight vectors, shape (S, n, F)."""
        return self.drawn.of_people(self.network.weights_of(self.cause, theta), x)

    def cumulative_hazard(self, of_people: Tensor) -> Tensor:
        """Return the cumulative hazard, shape (S, n, T), of people with these parts of g, shape (S, n, F)."""
        return self.drawn.cumulative_hazard(of_people)


@dataclass(frozen=True)
class CompetingPosterior(Posterior):
    """The posterior of several causes; by itself it predicts the time to the first event of any cause."""

    network: Additive
    normaliser: Constant

    def of_cause(self, cause: int) -> CausePosterior:
        """Return the posterior of the hazard of one cause, which takes the same draws."""
        own = {field.name: getattr(self, field.name) for field in fields(Posterior)}
        return CausePosterior(**own, cause=cause)

    @property
    def causes(self) -> tuple[CausePosterior, ...]:
        """The posteriors of all causes."""
        return tuple(map(self.of_cause, range(self.network.causes)))

    def g_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Refuse: every cause has a g of its own."""
        raise InputError("g is not defined for all causes together; take that of one cause.")

    def on_times(self, draws: Draws, times: Tensor) -> CausesOnTimes:
        """Return the draws of all causes at the nodes of some times, for people in turn."""
        return CausesOnTimes(tuple(cause.on_times(draws, times) for cause in self.causes))

    def hazard_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return the hazard of any event of every draw at P points, shape (S, P), for scaled time."""
        return torch.stack([cause.hazard_draws(draws, time, x) for cause in self.causes]).sum(0)

    def log_likelihood_draws(self, draws: Draws, entry: Tensor, time: Tensor, event: Tensor, x: Tensor) -> Tensor:
        """Return the log-likelihood of n rows for every draw, shape (S, n): of the time to the first event."""
        raise InputError("the log-likelihood of rows with several causes is not available.")


@dataclass(frozen=True)
class CausePosterior(Posterior):
    """The posterior of the hazard of one of several causes; its draws are those of all causes."""

    network: Additive
    normaliser: Constant
    cause: int

    def _with_cause(self, x: Tensor) -> Tensor:
        return torch.cat([x, x.new_full((len(x), 1), self.cause)], 1)

    def g_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return g of every draw at P points, shape (S, P)."""
        return super().g_draws(draws, time, self._with_cause(x))

    def on_times(self, draws: Draws, times: Tensor) -> CauseOnTimes:
        """Return the draws of this cause at the nodes of some times, for people in turn."""
        own, theta = self.network.of_cause(self.cause), self.network.weights_of(self.cause, draws.theta)
        nodes = TimeNodes.up_to(times, own, self.rho)
        drawn = DrawsOnTimes.of(own, nodes, self.normaliser.value, theta, draws.phi)
        return CauseOnTimes(drawn, self.network, self.cause)


def posterior_kind(network: Network) -> type[Posterior]:
    """Return the posterior that suits a network: of one cause, or of several."""
    return CompetingPosterior if network.causes > 1 else Posterior


def incidences(by_cause: Tensor) -> Tensor:
    r"""Return cumulative incidences, shape (K, S, n, E), from cumulative hazards at increasing edges, of that shape.

    The first edge is time 0. On a panel the hazards are taken to be in proportion to each other.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.posterior.competing import incidences
    >>> hazards = torch.tensor([[0.0, 0.1], [0.0, 0.3]], dtype=torch.float64)[:, None, None]
    >>> [round(float(each), 3) for each in incidences(hazards)[..., -1]]
    [0.082, 0.247]
    """
    total, gains = by_cause.sum(0), by_cause.diff(dim=-1)
    every = gains.sum(0)
    lost = torch.exp(-total[..., :-1]) * -torch.expm1(-every)
    found = torch.zeros_like(by_cause)
    torch.cumsum(_shares(gains, every) * lost, -1, out=found[..., 1:])
    return found


def time_lost(edges: Tensor, by_cause: Tensor) -> Tensor:
    """Return the integrals of `incidences` from the first edge, 0, to the last, shape (K, S, n).

    With the restricted mean survival time they add up to the last edge.
    """
    total, gains = by_cause.sum(0), by_cause.diff(dim=-1)
    every, before = gains.sum(0), incidences(by_cause)[..., :-1]
    within = torch.exp(-total[..., :-1]) * (1 - mean_survival(every))
    return ((edges[1:] - edges[:-1]) * (before + _shares(gains, every) * within)).sum(-1)


def _shares(gains: Tensor, every: Tensor) -> Tensor:
    """Return the part of each cause in the increments of all; where there is none, nothing is shared out."""
    return gains / every.clamp_min(torch.finfo(gains.dtype).tiny)
