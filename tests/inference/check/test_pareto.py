"""Pareto-smoothed weights against arviz-stats and against tails whose shape is known."""

import math

import numpy as np
import pytest
from arviz_stats.base import array_stats

from false_alarm import z_bound
from neuralsurv.inference.check.pareto import fit_pareto, smooth_weights


@pytest.mark.parametrize("spread", [0.1, 0.5, 1.0, 3.0])
# The tail holds 3√count weights, or a fifth of them if that is less. Both are whole here: we round up, as R's loo does,
# and arviz-stats rounds down.
@pytest.mark.parametrize("count", [60, 900])
def test_same_as_arviz_stats(spread, count):
    log_weights = spread * np.random.default_rng(count).standard_normal(count) ** 2
    # It takes log-likelihoods, of which the weights of leaving a row out are the inverse.
    expected, k_hat = array_stats.psislw(-log_weights)
    found = smooth_weights(log_weights)
    assert found.k_hat == pytest.approx(float(k_hat), rel=1e-9)
    np.testing.assert_allclose(np.log(found.weights), np.asarray(expected), atol=1e-9)


@pytest.mark.parametrize(("spread", "k_hat"), [(0.1, 0.3783466631241136), (1.0, 1.7261155407279478)])
def test_the_length_of_the_tail_is_rounded_up(spread, k_hat):
    # The figures are those of arviz.psislw, version 0.23, for a tail of 95 of 1,000.
    log_weights = spread * np.random.default_rng(1000).standard_normal(1000) ** 2
    assert smooth_weights(log_weights).k_hat == pytest.approx(k_hat, rel=1e-9)


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
