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
    """Return the covariance matrix of the weights, shape (m, m); None for a distribution without a method here.

    Products are in single precision: it has four digits at least.
    """
    return None


@weight_covariance.register
def _(theta: SubspaceGaussian) -> Tensor | None:
    scaled = (theta.basis / theta.precision.sqrt()[:, None]).float()
    lifted = scaled @ theta.inverse_factor.T.float()
    inside = (lifted @ lifted.T).double()
    if scaled.shape[0] == scaled.shape[1]:
        return inside
    return torch.diag(1 / theta.precision) - (scaled @ scaled.T).double() + inside


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
