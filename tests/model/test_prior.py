"""Priors against scipy, and their draws at the declared false-alarm rate."""

import math

import pytest
import scipy.stats
import torch
from scipy.special import polygamma

from false_alarm import FALSE_ALARM, z_bound
from neuralsurv.model.prior import Gamma, Group, GroupedPrior, PointMass, WeightPrior

DRAWS = 100_000
LAWS = pytest.mark.parametrize("law", [Gamma(1.0, 1.0), Gamma(0.4, 3.0), Gamma(50.0, 20.0)], ids=str)


@LAWS
def test_gamma_moments_are_those_of_scipy(law):
    frozen = scipy.stats.gamma(law.shape, scale=1 / law.rate)
    assert law.mean == pytest.approx(frozen.mean(), rel=1e-14)
    assert law.mean_log == pytest.approx(frozen.expect(math.log, epsabs=1e-12), abs=1e-7)


def test_gamma_mean_log_by_hand():
    # psi(1) is minus Euler's constant.
    assert Gamma(1.0, 1.0).mean_log == pytest.approx(-0.5772156649015329, rel=1e-14)
    assert Gamma(2.0, 3.0).mean_log == pytest.approx(1 - 0.5772156649015329 - math.log(3), rel=1e-13)


@LAWS
def test_gamma_quantile_undoes_the_distribution_function(law):
    for probability in (0.001, 0.05, 0.5, 0.99):
        quantile = law.quantile(probability)
        assert scipy.stats.gamma.cdf(quantile, law.shape, scale=1 / law.rate) == pytest.approx(probability, rel=1e-10)


def test_gamma_interval_of_an_exponential_by_hand():
    # The quantile of an exponential law is -log(1 - p) / rate.
    lower, upper = Gamma(1.0, 2.0).interval(0.9)
    assert lower == pytest.approx(-math.log(0.95) / 2, rel=1e-12)
    assert upper == pytest.approx(-math.log(0.05) / 2, rel=1e-12)
    assert Gamma(1.0, 2.0).interval() == (lower, upper)
    narrow = Gamma(1.0, 2.0).interval(0.5)
    assert lower < narrow[0] < narrow[1] < upper


@LAWS
def test_gamma_draws_have_the_right_law(law):
    draws = law.draw(DRAWS, torch.Generator().manual_seed(1))
    assert draws.shape == (DRAWS,)
    assert draws.dtype == torch.float64
    z = (float(draws.mean()) - law.mean) / (math.sqrt(law.shape) / law.rate / math.sqrt(DRAWS))
    z_log = (float(draws.log().mean()) - law.mean_log) / math.sqrt(polygamma(1, law.shape) / DRAWS)
    assert abs(z) < z_bound(2)
    assert abs(z_log) < z_bound(2)
    frozen = scipy.stats.gamma(law.shape, scale=1 / law.rate)
    assert scipy.stats.kstest(draws.numpy(), frozen.cdf).pvalue > FALSE_ALARM


