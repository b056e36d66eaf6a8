"""The design of the settings to average over: its points, and the moments of a Gaussian."""

import pytest
import torch

from neuralsurv.inference.default.scales import axis_design

every_count = pytest.mark.parametrize("count", [1, 2, 5, 9])


@every_count
def test_weights_are_positive_and_moments_are_those_of_a_standard_gaussian(count: int) -> None:
    points, weights = axis_design(count)
    assert points.shape == (2 * count + 1, count)
    assert float(weights.min()) > 0
    assert float(weights.sum()) == pytest.approx(1, abs=1e-12)
    torch.testing.assert_close(weights @ points, torch.zeros(count).double(), rtol=0, atol=1e-12)
    covariance = points.T @ (weights[:, None] * points)
    torch.testing.assert_close(covariance, torch.eye(count).double(), rtol=0, atol=1e-12)
    # Odd moments are 0 by symmetry.
    torch.testing.assert_close(weights @ points**3, torch.zeros(count).double(), rtol=0, atol=1e-12)


@every_count
def test_the_centre_comes_first_and_all_others_are_as_far_on_an_axis(count: int) -> None:
    points, weights = axis_design(count)
    assert not bool(points[0].any())
    assert bool(((points[1:] != 0).sum(1) == 1).all())
    distances = points[1:].norm(dim=1)
    torch.testing.assert_close(distances, torch.full_like(distances, float(distances[0])))
    assert len({tuple(point) for point in points.tolist()}) == 2 * count + 1
    assert float(weights[1:].max()) == float(weights[1:].min())


@every_count
def test_a_quadratic_function_has_its_exact_expectation(count: int) -> None:
    points, weights = axis_design(count)
    generator = torch.Generator().manual_seed(count)
    matrix = torch.randn(count, count, generator=generator, dtype=torch.float64)
    slope = torch.randn(count, generator=generator, dtype=torch.float64)
    values = torch.stack([1.5 + slope @ point + point @ matrix @ point for point in points])
    assert float(weights @ values) == pytest.approx(1.5 + float(matrix.trace()), rel=1e-12)
