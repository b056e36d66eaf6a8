"""Tests that every solver must pass, against a dense twin that inverts the matrix.

A test file of a solver inherits from `GaussianCases` and says how the solver is made::

    class TestPrimal(GaussianCases):
        def make(self, jacobian, precision):
            return PrimalSolver(DenseRows(jacobian), precision)
"""

import math
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from false_alarm import z_bound
from neuralsurv.solvers.interface import Gaussian, Solver


@dataclass(frozen=True)
class Problem:
    jacobian: Tensor
    precision: Tensor
    curvature: Tensor
    slope: Tensor

    @property
    def covariance(self) -> Tensor:
        """The dense twin of the covariance."""
        jacobian = self.jacobian
        return torch.linalg.inv(torch.diag(self.precision) + jacobian.T @ torch.diag(self.curvature) @ jacobian)

    @property
    def mean(self) -> Tensor:
        """The dense twin of the mean."""
        return self.covariance @ self.jacobian.T @ self.slope


def problem(points: int, weights: int, seed: int = 0) -> Problem:
    """Return a problem with unequal precisions and curvatures, some of them 0."""
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    curvature = normal(points).exp()
    curvature[::4] = 0
    return Problem(normal(points, weights), (normal(weights) / 2).exp(), curvature, normal(points))


def rows_elsewhere(weights: int, count: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(99)
    return torch.randn(count, weights, generator=generator, dtype=torch.float64)


SHAPES = {"many points": (40, 6), "few points": (5, 12), "square": (7, 7), "one weight": (9, 1), "no points": (0, 4)}
every_shape = pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)


def close(found: Tensor, expected: Tensor, rtol: float = 1e-10) -> None:
    scale = float(expected.abs().max()) if expected.numel() else 1.0
    torch.testing.assert_close(found, expected, rtol=rtol, atol=rtol * scale)


def covariance(gaussian: Gaussian, rows: Tensor, others: Tensor) -> Tensor:
    """Return the covariance of rows·theta with others·theta, from variances of sums and differences."""
    sums, differences = (rows[:, None] + sign * others for sign in (1, -1))
    both = [gaussian.variance(part.reshape(-1, rows.shape[1])) for part in (sums, differences)]
    return (both[0] - both[1]).reshape(len(rows), len(others)) / 4


