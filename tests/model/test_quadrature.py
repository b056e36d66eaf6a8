"""Quadrature rules: exactness, the paper's cut, and what splitting a row must leave alone."""

import itertools
import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from torch import Tensor

from neuralsurv.model.quadrature import GaussLegendre, Nodes, Rule, ShiftedLog, Trapezoid, missing_share


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def integrals(nodes: Nodes, f, rows: int) -> Tensor:
    return torch.zeros(rows, dtype=torch.float64).index_add(0, nodes.row, nodes.weight * f(nodes.time))


# ------------------------------------------------------------------------------------------------ Gauss–Legendre

ENTRY = tensor([0.0, 0.1, 0.3, 0.0, 0.99])
TIME = tensor([1.0, 0.8, 0.31, 1e-3, 1.0])


@pytest.mark.parametrize("rho", [0.5, 1.0, 1.7])
@pytest.mark.parametrize("count", [1, 2, 5, 8])
def test_gauss_legendre_is_exact_for_polynomials_in_u(rho, count):
    nodes = GaussLegendre(count).nodes(ENTRY, TIME, rho)
    for power in range(2 * count):
        found = integrals(nodes, lambda t, power=power: t ** (rho * power), len(TIME))
        # The integral of t^(rho - 1) t^(rho k) is t^(rho (k + 1)) / (rho (k + 1)).
        exponent = rho * (power + 1)
        exact = (TIME**exponent - ENTRY**exponent) / exponent
        torch.testing.assert_close(found, exact, rtol=1e-11, atol=0)


def test_gauss_legendre_is_not_exact_beyond_its_degree():
    nodes = GaussLegendre(2).nodes(tensor([0.0]), tensor([1.0]), rho=1.0)
    assert abs(float(integrals(nodes, lambda t: t**4, 1)) - 0.2) > 1e-3


@pytest.mark.parametrize("rho", [0.5, 1.0, 1.7])
def test_gauss_legendre_nodes_lie_inside_their_row_with_positive_weights(rho):
    nodes = GaussLegendre(6).nodes(ENTRY, TIME, rho)
    assert nodes.row.tolist() == [row for row in range(len(TIME)) for _ in range(6)]
    assert bool((nodes.weight > 0).all())
    assert bool((nodes.time > ENTRY[nodes.row]).all())
    assert bool((nodes.time < TIME[nodes.row]).all())


def test_gauss_legendre_gives_an_empty_row_no_mass():
    nodes = GaussLegendre(4).nodes(tensor([0.4]), tensor([0.4]), rho=1.3)
    assert nodes.weight.tolist() == [0.0] * 4


def test_gauss_legendre_by_hand():
    nodes = GaussLegendre(2).nodes(tensor([1.0]), tensor([3.0]), rho=1.0)
    torch.testing.assert_close(nodes.time, tensor([2 - 1 / math.sqrt(3), 2 + 1 / math.sqrt(3)]))
    torch.testing.assert_close(nodes.weight, tensor([1.0, 1.0]))


# ----------------------------------------------------------------------------------------------------- Trapezoid


def test_trapezoid_by_hand():
    """Grid 0, 1/4, ..., 1: each row keeps the grid points between its cut entry and its cut time."""
    entry = tensor([0.0, 0.0, 0.3, 0.5, 0.0])
    time = tensor([1.0, 0.6, 0.8, 0.74, 0.2])
    nodes = Trapezoid(5).nodes(entry, time, rho=1.0)
    found = [(int(r), float(t), float(w)) for r, t, w in zip(nodes.row, nodes.time, nodes.weight, strict=True)]
    assert found == [
        (0, 0.0, 0.125),
        (0, 0.25, 0.25),
        (0, 0.5, 0.25),
        (0, 0.75, 0.25),
        (0, 1.0, 0.125),
        (1, 0.0, 0.125),
        (1, 0.25, 0.25),
        (1, 0.5, 0.125),
        (2, 0.25, 0.125),
        (2, 0.5, 0.25),
        (2, 0.75, 0.125),
        # Rows 3 and 4 start and end in one cell and keep nothing.
    ]


def test_trapezoid_by_hand_with_another_rho():
    """With rho = 2 the cells of u = t^2 have the lengths 1/4 and 3/4, and the weight function is 1/2."""
    nodes = Trapezoid(3).nodes(tensor([0.0]), tensor([1.0]), rho=2.0)
    assert nodes.time.tolist() == [0.0, 0.5, 1.0]
    torch.testing.assert_close(nodes.weight, tensor([1 / 16, 1 / 4, 3 / 16]))


@pytest.mark.parametrize("count", [4, 200])
def test_trapezoid_nodes_are_grid_points_in_double_precision(count):
    nodes = Trapezoid(count).nodes(tensor([0.0]), tensor([1.0]), rho=1.0)
    assert nodes.time.dtype == nodes.weight.dtype == torch.float64
    assert nodes.time.tolist() == [k / (count - 1) for k in range(count)]


