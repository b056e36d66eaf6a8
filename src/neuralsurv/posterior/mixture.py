"""A posterior around several modes: each part is linearised at its own mode and has an equal share of the draws."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian


@dataclass(frozen=True)
class MixedDraws(Draws):
    """Joint draws, each of which belongs to one part of the mixture."""

    part: Tensor  # number of the part, shape (S,)

    def take(self, chosen: slice | Tensor) -> MixedDraws:
        """Return some of the draws."""
        return MixedDraws(self.theta[chosen], self.phi[chosen], self.part[chosen])

    def around(self, mode: int) -> Tensor:
        """Return a mask, shape (S,), of the draws that belong to part number `mode`."""
        return self.part == mode


@dataclass(frozen=True)
class MixedPosterior(Posterior):
    """Posteriors around several modes of the same model, with equal weights.

    The fields of a posterior are those of the first part, but for ``theta``, the mixture of all: the moments of the
    weights, which mean little, as the same function may belong to different weights. Predictions come from the parts.
    """

    parts: tuple[Posterior, ...]

    @classmethod
    def of(cls, parts: tuple[Posterior, ...]) -> MixedPosterior:
        """Return the mixture of some posteriors."""
        if not parts or len({part.network.size for part in parts}) != 1:
            raise InputError("a mixture needs posteriors of one model, and at least one of them.")
        theta = MixtureGaussian((1 / len(parts),) * len(parts), tuple(part.theta for part in parts))
        first = parts[0]
        return cls(first.phi, theta, first.theta_star, first.network, first.normaliser, first.rho, parts)

    @property
    def modes(self) -> tuple[Posterior, ...]:
        """The parts."""
        return self.parts

    def draw(self, count: int, seed: int) -> MixedDraws:
        """Return `count` joint draws; the parts take turns in a random order, so their shares differ by one at most."""
        generator = torch.Generator().manual_seed(seed)
        part = torch.randperm(len(self.parts), generator=generator)[torch.arange(count) % len(self.parts)]
        theta = torch.empty(count, self.network.size, dtype=torch.float64)
        phi = torch.empty(count, dtype=torch.float64)
        for number, posterior in enumerate(self.parts):
            mine = part == number
            theta[mine] = posterior.theta.draw(int(mine.sum()), generator)
            phi[mine] = posterior.phi.draw(int(mine.sum()), generator)
        return MixedDraws(theta, phi, part)

    def g_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return g of every draw at P points, shape (S, P)."""
        return self._each(draws, lambda part, own: part.g_draws(own, time, x))

    def hazard_draws(self, draws: Draws, time: Tensor, x: Tensor) -> Tensor:
        """Return the hazard of every draw at P points, shape (S, P), for scaled time."""
        return self._each(draws, lambda part, own: part.hazard_draws(own, time, x))

    def on_times(self, draws: Draws, times: Tensor) -> None:
        """Return None: each part has draws of its own."""

    def cumulative_hazard_draws(self, draws: Draws, times: Tensor, x: Tensor) -> Tensor:
        """Return the cumulative hazard of every draw for n people at T times, shape (S, n, T)."""
        return self._each(draws, lambda part, own: part.cumulative_hazard_draws(own, times, x))

    def log_likelihood_draws(self, draws: Draws, entry: Tensor, time: Tensor, event: Tensor, x: Tensor) -> Tensor:
        """Return the log-likelihood of n rows for every draw, shape (S, n), for scaled time."""
        return self._each(draws, lambda part, own: part.log_likelihood_draws(own, entry, time, event, x))

    def _each(self, draws: Draws, compute: Callable[[Posterior, Draws], Tensor]) -> Tensor:
        """Compute each part's draws with that part, and return the results in the order of the draws."""
        found = []
        for number, posterior in enumerate(self.parts):
            own = draws.around(number)
            if own.any():
                found.append((own, compute(posterior, draws.take(own))))
        out = found[0][1].new_empty(len(draws), *found[0][1].shape[1:])
        for own, values in found:
            out[own] = values
        return out