class GaussianCases:
    """What a solver owes, whatever its algorithm."""

    def make(self, jacobian: Tensor, precision: Tensor) -> Solver:
        """Return the solver under test."""
        raise NotImplementedError

    def solve(self, case: Problem) -> Gaussian:
        return self.make(case.jacobian, case.precision).solve(case.curvature, case.slope)

    @every_shape
    def test_mean(self, shape):
        case = problem(*shape)
        mean = self.solve(case).mean
        assert mean.shape == (shape[1],)
        close(mean, case.mean)

    @every_shape
    def test_variance(self, shape):
        case = problem(*shape)
        gaussian = self.solve(case)
        for rows in (case.jacobian, rows_elsewhere(shape[1]), rows_elsewhere(shape[1], 0)):
            close(gaussian.variance(rows), torch.diagonal(rows @ case.covariance @ rows.T))

    @every_shape
    def test_covariance(self, shape):
        case = problem(*shape)
        rows = rows_elsewhere(shape[1])
        gaussian = self.solve(case)
        close(covariance(gaussian, rows, case.jacobian), rows @ case.covariance @ case.jacobian.T)

    @every_shape
    def test_moments_at_the_own_rows(self, shape):
        case = problem(*shape)
        solver = self.make(case.jacobian, case.precision)
        mean, variance = solver.moments(solver.solve(case.curvature, case.slope))
        close(mean, case.jacobian @ case.mean)
        close(variance, torch.diagonal(case.jacobian @ case.covariance @ case.jacobian.T))

    @every_shape
    def test_divergence(self, shape):
        case = problem(*shape)
        normal = torch.distributions.MultivariateNormal
        covariance = (case.covariance + case.covariance.T) / 2
        for precision in (case.precision, case.precision * 3 + 0.1):
            prior = normal(torch.zeros(shape[1], dtype=torch.float64), precision_matrix=torch.diag(precision))
            expected = torch.distributions.kl_divergence(normal(case.mean, covariance), prior)
            found = self.solve(case).divergence(precision)
            assert found == pytest.approx(float(expected), rel=1e-9, abs=1e-10)

    @pytest.mark.parametrize("shape", [(40, 6), (5, 12)], ids=["many points", "few points"])
    def test_draws_have_mean_and_covariance(self, shape):
        case = problem(*shape)
        count, weights = 20_000, shape[1]
        draws = self.solve(case).draw(count, torch.Generator().manual_seed(1))
        assert draws.shape == (count, weights)
        comparisons = weights + weights * (weights + 1) // 2
        variance = torch.diagonal(case.covariance)
        deviation = draws - case.mean
        z_mean = deviation.mean(0) / torch.sqrt(variance / count)
        assert float(z_mean.abs().max()) < z_bound(comparisons)
        # The product of two centred normal variables has the variance S_ii S_jj + S_ij^2.
        spread = torch.sqrt((variance[:, None] * variance + case.covariance**2) / count)
        z_covariance = (deviation.T @ deviation / count - case.covariance) / spread
        assert float(z_covariance.abs().max()) < z_bound(comparisons)

    def test_draws_follow_the_generator(self):
        gaussian = self.solve(problem(10, 4))
        first, again, other = (gaussian.draw(3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
        assert torch.equal(first, again)
        assert not torch.equal(first, other)
        assert not torch.equal(first[0], first[1])

    @pytest.mark.parametrize("shape", [(40, 6), (5, 12)], ids=["many points", "few points"])
    def test_without_curvature_and_slope_the_prior_is_back(self, shape):
        case = problem(*shape)
        zero = torch.zeros_like(case.curvature)
        gaussian = self.make(case.jacobian, case.precision).solve(zero, zero)
        assert torch.equal(gaussian.mean, torch.zeros_like(case.precision))
        rows = rows_elsewhere(shape[1])
        close(gaussian.variance(rows), (rows**2 / case.precision).sum(1))
        assert gaussian.divergence(case.precision) == pytest.approx(0, abs=1e-12)

    @pytest.mark.parametrize("shape", [(40, 6), (5, 12)], ids=["many points", "few points"])
    def test_huge_curvature_pins_what_was_observed_and_only_that(self, shape):
        """With curvature k and slope k y the Gaussian is a regression on y with noise 1/k."""
        points, weights = shape
        case = problem(*shape)
        huge = 1e9
        target = case.jacobian @ rows_elsewhere(weights, 1)[0]
        curvature = torch.full((points,), huge, dtype=torch.float64)
        gaussian = self.make(case.jacobian, case.precision).solve(curvature, huge * target)
        torch.testing.assert_close(case.jacobian @ gaussian.mean, target, rtol=1e-5, atol=1e-5)
        variance = gaussian.variance(case.jacobian)
        assert bool((variance > 0).all())
        assert bool((variance < 1.001 / huge).all())
        # What no row has seen keeps the prior: directions v with J T^-1 v = 0 have the prior's variance.
        scaled = case.jacobian / case.precision.sqrt()
        unseen = torch.linalg.qr(scaled.T, mode="complete")[0][:, points:].T if points < weights else scaled[:0]
        rows = unseen * case.precision.sqrt()
        close(gaussian.variance(rows), (rows**2 / case.precision).sum(1), rtol=1e-5)

    def test_one_weight_by_hand(self):
        """Prior precision 2, four rows of 3 with curvature 0.5: precision 2 + 4*9*0.5 = 20, mean 4*3*0.25/20."""
        rows = torch.full((4, 1), 3.0, dtype=torch.float64)
        half = torch.full((4,), 0.5, dtype=torch.float64)
        precision = torch.tensor([2.0], dtype=torch.float64)
        gaussian = self.make(rows, precision).solve(half, half / 2)
        assert float(gaussian.mean) == pytest.approx(0.15, rel=1e-13)
        assert float(gaussian.variance(rows[:1])) == pytest.approx(9 / 20, rel=1e-13)
        by_hand = 0.5 * (2 / 20 + 2 * 0.15**2 - 1 + math.log(20 / 2))
        assert gaussian.divergence(precision) == pytest.approx(by_hand, rel=1e-12)

    def test_solving_again_starts_afresh(self):
        """A solver is used again and again; no solve may leave a trace in the next one or in its inputs."""
        case = problem(20, 5)
        before = [part.clone() for part in (case.jacobian, case.precision, case.curvature, case.slope)]
        solver = self.make(case.jacobian, case.precision)
        first = solver.solve(case.curvature, case.slope).mean.clone()
        solver.solve(10 * case.curvature, -case.slope)
        assert torch.equal(solver.solve(case.curvature, case.slope).mean, first)
        for now, then in zip((case.jacobian, case.precision, case.curvature, case.slope), before, strict=True):
            assert torch.equal(now, then)
