"""Covariance matrices of the weights against the variances that the distributions give themselves."""

import pytest
import torch

from neuralsurv.posterior.samples import DrawnWeights
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.primal import PrimalGaussian, cholesky
from neuralsurv.solvers.rows import DenseRows
from neuralsurv.solvers.subspace import SubspaceGaussian

SIZE = 5
GENERATOR = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=GENERATOR, dtype=torch.float64)


def factor(size):
    noise = normal(size, size)
    return cholesky(noise @ noise.T + torch.eye(size, dtype=torch.float64))


def subspace(rank=2):
    basis = torch.linalg.qr(normal(SIZE, rank))[0]
    return SubspaceGaussian(normal(SIZE).exp(), basis, normal(rank), factor(rank))


PRIMAL = PrimalGaussian(normal(SIZE), factor(SIZE))
GAUSSIANS = {
    "primal": PRIMAL,
    "subspace": subspace(),
    "whole space": subspace(SIZE),
    "mixture": MixtureGaussian((0.3, 0.7), (subspace(), PRIMAL)),
}


@pytest.mark.parametrize("kind", GAUSSIANS)
def test_it_gives_the_variance_of_any_row(kind):
    rows = normal(20, SIZE)
    found = ((rows @ GAUSSIANS[kind].covariance()) * rows).sum(1)
    torch.testing.assert_close(found, GAUSSIANS[kind].variance(rows), rtol=1e-4, atol=0)


def test_of_draws_it_is_theirs():
    draws = normal(30, SIZE)
    torch.testing.assert_close(DrawnWeights(draws).covariance(), torch.cov(draws.T, correction=0))


def test_a_mixture_with_a_part_that_has_none_has_none():
    rows = DenseRows(normal(3, SIZE))
    dual = DualSolver(rows, torch.ones(SIZE, dtype=torch.float64)).solve(torch.ones(3).double(), normal(3))
    assert dual.covariance() is None
    assert MixtureGaussian((0.5, 0.5), (PRIMAL, dual)).covariance() is None
