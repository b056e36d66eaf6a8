"""Mixtures of Gaussians: moments by brute force, draws at the declared false-alarm rate, shares of draws, errors."""

import math

import pytest
import torch
from torch import Tensor

from false_alarm import z_bound
from neuralsurv.errors import InputError
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.primal import PrimalGaussian
from solvers.gaussian_cases import close

SIZE = 3
WEIGHTS = (0.5, 0.2, 0.3)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def part(seed: int) -> PrimalGaussian:
    noise = normal(SIZE, SIZE, seed=seed)
    factor = torch.linalg.cholesky(noise @ noise.T + torch.eye(SIZE, dtype=torch.float64))
    return PrimalGaussian(2 * normal(SIZE, seed=seed + 100), factor)


PARTS = tuple(part(seed) for seed in range(3))
MIXTURE = MixtureGaussian(WEIGHTS, PARTS)


def covariance_matrix() -> Tensor:
    """E[θθᵀ] − E[θ]E[θ]ᵀ, from the second moments of the parts."""
    second = sum(
        weight * (torch.linalg.inv(p.factor @ p.factor.T) + torch.outer(p.mean, p.mean))
        for weight, p in zip(WEIGHTS, PARTS, strict=True)
    )
    mean = sum(weight * p.mean for weight, p in zip(WEIGHTS, PARTS, strict=True))
    return second - torch.outer(mean, mean)


def test_moments_are_those_of_the_law_of_total_variance():
    rows = normal(5, SIZE, seed=50)
    close(MIXTURE.mean, sum(weight * p.mean for weight, p in zip(WEIGHTS, PARTS, strict=True)))
    close(MIXTURE.variance(rows), torch.diagonal(rows @ covariance_matrix() @ rows.T))
    assert MIXTURE.variance(rows[:0]).shape == (0,)


def test_a_mixture_of_one_is_the_part():
    alone = MixtureGaussian((1.0,), PARTS[:1])
    rows = normal(5, SIZE, seed=50)
    close(alone.mean, PARTS[0].mean)
    close(alone.variance(rows), PARTS[0].variance(rows))
    precision = torch.linspace(0.5, 2, SIZE, dtype=torch.float64)
    assert alone.divergence(precision) == pytest.approx(PARTS[0].divergence(precision))


def test_divergence_bounds_that_of_the_mixture():
    """The divergence itself by importance-free Monte Carlo: the mean of log q − log p over draws of q."""
    precision = torch.ones(SIZE, dtype=torch.float64)
    prior = torch.distributions.MultivariateNormal(torch.zeros(SIZE).double(), torch.eye(SIZE).double())
    draws = MIXTURE.draw(20_000, torch.Generator().manual_seed(4))
    parts = [torch.distributions.MultivariateNormal(p.mean, precision_matrix=p.factor @ p.factor.T) for p in PARTS]
    log_parts = torch.stack([math.log(w) + p.log_prob(draws) for w, p in zip(WEIGHTS, parts, strict=True)])
    ratio = torch.logsumexp(log_parts, 0) - prior.log_prob(draws)
    bound = MIXTURE.divergence(precision)
    # Never more than the entropy of the shares above it.
    entropy = -sum(w * math.log(w) for w in WEIGHTS)
    error = z_bound() * float(ratio.std()) / math.sqrt(len(draws))
    assert bound > float(ratio.mean()) - error
    assert bound < float(ratio.mean()) + entropy + error
    assert bound == pytest.approx(sum(w * p.divergence(precision) for w, p in zip(WEIGHTS, PARTS, strict=True)))


def test_draws_have_mean_and_covariance():
    count = 40_000
    draws = MIXTURE.draw(count, torch.Generator().manual_seed(1))
    assert draws.shape == (count, SIZE)
    covariance = covariance_matrix()
    deviation = draws - MIXTURE.mean
    comparisons = SIZE + SIZE * (SIZE + 1) // 2
    # The shares of the parts are not random, so the mean is even less so than this.
    z_mean = deviation.mean(0) / torch.sqrt(torch.diagonal(covariance) / count)
    products = deviation[:, :, None] * deviation[:, None, :]
    z_covariance = (products.mean(0) - covariance) / (products.std(0) / math.sqrt(count))
    assert float(z_mean.abs().max()) < z_bound(comparisons)
    assert float(z_covariance.abs().max()) < z_bound(comparisons)


# Parts so far from each other that a draw tells which it came from.
APART = MixtureGaussian(
    WEIGHTS,
    tuple(
        PrimalGaussian(torch.tensor([place], dtype=torch.float64), torch.full((1, 1), 1e3, dtype=torch.float64))
        for place in (0.0, 1.0, 2.0)
    ),
)


def which(count: int, seed: int) -> Tensor:
    return APART.draw(count, torch.Generator().manual_seed(seed)).squeeze(1).round().long()


@pytest.mark.parametrize("count", [1, 2, 7, 10, 1000])
def test_every_part_has_its_share_of_the_draws_up_to_rounding(count):
    for seed in range(20):
        counts = torch.bincount(which(count, seed), minlength=3)
        assert int(counts.sum()) == count
        for found, weight in zip(counts.tolist(), WEIGHTS, strict=True):
            assert abs(found - weight * count) < 1 + 1e-9


def test_rounding_is_fair():
    seeds, count = 3000, 3
    totals = sum(torch.bincount(which(count, seed), minlength=3) for seed in range(seeds))
    for total, weight in zip(totals.tolist(), WEIGHTS, strict=True):
        share = weight * count % 1
        z = (total - weight * count * seeds) / math.sqrt(share * (1 - share) * seeds)
        assert abs(z) < z_bound(3)


def test_draws_come_in_no_order_of_the_parts():
    firsts = torch.bincount(torch.tensor([int(which(20, seed)[0]) for seed in range(2000)]), minlength=3)
    for found, weight in zip(firsts.tolist(), WEIGHTS, strict=True):
        assert abs(found - 2000 * weight) / math.sqrt(2000 * weight * (1 - weight)) < z_bound(3)


def test_a_part_without_weight_is_never_drawn():
    mixture = MixtureGaussian((0.0, 1.0, 0.0), APART.parts)
    assert set(mixture.draw(200, torch.Generator().manual_seed(0)).round().flatten().tolist()) == {1.0}


def test_draws_follow_the_generator():
    first, again, other = (MIXTURE.draw(5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize(("weights", "count"), [((0.5, 0.5), 3), ((1.0,), 0), ((), 0)])
def test_every_part_needs_a_weight(weights, count):
    with pytest.raises(InputError, match=rf"a mixture of {count} Gaussians has {len(weights)} weights"):
        MixtureGaussian(weights, PARTS[:count])


@pytest.mark.parametrize("weights", [(0.5, 0.2, 0.2), (0.8, 0.4, -0.2), (1.0, 1.0, 1.0)])
def test_weights_add_up_to_one(weights):
    with pytest.raises(InputError, match="the weights of a mixture must be 0 or more and add up to 1"):
        MixtureGaussian(weights, PARTS)
