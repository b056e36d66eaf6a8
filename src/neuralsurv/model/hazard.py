r"""The sigmoidal hazard :math:`\lambda(t|x) = \phi\,t^{\rho-1}\sigma(g)/Z` and its normaliser (eqs. 1 and 2).

:math:`Z(t,x) = \mathrm{E}_{\theta}[\sigma(g(t,x;\theta))]` under the prior has three forms here: exactly one half
where the prior of g is symmetric about 0, the closed form of the paper's appendix D, and Monte Carlo.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from neuralsurv.model.network import Network
from neuralsurv.model.prior import WeightPrior
from neuralsurv.solvers.interface import Description

_BLOCK = 8192


def log_baseline(time: Tensor, rho: float) -> Tensor:
    r"""Return :math:`(\rho-1)\log t`, the log of the baseline hazard for :math:`\phi = 1`; 0 for :math:`\rho = 1`."""
    return torch.xlogy(rho - 1, time)


def hazard(phi: Tensor, time: Tensor, g: Tensor, z: Tensor, rho: float) -> Tensor:
    """Return the hazard in scaled time (eq. 1); the arguments broadcast."""
    return phi * torch.exp(log_baseline(time, rho)) * torch.sigmoid(g) / z


class Normaliser(Protocol):
    """Z as a function of points."""

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        """Return Z at each point, shape (P,)."""
        ...

    def describe(self) -> Description:
        """Return its kind and its numbers, for a model file; the network is not part of it."""
        ...


@dataclass(frozen=True)
class Constant:
    """Z is one number: 1/2 where the prior of g is symmetric about 0, else sigma(g) in the middle of that prior."""

    value: float

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        """Return the number at each point."""
        return torch.full_like(time, self.value)

    def describe(self) -> Description:
        """Return the number."""
        return Description({"normaliser": "constant", "normaliser_value": self.value}, {})


@dataclass(frozen=True)
class ClosedForm:
    r"""The paper's approximation (appendix D), linearised at the prior mean by default.

    :math:`Z \approx \sigma\big((g - J\theta^*) / \sqrt{1 + \tfrac{\pi}{8} J T^{-1} J^\top}\big)`: the whole of
    :math:`g - J\theta^*` is divided. Its error against the exact Gaussian integral stays below 0.02.
    """

    network: Network
    prior: WeightPrior
    theta_star: Tensor | None = None

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        """Return Z at each point."""
        star = torch.zeros_like(self.prior.precision) if self.theta_star is None else self.theta_star
        parts = []
        for t, xs in zip(torch.split(time, _BLOCK), torch.split(x, _BLOCK), strict=True):
            jacobian = self.network.jacobian(star, t, xs)
            mean = self.network.value(star, t, xs) - jacobian @ star
            variance = (jacobian**2 / self.prior.precision).sum(1)
            parts.append(torch.sigmoid(mean / torch.sqrt(1 + math.pi / 8 * variance)))
        return torch.cat(parts) if parts else time.clone()

    def describe(self) -> Description:
        """Return the prior precision."""
        return Description({"normaliser": "closed-form"}, {"prior_precision": self.prior.precision})


@dataclass(frozen=True)
class MonteCarlo:
    """Z as an average over `draws` weight vectors from the prior; the same draws at every point."""

    network: Network
    prior: WeightPrior
    draws: int = 1000
    seed: int = 0

    def __call__(self, time: Tensor, x: Tensor) -> Tensor:
        """Return Z at each point."""
        generator = torch.Generator().manual_seed(self.seed)
        total = torch.zeros_like(time)
        for _ in range(self.draws):
            total += torch.sigmoid(self.network.value(self.prior.draw(generator), time, x))
        return total / self.draws

    def describe(self) -> Description:
        """Return the seed and the prior precision."""
        values = {"normaliser": "monte-carlo", "normaliser_seed": self.seed}
        return Description(values, {"prior_precision": self.prior.precision})
