"""A posterior that consists of draws, such as those of an exact sampler."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import InputError
from neuralsurv.model.hazard import Normaliser
from neuralsurv.model.network import Network
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.solvers.interface import Description
from neuralsurv.solvers.primal import PrimalGaussian, cholesky


@dataclass(frozen=True)
class DrawnWeights:
    """The distribution of the weights as S draws: moments of J·theta are those of the draws."""

    draws: Tensor  # of theta, shape (S, m)

    @property
    def mean(self) -> Tensor:
        """The mean of the draws, shape (m,)."""
        return self.draws.mean(0)

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of ``rows @ theta`` for each of Q rows."""
        return (self.draws @ rows.T).var(0)

    def covariance(self) -> Tensor:
        """Return the covariance of the draws."""
        centred = self.draws - self.mean
        return centred.T @ centred / len(centred)

    def divergence(self, precision: Tensor) -> float:
        """Return the divergence to N(0, diag(precision)⁻¹) of the Gaussian with the moments of the draws."""
        covariance = torch.cov(self.draws.T).reshape(self.draws.shape[1], -1)
        factor = cholesky(torch.cholesky_inverse(cholesky(covariance)))
        return PrimalGaussian(self.mean, factor).divergence(precision)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` of the draws."""
        return self.draws[choose_draws(len(self.draws), count, generator)]

    def describe(self) -> Description:
        """Return the draws."""
        return Description({}, {"draws": self.draws})


@dataclass(frozen=True)
class SampledPosterior(Posterior):
    """A posterior represented by its draws.

    ``theta`` holds the draws of the weights; ``phi`` is the Gamma with the mean and variance of the draws of phi (or
    the value at which it is fixed) and serves summaries only: every prediction comes from the joint draws.

    Attributes
    ----------
    phi_draws : Tensor of shape (S,)
        Draws of phi that belong to those of theta.
    """

    theta: DrawnWeights
    phi_draws: Tensor

    def describe(self) -> Description:
        """Return what the posterior is made of, with the draws of phi."""
        values, arrays = super().describe()
        return Description(values, {**arrays, "phi_draws": self.phi_draws})

    def draw(self, count: int, seed: int) -> Draws:
        """Return `count` of the joint draws, without repetition as long as there are enough."""
        chosen = choose_draws(len(self.phi_draws), count, torch.Generator().manual_seed(seed))
        return Draws(self.theta.draws[chosen], self.phi_draws[chosen])


def choose_draws(available: int, count: int, generator: torch.Generator) -> Tensor:
    """Return indices of `count` draws in random order; each is used once before any is used again."""
    rounds = [torch.randperm(available, generator=generator) for _ in range(-(-count // available))]
    return torch.cat(rounds)[:count]


def sampled_posterior(
    theta: Tensor, phi: Tensor, *, theta_star: Tensor, network: Network, normaliser: Normaliser, rho: float
) -> SampledPosterior:
    """Return joint draws, of shapes (S, m) and (S,), with the model they come from, as a posterior."""
    if theta.shape[1] != network.size or len(theta_star) != network.size:
        raise InputError(
            f"the draws have {theta.shape[1]} weights and theta_star {len(theta_star)}, but the network has "
            f"{network.size}; pass the network and the point that were sampled."
        )
    return SampledPosterior(_matched(phi), DrawnWeights(theta), theta_star, network, normaliser, rho, phi)


def _matched(phi: Tensor) -> Gamma | PointMass:
    """Return the Gamma with the moments of the draws, or a point mass if phi is fixed."""
    if bool((phi == phi[0]).all()):
        return PointMass(float(phi[0]))
    mean, variance = float(phi.mean()), float(phi.var())
    return Gamma(mean**2 / variance, mean / variance)
