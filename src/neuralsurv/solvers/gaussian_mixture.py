"""A mixture of Gaussians over the weights, for a posterior that is averaged over settings of the prior."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from neuralsurv.errors import InputError, StorageError
from neuralsurv.solvers.interface import Description, Gaussian

_ROUNDING = 1e-9


@dataclass(frozen=True)
class MixtureGaussian:
    """Gaussians with weights that add up to 1.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
    >>> from neuralsurv.solvers.primal import PrimalGaussian
    >>> one = torch.ones(1, 1, dtype=torch.float64)
    >>> apart = [PrimalGaussian(torch.tensor([at], dtype=torch.float64), one) for at in (-2.0, 2.0)]
    >>> mixture = MixtureGaussian((0.5, 0.5), tuple(apart))
    >>> float(mixture.mean), float(mixture.variance(one))
    (0.0, 5.0)
    """

    weights: tuple[float, ...]
    parts: tuple[Gaussian, ...]

    def __post_init__(self) -> None:
        """Check the weights."""
        if len(self.weights) != len(self.parts) or not self.parts:
            raise InputError(f"a mixture of {len(self.parts)} Gaussians has {len(self.weights)} weights.")
        if min(self.weights) < 0 or abs(sum(self.weights) - 1) > _ROUNDING:
            raise InputError("the weights of a mixture must be 0 or more and add up to 1.")

    @property
    def mean(self) -> Tensor:
        """The mean, shape (m,)."""
        return torch.stack([w * part.mean for w, part in zip(self.weights, self.parts, strict=True)]).sum(0)

    def variance(self, rows: Tensor) -> Tensor:
        """Return the variance of each ``rows @ theta``: that within the parts and that between their means."""
        centre = self.mean
        total = rows.new_zeros(len(rows))
        for weight, part in zip(self.weights, self.parts, strict=True):
            total += weight * (part.variance(rows) + (rows @ (part.mean - centre)).square())
        return total

    def covariance(self) -> Tensor | None:
        """Return the covariance of theta: within the parts, and between their means."""
        centre, total = self.mean, None
        for weight, part in zip(self.weights, self.parts, strict=True):
            within = part.covariance()
            if within is None:
                return None
            apart = part.mean - centre
            share = weight * (within + torch.outer(apart, apart))
            total = share if total is None else total.add_(share)
        return total

    def divergence(self, precision: Tensor) -> float:
        """Return an upper bound of the divergence to N(0, diag(precision)⁻¹): the average over the parts."""
        return sum(w * part.divergence(precision) for w, part in zip(self.weights, self.parts, strict=True))

    def draw(self, count: int, generator: torch.Generator) -> Tensor:
        """Return draws of theta; each part has its share of them, up to rounding that is itself random."""
        start = float(torch.rand(1, generator=generator, dtype=torch.float64))
        edges = torch.tensor([0.0, *self.weights], dtype=torch.float64).cumsum(0) * count + start
        edges[-1] = count + start
        counts = edges.floor().diff().long().tolist()
        draws = torch.cat([part.draw(k, generator) for k, part in zip(counts, self.parts, strict=True)])
        return draws[torch.randperm(len(draws), generator=generator)]

    def describe(self) -> Description:
        """Return the weights, the basis that all parts share, and the arrays of each part under its number."""
        arrays = [dict(part.describe().arrays) for part in self.parts]
        bases = [each.pop("basis", None) for each in arrays]
        if bases[0] is None or any(basis is not bases[0] for basis in bases):
            raise StorageError("a mixture whose parts do not share one basis cannot be saved.")
        numbered = {f"{name}_{k}": array for k, each in enumerate(arrays) for name, array in each.items()}
        return Description({"mixture": list(self.weights)}, {"basis": bases[0], **numbered})
