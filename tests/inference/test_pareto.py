"""Pareto-smoothed weights against ArviZ and against tails whose shape is known."""

import math

import arviz
import numpy as np
import pytest

from false_alarm import z_bound
from neuralsurv.inference.pareto import fit_pareto, smooth_weights


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0, 3.0])
@pytest.mark.parametrize("count", [60, 1000])
def test_same_as_arviz(spread, count):
    log_weights = spread * np.random.default_rng(count).standard_normal(count) ** 2
    expected, k_hat = arviz.psislw(log_weights.copy())
    found = smooth_weights(log_weights)
    assert found.k_hat == pytest.approx(float(k_hat), rel=1e-9)
    np.testing.assert_allclose(np.log(found.weights), np.asarray(expected), atol=1e-9)


@pytest.mark.parametrize("shape", [0.2, 0.5, 0.9])
def test_shape_of_a_pareto_tail(shape):
    count = 4000
    u = np.random.default_rng(1).random(count)
    excess = np.sort(((1 - u) ** -shape - 1) * 2.0 / shape)
    found, sigma = fit_pareto(excess)
    # The standard deviation of the maximum-likelihood estimate.
    assert abs(found - shape) < z_bound(6) * (1 + shape) / math.sqrt(count)
    assert abs(sigma - 2.0) < z_bound(6) * 2.0 * math.sqrt(2 * (1 + shape) / count)


def test_order_and_scale_do_not_matter():
    log_weights = np.random.default_rng(0).standard_normal(500)
    found, shifted = smooth_weights(log_weights), smooth_weights(log_weights[::-1] + 700)
    np.testing.assert_allclose(found.weights, shifted.weights[::-1], rtol=1e-9)
    assert found.weights.sum() == pytest.approx(1)
    assert found.effective == pytest.approx(1 / (found.weights**2).sum())


def test_equal_weights_are_all_worth_the_same():
    found = smooth_weights(np.zeros(100))
    assert found.effective == pytest.approx(100)
    # Nothing exceeds anything: there is no tail.
    assert math.isinf(found.k_hat)


def test_weights_that_differ_by_rounding_are_equal():
    found = smooth_weights(1e-16 * np.arange(100))
    np.testing.assert_allclose(found.weights, 0.01)
    assert math.isinf(found.k_hat)


def test_one_weight_that_stands_for_all():
    log_weights = np.full(200, -2000.0)
    log_weights[7] = 0
    found = smooth_weights(log_weights)
    assert math.isinf(found.k_hat)
    assert found.effective == pytest.approx(1)
