"""Numbers read off a curve, against exponential and piecewise exponential lifetimes, for which they are known."""

import math

import mpmath
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from neuralsurv.model.functionals import invert, level_at, restricted_mean

INFINITE = math.inf


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


# Hazard 1 on [0, 1], none on [1, 2], 3 on [2, 4]: H = 1, 1, 7 at the edges.
EDGES, PIECES = tensor([0.0, 1.0, 2.0, 4.0]), tensor([0.0, 1.0, 1.0, 7.0])


# --------------------------------------------------------------------------------------------------------- invert


@pytest.mark.parametrize("rate", [0.01, 1.0, 30.0])
@pytest.mark.parametrize("steps", [1, 7, 200])
def test_quantiles_of_an_exponential_lifetime(rate, steps):
    edges = torch.linspace(0, 5, steps + 1, dtype=torch.float64)
    share = tensor([0.01, 0.1, 0.5, 0.9])
    found = invert(edges, rate * edges, -torch.log1p(-share))
    exact = -torch.log1p(-share) / rate
    torch.testing.assert_close(found, torch.where(exact > 5, INFINITE, exact), rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("level", "time"),
    [
        (0.0, 0.0),
        (0.25, 0.25),
        (1.0, 1.0),  # reached where the flat piece begins, not where it ends
        (1.0 + 1e-12, 2.0),
        (4.0, 3.0),
        (7.0, 4.0),
        (7.0 + 1e-12, INFINITE),
        (INFINITE, INFINITE),
    ],
)
def test_a_level_of_a_piecewise_exponential_lifetime_by_hand(level, time):
    assert float(invert(EDGES, PIECES, tensor([level]))) == pytest.approx(time, abs=1e-11)


def test_each_curve_is_inverted_at_its_own_levels():
    rates = tensor([[1.0, 2.0], [4.0, 0.5]])
    edges = torch.linspace(0, 1, 5, dtype=torch.float64)
    level = tensor([[[0.3, 0.9], [1.0, 0.1]], [[2.0, 5.0], [0.6, 0.2]]])
    found = invert(edges, rates[:, :, None] * edges, level)
    assert found.shape == (2, 2, 2)
    exact = level / rates[:, :, None]
    torch.testing.assert_close(found, torch.where(exact > 1, INFINITE, exact), rtol=1e-12, atol=0)


def test_without_any_hazard_no_level_is_reached():
    edges = torch.linspace(0, 1, 4, dtype=torch.float64)
    assert invert(edges, torch.zeros(4, dtype=torch.float64), tensor([1e-300, 1.0])).tolist() == [INFINITE] * 2


def test_invert_undoes_level_at():
    time = tensor([0.0, 0.3, 1.0, 2.5, 4.0])
    cumulative = PIECES.expand(1, len(time), -1)
    level = level_at(EDGES, cumulative, time)
    torch.testing.assert_close(invert(EDGES, cumulative, level[:, :, None])[0, :, 0], time, rtol=1e-14, atol=0)


# ------------------------------------------------------------------------------------------------------- level_at


def test_level_at_by_hand():
    cumulative = torch.stack([PIECES.expand(6, -1), 2 * PIECES.expand(6, -1)])
    found = level_at(EDGES, cumulative, tensor([0.0, 0.5, 1.0, 1.7, 3.0, 4.0]))
    by_hand = tensor([0.0, 0.5, 1.0, 1.0, 4.0, 7.0])
    torch.testing.assert_close(found, torch.stack([by_hand, 2 * by_hand]), rtol=1e-14, atol=0)


def test_level_at_takes_each_person_from_its_own_curve():
    cumulative = tensor([[[0.0, 1.0, 2.0], [0.0, 10.0, 30.0]]])
    found = level_at(tensor([0.0, 1.0, 2.0]), cumulative, tensor([1.5, 0.5]))
    assert found.tolist() == [[1.5, 5.0]]


# ------------------------------------------------------------------------------------------------ restricted mean


@pytest.mark.parametrize("rate", [1e-12, 0.01, 1.0, 30.0])
@pytest.mark.parametrize("steps", [1, 7, 200])
def test_restricted_mean_of_an_exponential_lifetime(rate, steps):
    edges = torch.linspace(0, 5, steps + 1, dtype=torch.float64)
    exact = -math.expm1(-5 * rate) / rate
    assert float(restricted_mean(edges, rate * edges)) == pytest.approx(exact, rel=1e-13)


def test_restricted_mean_of_a_piecewise_exponential_lifetime():
    by_hand = (1 - math.exp(-1)) + math.exp(-1) + math.exp(-1) * (1 - math.exp(-6)) / 3
    assert float(restricted_mean(EDGES, PIECES)) == pytest.approx(by_hand, rel=1e-14)

    def survival(t: float) -> float:
        return math.exp(-(t if t < 1 else 1.0 if t < 2 else 1 + 3 * (t - 2)))

    numeric = quad(survival, 0, 4, points=[1, 2], epsabs=1e-12)[0]
    assert float(restricted_mean(EDGES, PIECES)) == pytest.approx(numeric, rel=1e-10)


