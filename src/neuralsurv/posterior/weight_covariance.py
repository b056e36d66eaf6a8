"""The covariance matrix of the weights, of the distributions that have one small enough to hold."""

from __future__ import annotations

from functools import singledispatch

import torch
from torch import Tensor

from neuralsurv.posterior.samples import DrawnWeights
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian


@singledispatch
def weight_covariance(theta: Gaussian) -> Tensor | None:
    """Return the covariance matrix of the weights, shape (m, m); None for a distribution without a method here."""
    return None


@weight_covariance.register
def _(theta: SubspaceGaussian) -> Tensor | None:
    scaled = theta.basis / theta.precision.sqrt()[:, None]
    lifted = scaled @ theta.inverse_factor.T
    return torch.diag(1 / theta.precision).addmm_(scaled, scaled.T, alpha=-1).addmm_(lifted, lifted.T)


@weight_covariance.register
def _(theta: PrimalGaussian) -> Tensor | None:
    return torch.cholesky_inverse(theta.factor)


@weight_covariance.register
def _(theta: DrawnWeights) -> Tensor | None:
    centred = theta.draws - theta.mean
    return centred.T @ centred / len(centred)


@weight_covariance.register
def _(theta: MixtureGaussian) -> Tensor | None:
    centre, total = theta.mean, None
    for weight, part in zip(theta.weights, theta.parts, strict=True):
        within = weight_covariance(part)
        if within is None:
            return None
        apart = part.mean - centre
        share = weight * (within + torch.outer(apart, apart))
        total = share if total is None else total.add_(share)
    return total
