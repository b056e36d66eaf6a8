import pytest
import torch

from neuralsurv.errors import InputError
from neuralsurv.model.additive import Additive
from neuralsurv.model.functionals import restricted_mean
from neuralsurv.model.hazard import Constant
from neuralsurv.model.prior import PointMass
from neuralsurv.model.time_basis import TimeBasis
from neuralsurv.posterior.competing import CompetingPosterior, incidences, posterior_kind, time_lost
from neuralsurv.solvers.primal import PrimalGaussian
from posteriors import g_moments

EDGES = torch.linspace(0, 2, 41, dtype=torch.float64)
# Two people, three draws, two causes, with constant hazards.
RATES = torch.tensor([[[0.1, 0.5], [0.3, 0.2], [2.0, 0.0]], [[0.4, 0.1], [0.0, 0.6], [1.0, 0.0]]], dtype=torch.float64)
HAZARDS = RATES[..., None] * EDGES


def test_incidences_of_constant_hazards_are_exact():
    total = RATES.sum(0)[..., None].clamp_min(1e-300)
    expected = RATES[..., None] / total * -torch.expm1(-total * EDGES)
    assert torch.allclose(incidences(HAZARDS), expected, atol=1e-14)


def test_incidences_and_survival_add_up_to_one():
    wild = torch.rand(3, 4, 5, 60, dtype=torch.float64).pow(6).cumsum(-1)
    wild[..., 0] = 0
    total = incidences(wild).sum(0) + torch.exp(-wild.sum(0))
    assert float((total - 1).abs().max()) < 1e-14


def test_times_lost_and_the_restricted_mean_add_up_to_the_horizon():
    lost = time_lost(EDGES, HAZARDS)
    assert torch.allclose(lost.sum(0) + restricted_mean(EDGES, HAZARDS.sum(0)), EDGES[-1].expand(3, 2), atol=1e-12)
    fine = torch.linspace(0, 2, 40_001, dtype=torch.float64)
    expected = torch.trapezoid(incidences(RATES[..., None] * fine), fine, dim=-1)
    assert torch.allclose(lost, expected, atol=1e-8)


def test_g_is_that_of_one_cause():
    posterior = small_posterior()
    draws = posterior.draw(5, seed=0)
    time, x = torch.tensor([0.2, 0.7], dtype=torch.float64), torch.ones(2, 1, dtype=torch.float64)
    with pytest.raises(InputError, match="g is not defined for all causes together; take that of one cause"):
        posterior.g_draws(draws, time, x)
    one = posterior.of_cause(1)
    mean, variance = g_moments(one, time, torch.cat([x, torch.ones(2, 1, dtype=torch.float64)], 1))
    many = one.g_draws(posterior.draw(20_000, seed=1), time, x)
    torch.testing.assert_close(many.mean(0), mean, rtol=0, atol=0.05)
    torch.testing.assert_close(many.var(0), variance, rtol=0.05, atol=0)


def test_quick_cumulative_hazards_are_integrals_of_the_hazards():
    posterior = small_posterior()
    draws, times = posterior.draw(5, seed=0), torch.tensor([0.4, 1.0], dtype=torch.float64)
    x = torch.tensor([[-1.0], [2.0]], dtype=torch.float64)
    fine = torch.linspace(1e-9, 1, 4001, dtype=torch.float64)
    for part in (posterior, *posterior.causes):
        found = part.cumulative_hazard_draws(draws, times, x)
        hazards = part.hazard_draws(draws, fine.repeat(2), x.repeat_interleave(4001, 0)).reshape(5, 2, 4001)
        for place, stop in enumerate((1601, 4001)):
            expected = torch.trapezoid(hazards[..., :stop], fine[:stop], dim=-1)
            torch.testing.assert_close(found[..., place], expected, rtol=1e-4, atol=1e-6)


def small_posterior() -> CompetingPosterior:
    """A posterior of two causes and one covariate."""
    basis = TimeBasis(shift=0.1, center=-1.0, spread=0.8, bumps=(0.0,), width=0.7)
    empty = torch.zeros(0, dtype=torch.float64)
    network = Additive(1, basis, -3.0, None, empty, varying=True, early=0.2, levels=(-3.0, -2.0))
    size = network.size
    mean = torch.linspace(-0.5, 0.5, size, dtype=torch.float64)
    theta = PrimalGaussian(mean, 3 * torch.eye(size, dtype=torch.float64))
    star = torch.zeros(size, dtype=torch.float64)
    posterior = posterior_kind(network)(PointMass(2.0), theta, star, network, Constant(0.05), 1.0)
    assert isinstance(posterior, CompetingPosterior)
    return posterior