@pytest.mark.parametrize("rho", [0.5, 1.0, 1.7])
def test_trapezoid_takes_the_baseline_mass_between_the_cut_times(rho):
    generator = torch.Generator().manual_seed(0)
    pairs = torch.rand(300, 2, generator=generator, dtype=torch.float64).sort(dim=1).values
    entry, time = pairs[:, 0] * (torch.arange(300) % 3 > 0), pairs[:, 1]
    count = 23
    found = integrals(Trapezoid(count).nodes(entry, time, rho), torch.ones_like, 300)
    low, high = (torch.floor(t * (count - 1)) / (count - 1) for t in (entry, time))
    torch.testing.assert_close(found, (high**rho - low**rho) / rho, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("rho", [0.5, 1.0, 1.7])
@pytest.mark.parametrize(
    "rule", [Trapezoid(50), Trapezoid(7), GaussLegendre(32)], ids=["trapezoid-50", "trapezoid-7", "gauss-legendre"]
)
def test_splitting_a_row_changes_nothing(rule: Rule, rho):
    def f(t: Tensor) -> Tensor:
        return torch.exp(torch.sin(3 * t**rho))

    entry, time = 0.13, 0.93
    whole = float(integrals(rule.nodes(tensor([entry]), tensor([time]), rho), f, 1))
    cuts = [0.130001, 0.2, 1 / 7, 20 / 49, 0.5, 0.75, 0.9299999]
    for cut in cuts:
        nodes = rule.nodes(tensor([entry, cut]), tensor([cut, time]), rho)
        assert float(integrals(nodes, f, 2).sum()) == pytest.approx(whole, rel=1e-13)
    ends = tensor([entry, *sorted(cuts), time])
    assert float(integrals(rule.nodes(ends[:-1], ends[1:], rho), f, 8).sum()) == pytest.approx(whole, rel=1e-13)


def test_time_on_a_grid_point_up_to_rounding_belongs_to_it():
    count = 200
    exact = torch.arange(1, count, dtype=torch.float64) / (count - 1)
    zero = torch.zeros_like(exact)
    for unit in (1.0, 7.0, 365.25, 1 / 3, 1e-9):
        # What a change of the unit of time does to a time, and a little more.
        for scaled in ((exact * unit) / unit, exact * (1 - 1e-12), exact * (1 + 1e-12)):
            found = integrals(Trapezoid(count).nodes(zero, scaled, rho=1.0), torch.ones_like, len(exact))
            torch.testing.assert_close(found, exact, rtol=1e-12, atol=0)


def test_time_clearly_before_a_grid_point_does_not_belong_to_it():
    nodes = Trapezoid(5).nodes(tensor([0.0]), tensor([0.75 - 1e-6]), rho=1.0)
    assert float(nodes.weight.sum()) == 0.5


# Half the step leaves 2^-2 of the error; with rho < 2/3 the first cell rules, and leaves 2^(-3 rho) of it.
@pytest.mark.parametrize(("rho", "most_left"), [(0.5, 0.42), (1.0, 0.28), (1.7, 0.28)])
def test_both_rules_meet_as_the_grid_gets_finer(rho, most_left):
    def f(t: Tensor) -> Tensor:
        return torch.sigmoid(3 * torch.sin(5 * t))

    entry, time = tensor([0.0, 0.25, 0.5]), tensor([1.0, 0.75, 1.0])  # on every grid below, so nothing is cut off
    exact = integrals(GaussLegendre(64).nodes(entry, time, rho), f, 3)
    errors = [
        float((integrals(Trapezoid(4 * fineness + 1).nodes(entry, time, rho), f, 3) - exact).abs().max())
        for fineness in (8, 16, 32, 64, 128)
    ]
    for coarse, fine in itertools.pairwise(errors):
        assert fine < most_left * coarse
    assert errors[-1] < 2e-4


# ------------------------------------------------------------------------------------------------- missing share


@pytest.mark.parametrize("rho", [0.5, 1.0, 1.7])
def test_gauss_legendre_leaves_nothing_out(rho):
    weight = tensor([1.0, 2.0, 0.5, 3.0, 1.0])
    nodes = GaussLegendre(3).nodes(ENTRY, TIME, rho)
    assert missing_share(ENTRY, TIME, weight, nodes, rho) == pytest.approx(0, abs=1e-12)


def test_missing_share_by_hand():
    """Exposures 0.6 and 0.65, of which the grid of quarters keeps 0.5 and 0.5; the rows weigh 1 and 2."""
    entry, time, weight = tensor([0.0, 0.25]), tensor([0.6, 0.9]), tensor([1.0, 2.0])
    nodes = Trapezoid(5).nodes(entry, time, rho=1.0)
    assert missing_share(entry, time, weight, nodes, rho=1.0) == pytest.approx(1 - 1.5 / 1.9)
    nodes = Trapezoid(5).nodes(entry[:1], time[:1], rho=2.0)
    assert missing_share(entry[:1], time[:1], weight[:1], nodes, rho=2.0) == pytest.approx(1 - 0.25 / 0.36)
    nodes = Trapezoid(5).nodes(entry, time, rho=1.0)
    light = tensor([1.0, 0.0])
    assert missing_share(entry, time, light, nodes, rho=1.0) == pytest.approx(1 - 0.5 / 0.6)


def test_missing_share_is_everything_where_all_rows_end_before_the_first_grid_point():
    entry, time, weight = tensor([0.0]), tensor([0.2]), tensor([1.0])
    assert missing_share(entry, time, weight, Trapezoid(5).nodes(entry, time, rho=1.0), rho=1.0) == 1.0


# --------------------------------------------------------------------------------------------------- shifted log


def rate(t):
    """A hazard that changes by factors, quickly at first."""
    return 1 / (1 + np.exp(-(np.log(t + 0.05) + np.sin(2 * np.log(t + 0.05)))))


@pytest.mark.parametrize("rho", [1.0, 1.7, 0.5])
@pytest.mark.parametrize(("entry", "time"), [(0.01, 1.0), (0.1, 0.8), (0.3, 0.31), (0.99, 1.0)])
def test_shifted_log_is_the_integral(rho, entry, time):
    expected, _ = quad(lambda t: t ** (rho - 1) * rate(t), entry, time, epsabs=0, epsrel=1e-12)
    nodes = ShiftedLog(24, shift=0.05).nodes(tensor([entry]), tensor([time]), rho)
    assert float(integrals(nodes, lambda t: tensor(rate(t.numpy())), 1)) == pytest.approx(expected, rel=1e-9)


# At time 0 the weight function is no polynomial of the clock unless rho = 1; the error then falls slowly.
@pytest.mark.parametrize(("rho", "error"), [(1.0, 1e-9), (1.7, 1e-4)])
def test_shifted_log_from_time_zero(rho, error):
    expected, _ = quad(lambda t: t ** (rho - 1) * rate(t), 0, 1, epsabs=0, epsrel=1e-12, limit=200)
    nodes = ShiftedLog(24, shift=0.05).nodes(tensor([0.0]), tensor([1.0]), rho)
    assert float(integrals(nodes, lambda t: tensor(rate(t.numpy())), 1)) == pytest.approx(expected, rel=error)


def test_shifted_log_beats_even_nodes_where_the_hazard_changes_early():
    expected, _ = quad(lambda t: 1 / (t + 0.01), 0, 1, epsabs=0, epsrel=1e-12)
    zero, one = tensor([0.0]), tensor([1.0])
    errors = [
        abs(float(integrals(rule.nodes(zero, one, 1.0), lambda t: 1 / (t + 0.01), 1)) / expected - 1)
        for rule in (ShiftedLog(8, shift=0.02), GaussLegendre(8))
    ]
    assert errors[0] < 1e-5
    assert errors[1] > 1e-2


def test_shifted_log_is_exact_for_polynomials_of_the_logarithm_over_time():
    shift = 0.2
    nodes = ShiftedLog(3, shift).nodes(ENTRY, TIME, rho=1.0)
    for power in range(6):
        found = integrals(nodes, lambda t, power=power: torch.log(t + shift) ** power / (t + shift), len(TIME))
        low, high = torch.log(ENTRY + shift), torch.log(TIME + shift)
        exact = (high ** (power + 1) - low ** (power + 1)) / (power + 1)
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=1e-14)


def test_shifted_log_nodes_lie_inside_their_row_with_positive_weights():
    nodes = ShiftedLog(6, shift=0.01).nodes(ENTRY, TIME, rho=1.0)
    assert nodes.row.tolist() == [row for row in range(len(TIME)) for _ in range(6)]
    assert bool((nodes.weight > 0).all())
    assert bool((nodes.time > ENTRY[nodes.row]).all())
    assert bool((nodes.time < TIME[nodes.row]).all())


def test_shifted_log_takes_the_time_at_risk():
    # Exposure is the integral of t + shift over the clock: not a polynomial, but nearly so over few log units.
    weight = tensor([1.0, 2.0, 0.5, 3.0, 1.0])
    assert missing_share(ENTRY, TIME, weight, ShiftedLog(8, shift=0.1).nodes(ENTRY, TIME, 1.0), 1.0) == pytest.approx(
        0, abs=1e-11
    )


def test_shifted_log_gives_an_empty_row_no_mass():
    nodes = ShiftedLog(4, shift=0.1).nodes(tensor([0.4]), tensor([0.4]), rho=1.0)
    assert nodes.weight.tolist() == [0.0] * 4
