"""Priors: a Gaussian over the weights with one precision for each group of them, and a Gamma over phi."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Gamma:
    """Gamma distribution with shape and rate (eq. 5 of the paper for the prior of phi)."""

    shape: float
    rate: float

    @property
    def mean(self) -> float:
        """The mean, shape / rate."""
        return self.shape / self.rate

    @property
    def mean_log(self) -> float:
        r"""The mean of the logarithm, :math:`\psi(\alpha) - \log\beta`."""
        shape = torch.tensor(self.shape, dtype=torch.float64)
        return float(torch.digamma(shape) - torch.log(torch.tensor(self.rate, dtype=torch.float64)))

    def quantile(self, probability: float) -> float:
        """Return the quantile at `probability`."""
        from scipy.stats import gamma

        return float(gamma.ppf(probability, self.shape, scale=1 / self.rate))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the equal-tailed interval that holds `level` of the mass."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` independent draws."""
        # Gamma sampling in torch takes no generator, so the stream is seeded through one integer drawn from ours.
        import numpy as np

        seed = int(torch.randint(2**62, (1,), generator=generator))
        return torch.from_numpy(np.random.default_rng(seed).gamma(self.shape, 1 / self.rate, count))


@dataclass(frozen=True)
class WeightPrior:
    """Independent zero-mean Gaussians over the flat weight vector.

    Attributes
    ----------
    precision : Tensor of shape (m,)
        Diagonal of the prior precision; the paper has ones (eq. 4).
    """

    precision: Tensor

    @classmethod
    def isotropic(cls, size: int) -> WeightPrior:
        """Return the paper's standard normal prior over `size` weights."""
        return cls(torch.ones(size, dtype=torch.float64))

    def draw(self, generator: torch.Generator) -> Tensor:
        """Return one draw, of shape (m,)."""
        noise = torch.randn(len(self.precision), generator=generator, dtype=torch.float64)
        return noise / self.precision.sqrt()