def test_restricted_mean_keeps_the_leading_shape():
    rates = tensor([[1.0, 2.0, 0.0], [4.0, 0.5, 9.0]])
    edges = torch.linspace(0, 2, 6, dtype=torch.float64)
    found = restricted_mean(edges, rates[:, :, None] * edges)
    assert found.shape == (2, 3)
    assert float(found[0, 2]) == pytest.approx(2, rel=1e-15)
    assert float(found[1, 1]) == pytest.approx((1 - math.exp(-1)) / 0.5, rel=1e-14)


@pytest.mark.parametrize("gain", [0.0, 1e-300, 1e-16, 9.9e-9, 1.01e-8, 1e-6, 1e-3, 50.0, 800.0, 1e300])
def test_restricted_mean_of_one_piece_to_the_last_digit(gain):
    with mpmath.workdps(60):
        exact = float(-mpmath.expm1(-mpmath.mpf(gain)) / mpmath.mpf(gain)) if gain else 1.0
    assert float(restricted_mean(tensor([0.0, 1.0]), tensor([0.0, gain]))) == pytest.approx(exact, rel=4e-16, abs=0)


# ------------------------------------------------------------------------------------------------------- gradients


def gradient(function, *values: Tensor) -> list[Tensor]:
    leaves = [value.clone().requires_grad_() for value in values]
    return list(torch.autograd.grad(function(*leaves), leaves))


def test_gradients_where_nothing_is_special():
    cumulative, level = tensor([0.0, 0.4, 1.1, 2.0]).requires_grad_(), tensor([0.3, 0.9, 1.6]).requires_grad_()
    assert torch.autograd.gradcheck(lambda c, u: invert(EDGES, c, u), (cumulative, level))
    assert torch.autograd.gradcheck(lambda c: restricted_mean(EDGES, c), (cumulative,))
    people = cumulative.detach().expand(2, 3, -1).clone().requires_grad_()
    assert torch.autograd.gradcheck(
        lambda c, t: level_at(EDGES, c, t), (people, tensor([0.5, 1.5, 3.0]).requires_grad_())
    )


def test_gradient_of_an_inverted_level_by_hand():
    by_cumulative, by_level = gradient(lambda c, u: invert(EDGES, c, u).sum(), PIECES, tensor([4.0]))
    # t = 2 + 2 (u − c₂) / (c₃ − c₂) with c₂ = 1, c₃ = 7, u = 4.
    torch.testing.assert_close(by_level, tensor([1 / 3]))
    torch.testing.assert_close(by_cumulative, tensor([0.0, 0.0, -2 / 6 + 2 * 3 / 36, -2 * 3 / 36]))


def test_gradients_of_a_level_that_is_never_reached_are_zero():
    for cumulative in (PIECES, torch.zeros(4, dtype=torch.float64), tensor([0.0, 1.0, 1.0, 1.0])):
        found = gradient(lambda c, u: torch.exp(-invert(EDGES, c, u)).sum(), cumulative, tensor([50.0]))
        assert all((part == 0).all() for part in found)


def test_gradients_at_flat_pieces_are_finite():
    for cumulative in (PIECES, torch.zeros(4, dtype=torch.float64), tensor([0.0, 0.0, 1.0, 1.0])):
        for level in (0.0, 0.5, 1.0):
            parts = gradient(lambda c, u: torch.exp(-invert(EDGES, c, u)).sum(), cumulative, tensor([level]))
            assert all(torch.isfinite(part).all() for part in parts)


def test_gradient_of_the_restricted_mean_without_hazard_by_hand():
    # d₀ (1 − (c₁ − c₀)/2) + d₁ e^(−c₁) (1 − (c₂ − c₁)/2) at c = 0, with d₀ = 1 and d₁ = 2.
    edges = tensor([0.0, 1.0, 3.0])
    (found,) = gradient(lambda c: restricted_mean(edges, c), torch.zeros(3, dtype=torch.float64))
    torch.testing.assert_close(found, tensor([-0.5, -0.5 - 1.0, -1.0]))


@pytest.mark.parametrize("gain", [1e-300, 1e-12, 9.9e-9, 1.01e-8, 1e-6])
def test_gradient_of_the_restricted_mean_at_tiny_gains(gain):
    # The slope of (1 − e^(−h)) / h is −1/2 + h/3; above the switch between the two forms it loses digits, but few.
    (found,) = gradient(lambda c: restricted_mean(tensor([0.0, 1.0]), c), tensor([0.0, gain]))
    assert float(found[1]) == pytest.approx(-0.5 + gain / 3, abs=1e-7)


def test_gradient_of_the_restricted_mean_at_a_huge_hazard_is_finite():
    (found,) = gradient(lambda c: restricted_mean(EDGES, c), tensor([0.0, 1e3, 2e3, 1e6]))
    assert torch.isfinite(found).all()
