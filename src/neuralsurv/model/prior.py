"""Priors: a Gaussian over the weights with one precision for each group of them, and a Gamma over phi."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import digamma
from torch import Tensor

from neuralsurv.errors import InputError


@dataclass(frozen=True)
class Gamma:
    """Gamma distribution with shape and rate (eq. 5 of the paper for the prior of phi)."""

    shape: float
    rate: float

    @property
    def inferred(self) -> Gamma:
        """The distribution itself: phi is inferred."""
        return self

    @property
    def mean(self) -> float:
        """The mean, shape / rate."""
        return self.shape / self.rate

    @property
    def mean_log(self) -> float:
        r"""The mean of the logarithm, :math:`\psi(\alpha) - \log\beta`."""
        return float(digamma(self.shape)) - math.log(self.rate)

    def quantile(self, probability: float) -> float:
        """Return the quantile at `probability`."""
        from scipy.stats import gamma

        return float(gamma.ppf(probability, self.shape, scale=1 / self.rate))

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the equal-tailed interval that holds `level` of the mass."""
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def density(self, values: np.ndarray) -> np.ndarray:
        """Return the density at `values`."""
        from scipy.stats import gamma

        return np.asarray(gamma.pdf(values, self.shape, scale=1 / self.rate))

    def describe(self) -> dict[str, float]:
        """Return the parameters, for a model file."""
        return {"shape": self.shape, "rate": self.rate}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return `count` independent draws."""
        # Gamma sampling in torch takes no generator, so the stream is seeded through one integer drawn from ours.
        seed = int(torch.randint(2**62, (1,), generator=generator))
        return torch.from_numpy(np.random.default_rng(seed).gamma(self.shape, 1 / self.rate, count))


@dataclass(frozen=True)
class PointMass:
    """A phi that is fixed at one value, as in the default model, where the bias of g plays its role."""

    mean: float

    @property
    def inferred(self) -> None:
        """None: phi is fixed."""
        return None

    @property
    def mean_log(self) -> float:
        """The logarithm of the value."""
        return math.log(self.mean)

    def quantile(self, probability: float) -> float:
        """Return the value, whatever the probability."""
        return self.mean

    def interval(self, level: float = 0.9) -> tuple[float, float]:
        """Return the value twice."""
        return self.mean, self.mean

    def density(self, values: np.ndarray) -> np.ndarray:
        """Refuse: a point mass has no density."""
        raise InputError("phi is fixed in this model, so it has no density; only the paper's model infers it.")

    def describe(self) -> dict[str, float]:
        """Return the value, for a model file."""
        return {"held": self.mean}

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return the value `count` times."""
        return torch.full((count,), self.mean, dtype=torch.float64)


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


@dataclass(frozen=True)
class Group:
    r"""Weights that share one scale, :math:`\log s \sim N(\log\text{median}, \text{spread}^2)`.

    Attributes
    ----------
    name : str
        What they do.
    start, stop : int
        Where they are in the flat weight vector.
    median, spread : float
        The hyper-prior of their scale.
    """

    name: str
    start: int
    stop: int
    median: float
    spread: float


@dataclass(frozen=True)
class GroupedPrior:
    """Zero-mean Gaussians over the weights with one unknown scale for each group of them.

    Attributes
    ----------
    unit : Tensor of shape (m,)
        The precisions where all scales are 1; weights in no group keep theirs.
    groups : tuple of Group
        The groups.
    """

    unit: Tensor
    groups: tuple[Group, ...]

    @property
    def medians(self) -> Tensor:
        """Logarithms of the medians of the scales, shape (G,)."""
        return torch.tensor([math.log(group.median) for group in self.groups], dtype=torch.float64)

    @property
    def spreads(self) -> Tensor:
        """Standard deviations of the logarithms of the scales, shape (G,)."""
        return torch.tensor([group.spread for group in self.groups], dtype=torch.float64)

    def log_density(self, log_scales: Tensor) -> float:
        """Return the log of the hyper-prior's density relative to that at its median."""
        return -0.5 * float((((log_scales - self.medians) / self.spreads) ** 2).sum())

    def multipliers(self, log_scales: Tensor) -> Tensor:
        """Return the scale of every weight, shape (m,); 1 outside all groups."""
        out = torch.ones_like(self.unit)
        for group, log_scale in zip(self.groups, log_scales, strict=True):
            out[group.start : group.stop] = torch.exp(log_scale)
        return out

    def at(self, log_scales: Tensor) -> WeightPrior:
        """Return the prior for given scales."""
        return WeightPrior(self.unit / self.multipliers(log_scales) ** 2)
