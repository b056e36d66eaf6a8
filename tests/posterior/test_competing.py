import torch

from neuralsurv.model.functionals import restricted_mean
from neuralsurv.posterior.competing import incidences, time_lost

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