def test_gamma_draws_follow_the_generator():
    law = Gamma(2.0, 3.0)
    first, again, other = (law.draw(5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    generator = torch.Generator().manual_seed(1)
    assert torch.equal(law.draw(5, generator), first)
    assert not torch.equal(law.draw(5, generator), first), "the generator must move on from one call to the next"


def test_gamma_draws_leave_the_global_streams_alone():
    before = torch.random.get_rng_state()
    Gamma(2.0, 3.0).draw(5, torch.Generator().manual_seed(1))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_isotropic_prior_has_ones():
    prior = WeightPrior.isotropic(3)
    assert prior.precision.tolist() == [1.0, 1.0, 1.0]
    assert prior.precision.dtype == torch.float64


def test_weight_draws_have_the_right_moments():
    count = 20_000
    precision = torch.tensor([0.25, 1.0, 100.0], dtype=torch.float64)
    generator = torch.Generator().manual_seed(2)
    prior = WeightPrior(precision)
    draws = torch.stack([prior.draw(generator) for _ in range(count)])
    white = draws * precision.sqrt()
    z_mean = white.mean(0) * math.sqrt(count)
    second = white.T @ white / count
    identity = torch.eye(3, dtype=torch.float64)
    # Under the standard normal law a product of two coordinates has variance 1, a square variance 2.
    z_second = (second - identity) / torch.sqrt((1 + identity) / count)
    assert float(z_mean.abs().max()) < z_bound(3 + 6)
    assert float(z_second.abs().max()) < z_bound(3 + 6)


def test_weight_draws_follow_the_generator():
    prior = WeightPrior.isotropic(4)
    first, again, other = (prior.draw(torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


# -------------------------------------------------------------------------------------------------------- held


def test_a_held_phi_is_one_value_in_every_way():
    held = PointMass(0.25)
    assert held.mean == 0.25
    assert held.mean_log == pytest.approx(math.log(0.25), rel=1e-15)
    assert [held.quantile(p) for p in (0.001, 0.5, 0.999)] == [0.25] * 3
    assert held.interval() == held.interval(0.5) == (0.25, 0.25)
    generator = torch.Generator().manual_seed(1)
    before = generator.get_state()
    draws = held.draw(4, generator)
    assert draws.tolist() == [0.25] * 4
    assert draws.dtype == torch.float64
    assert torch.equal(generator.get_state(), before), "nothing is random here"


def test_a_held_phi_is_the_limit_of_a_gamma():
    tight = Gamma(0.25 * 1e9, 1e9)
    assert PointMass(0.25).mean == pytest.approx(tight.mean)
    assert PointMass(0.25).mean_log == pytest.approx(tight.mean_log, rel=1e-8)


# ------------------------------------------------------------------------------------------------------ groups

GROUPS = (Group("first", 0, 2, median=0.5, spread=0.7), Group("last", 3, 6, median=2.0, spread=0.3))
GROUPED = GroupedPrior(torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], dtype=torch.float64), GROUPS)


def test_scales_divide_the_precisions_of_their_group_only():
    log_scales = torch.tensor([math.log(2.0), math.log(0.1)], dtype=torch.float64)
    torch.testing.assert_close(
        GROUPED.multipliers(log_scales), torch.tensor([2.0, 2.0, 1.0, 0.1, 0.1, 0.1], dtype=torch.float64)
    )
    expected = torch.tensor([1 / 4, 2 / 4, 3.0, 4 / 0.01, 5 / 0.01, 6 / 0.01], dtype=torch.float64)
    torch.testing.assert_close(GROUPED.at(log_scales).precision, expected)
    assert GROUPED.unit.tolist() == [1, 2, 3, 4, 5, 6], "the prior itself is left alone"


def test_log_density_is_that_of_a_lognormal_law_relative_to_its_median():
    torch.testing.assert_close(GROUPED.medians, torch.tensor([0.5, 2.0], dtype=torch.float64).log())
    assert GROUPED.spreads.tolist() == [0.7, 0.3]
    assert GROUPED.log_density(GROUPED.medians) == 0
    at = torch.tensor([0.3, -1.1], dtype=torch.float64)
    expected = sum(
        scipy.stats.norm.logpdf(float(value), math.log(group.median), group.spread)
        - scipy.stats.norm.logpdf(math.log(group.median), math.log(group.median), group.spread)
        for value, group in zip(at, GROUPS, strict=True)
    )
    assert GROUPED.log_density(at) == pytest.approx(expected, rel=1e-12)


def test_without_groups_there_is_nothing_to_scale():
    prior = GroupedPrior(torch.tensor([2.0, 3.0], dtype=torch.float64), ())
    nothing = torch.zeros(0, dtype=torch.float64)
    assert prior.log_density(nothing) == 0
    assert prior.at(nothing).precision.tolist() == [2.0, 3.0]
    assert prior.medians.shape == prior.spreads.shape == (0,)


def test_every_group_needs_its_scale():
    with pytest.raises(ValueError, match="argument"):
        GROUPED.multipliers(torch.zeros(1, dtype=torch.float64))
