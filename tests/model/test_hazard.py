"""The hazard by hand, and the three forms of its normaliser against each other and against the exact integral."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import norm
from torch import Tensor

from false_alarm import z_bound
from neuralsurv.model import hazard as hazard_module
from neuralsurv.model.hazard import ClosedForm, Constant, MonteCarlo, hazard, log_baseline
from neuralsurv.model.network import ACTIVATIONS, MLP, Network
from neuralsurv.model.prior import WeightPrior
from neuralsurv.solvers.rows import DenseRows


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


# ------------------------------------------------------------------------------------------------------ hazard


def test_hazard_by_hand():
    # 2 * 4^(1.5 - 1) * sigma(log 3) / 0.25 = 2 * 2 * 0.75 / 0.25
    found = hazard(tensor(2.0), tensor(4.0), tensor(math.log(3)), tensor(0.25), rho=1.5)
    assert float(found) == pytest.approx(12, rel=1e-14)


def test_log_baseline_by_hand():
    torch.testing.assert_close(log_baseline(tensor([1.0, math.e]), 0.3), tensor([0.0, -0.7]))


@pytest.mark.parametrize(("rho", "at_zero"), [(0.5, math.inf), (1.0, 3.0), (2.0, 0.0)])
def test_hazard_at_time_zero(rho, at_zero):
    found = hazard(tensor(3.0), tensor(0.0), tensor(0.0), tensor(0.5), rho)
    assert float(found) == at_zero


def test_hazard_broadcasts_draws_over_points():
    phi, time, g, z = tensor([[1.0], [2.0]]), tensor([0.5, 1.0, 2.0]), tensor([[0.0] * 3, [1.0] * 3]), tensor([0.5] * 3)
    found = hazard(phi, time, g, z, rho=2.0)
    assert found.shape == (2, 3)
    torch.testing.assert_close(found[1], 2 * time * torch.sigmoid(tensor(1.0)) / 0.5)


# -------------------------------------------------------------------------------------------------- normalisers


@dataclass(frozen=True)
class OffsetLinear(Network):
    """g = offset + (1, t, x)·theta: normal under the prior, and not about 0."""

    covariates: int
    offset: float

    @property
    def size(self) -> int:
        return self.covariates + 2

    @property
    def symmetric(self) -> bool:
        return False

    def initial(self, generator):
        return torch.randn(self.size, generator=generator, dtype=torch.float64)

    def value(self, theta, time, x):
        return self.offset + self.jacobian(theta, time, x) @ theta

    def bind(self, time, x):
        return lambda theta: (self.value(theta, time, x), lambda u: self.vjp(theta, time, x, u))

    def value_and_rows(self, theta, time, x):
        return self.value(theta, time, x), DenseRows(self.jacobian(theta, time, x))

    def jacobian(self, theta, time, x):
        return torch.cat([torch.ones_like(time)[:, None], time[:, None], x], dim=1)

    @property
    def architecture(self) -> str:
        return "linear"

    def describe(self):
        raise AssertionError("no test saves it")


def points(covariates: int, count: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    time = torch.rand(count, generator=generator, dtype=torch.float64)
    return time, torch.randn(count, covariates, generator=generator, dtype=torch.float64)


def exact_moments(mean: float, sd: float) -> tuple[float, float]:
    """Return mean and sd of sigma(g) for g ~ N(mean, sd^2)."""

    def expect(f) -> float:
        kinks = sorted({0.0, max(-9.0, min(9.0, -mean / sd))})
        value, _ = quad(lambda e: f(expit(mean + sd * e)) * norm.pdf(e), -10, 10, points=kinks, epsabs=1e-11, limit=200)
        return value

    first = expect(lambda s: s)
    return first, math.sqrt(expect(lambda s: (s - first) ** 2))


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("hidden", [(), (4,), (6, 5)])
def test_three_forms_agree_for_an_mlp(activation, hidden):
    network = MLP(2, hidden, activation)
    prior = WeightPrior(torch.linspace(0.5, 3, network.size, dtype=torch.float64))
    time, x = points(2)
    half = Constant(0.5)(time, x)
    assert half.tolist() == [0.5] * len(time)
    torch.testing.assert_close(ClosedForm(network, prior)(time, x), half, rtol=1e-14, atol=0)
    draws = 2000
    found = MonteCarlo(network, prior, draws=draws, seed=1)(time, x)
    # No sigmoid of a g that is symmetric about 0 has a larger standard deviation than one half.
    assert float((found - half).abs().max()) < z_bound(len(time)) * 0.5 / math.sqrt(draws)
    assert float((found - half).abs().min()) > 0


CASES = pytest.mark.parametrize(("offset", "precision"), [(0.5, 4.0), (-2.0, 1.0), (3.0, 0.2), (-6.0, 0.05)])


@CASES
def test_closed_form_stays_within_its_stated_error(offset, precision):
    network = OffsetLinear(2, offset)
    prior = WeightPrior(torch.full((network.size,), precision, dtype=torch.float64))
    time, x = points(2)
    found = ClosedForm(network, prior)(time, x)
    sd = (network.jacobian(torch.zeros(network.size), time, x).square().sum(1) / precision).sqrt()
    exact = tensor([exact_moments(offset, float(s))[0] for s in sd])
    assert float((exact - 0.5).abs().min()) > 0.05, "this case would not tell Z from one half"
    assert float((found - exact).abs().max()) < 0.02


@CASES
def test_monte_carlo_meets_the_exact_integral(offset, precision):
    network = OffsetLinear(2, offset)
    prior = WeightPrior(torch.full((network.size,), precision, dtype=torch.float64))
    time, x = points(2)
    draws = 4000
    found = MonteCarlo(network, prior, draws=draws, seed=2)(time, x)
    sd = (network.jacobian(torch.zeros(network.size), time, x).square().sum(1) / precision).sqrt()
    for value, s in zip(found.tolist(), sd.tolist(), strict=True):
        mean, spread = exact_moments(offset, s)
        assert abs(value - mean) < z_bound(len(found)) * spread / math.sqrt(draws)


def test_closed_form_uses_the_precision_of_each_weight():
    network = OffsetLinear(1, 2.0)
    precision = tensor([0.5, 2.0, 8.0])
    time, x = tensor([0.5]), tensor([[3.0]])
    variance = 1 / 0.5 + 0.5**2 / 2 + 3**2 / 8
    by_hand = 1 / (1 + math.exp(-2 / math.sqrt(1 + math.pi / 8 * variance)))
    assert float(ClosedForm(network, WeightPrior(precision))(time, x)) == pytest.approx(by_hand, rel=1e-14)


def test_closed_form_divides_the_whole_of_g_minus_j_theta():
    """Whatever theta* is, a linear g has the prior mean `offset`; dividing g alone or J theta* alone loses that."""
    network = OffsetLinear(1, 1.5)
    prior = WeightPrior.isotropic(3)
    star = tensor([1.0, 0.5, -2.0])
    time, x = tensor([0.5, 0.9]), tensor([[2.0], [-1.0]])
    found = ClosedForm(network, prior, star)(time, x)
    shift = network.jacobian(star, time, x) @ star
    g = network.value(star, time, x)
    root = torch.sqrt(1 + math.pi / 8 * (1 + time**2 + x[:, 0] ** 2))
    torch.testing.assert_close(found, torch.sigmoid(1.5 / root), rtol=1e-13, atol=0)
    torch.testing.assert_close(found, ClosedForm(network, prior)(time, x), rtol=1e-13, atol=0)
    for wrong in (torch.sigmoid(g - shift / root), torch.sigmoid(g / root - shift), torch.sigmoid(g / root)):
        assert float((found - wrong).abs().min()) > 0.05


def test_closed_form_of_an_mlp_away_from_the_prior_mean():
    network = MLP(1, (3,), "tanh")
    generator = torch.Generator().manual_seed(3)
    star = network.initial(generator)
    prior = WeightPrior(torch.full((network.size,), 2.0, dtype=torch.float64))
    time, x = points(1)
    found = ClosedForm(network, prior, star)(time, x)
    for i in range(len(time)):
        leaf = star.clone().requires_grad_()
        g = network.value(leaf, time[i : i + 1], x[i : i + 1]).sum()
        (row,) = torch.autograd.grad(g, leaf)
        variance = float(row @ row) / 2
        by_hand = expit((g.item() - float(row @ star)) / math.sqrt(1 + math.pi / 8 * variance))
        assert float(found[i]) == pytest.approx(by_hand, rel=1e-12)


def test_closed_form_does_not_depend_on_its_blocks(monkeypatch):
    network, prior = OffsetLinear(2, 1.0), WeightPrior.isotropic(4)
    time, x = points(2, count=11)
    whole = ClosedForm(network, prior)(time, x)
    monkeypatch.setattr(hazard_module, "_BLOCK", 4)
    torch.testing.assert_close(ClosedForm(network, prior)(time, x), whole, rtol=1e-14, atol=0)


@pytest.mark.parametrize("form", ["half", "closed", "monte carlo"])
def test_no_points_give_no_numbers(form):
    network, prior = OffsetLinear(2, 1.0), WeightPrior.isotropic(4)
    made = {
        "half": Constant(0.5),
        "closed": ClosedForm(network, prior),
        "monte carlo": MonteCarlo(network, prior, draws=2),
    }
    assert made[form](*points(2, count=0)).shape == (0,)


def test_monte_carlo_uses_the_same_draws_at_every_point_and_every_call():
    network, prior = OffsetLinear(2, 1.0), WeightPrior.isotropic(4)
    time, x = points(2)
    form = MonteCarlo(network, prior, draws=20, seed=4)
    whole = form(time, x)
    assert torch.equal(form(time, x), whole)
    apart = torch.cat([form(time[i : i + 1], x[i : i + 1]) for i in range(len(time))])
    torch.testing.assert_close(apart, whole, rtol=1e-13, atol=0)
    assert not torch.equal(replace(form, seed=5)(time, x), whole)


def test_a_constant_normaliser_is_one_number_at_every_point():
    time, x = tensor([0.0, 0.5, 9.0]), tensor([[1.0, 2.0]] * 3)
    found = Constant(0.03)(time, x)
    assert found.tolist() == [0.03] * 3
    assert found.dtype == torch.float64


def test_with_the_constant_the_middle_of_the_prior_has_hazard_phi():
    # sigma(-log(h - 1)) = 1 / h: the offset and the normaliser of the default preset cancel.
    headroom = 30.0
    found = hazard(tensor(2.0), tensor(0.3), tensor(-math.log(headroom - 1)), tensor(1 / headroom), rho=1.0)
    assert float(found) == pytest.approx(2.0, rel=1e-14)
