"""The clock and the bumps by hand, weighted quantiles against numpy, and the even times."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from neuralsurv.model.time_basis import TimeBasis, place_basis, weighted_quantile


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def event_times(count: int = 37, seed: int = 0) -> Tensor:
    times = torch.rand(count, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) ** 3
    return times / times.max()


def moments_on_the_clock(basis: TimeBasis, time: Tensor, weight: Tensor) -> tuple[float, float]:
    clock, share = basis.clock(time).numpy(), weight.numpy() / float(weight.sum())
    mean = float(np.sum(share * clock))
    return mean, float(np.sum(share * (clock - mean) ** 2)) ** 0.5


# ----------------------------------------------------------------------------------------------------- placing


@pytest.mark.parametrize("weighted", [False, True])
def test_the_clock_is_standardised_over_the_events(weighted):
    time = event_times()
    weight = torch.linspace(0.2, 3, len(time), dtype=torch.float64) if weighted else torch.ones_like(time)
    mean, spread = moments_on_the_clock(place_basis(time, weight, 6), time, weight)
    assert mean == pytest.approx(0, abs=1e-12)
    assert spread == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("bumps", [0, 1, 2, 6])
def test_a_weight_of_two_is_the_event_twice(bumps):
    time = event_times(11)
    doubled = [0, 3, 3, 7]
    weight = torch.ones_like(time).index_add(0, torch.tensor(doubled), tensor([1.0] * 4))
    repeated = torch.cat([time, time[doubled]])
    one, other = place_basis(time, weight, bumps), place_basis(repeated, torch.ones_like(repeated), bumps)
    for name in ("shift", "center", "spread", "width", "bumps"):
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-12), name


def test_the_scale_of_the_weights_does_not_matter():
    time = event_times(11)
    one, other = (place_basis(time, torch.full_like(time, weight), 4) for weight in (1.0, 7.0))
    assert one.bumps == pytest.approx(other.bumps, rel=1e-12)
    assert one.center == pytest.approx(other.center, rel=1e-12)


@pytest.mark.parametrize("bumps", [0, 1, 3, 6])
def test_bumps_lie_in_order_within_the_events_and_overlap(bumps):
    time = event_times()
    basis = place_basis(time, torch.ones_like(time), bumps)
    assert basis.size == 1 + bumps
    assert len(basis.bumps) == bumps
    assert list(basis.bumps) == sorted(set(basis.bumps))
    clock = basis.clock(time)
    assert all(float(clock.min()) < at < float(clock.max()) for at in basis.bumps)
    if bumps > 1:
        assert basis.width == pytest.approx(np.diff(basis.bumps).mean(), rel=1e-12)


def test_without_a_bump_only_the_clock_is_left():
    time = event_times()
    basis = place_basis(time, torch.ones_like(time), 0)
    assert basis.bumps == ()
    assert torch.equal(basis.columns(time), basis.clock(time)[:, None])


@pytest.mark.parametrize("times", [[0.5], [1.0], [0.3] * 9, [0.0, 0.0, 0.0, 1.0], [1e-300, 1.0], [1e-9] * 5])
def test_events_that_are_few_or_crowded_leave_everything_finite(times):
    time = tensor(times)
    basis = place_basis(time, torch.ones_like(time), 6)
    assert basis.shift > 0
    assert basis.spread > 0
    assert basis.width > 0
    columns = basis.columns(torch.linspace(0, 3, 50, dtype=torch.float64))
    assert bool(torch.isfinite(columns).all())
    assert bool((columns[:, 0].diff() > 0).all())


# --------------------------------------------------------------------------------------------------- quantiles


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_quantiles_are_those_of_hazen(count):
    values = torch.randn(count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    at = np.array([0.0, 0.01, 0.05, 0.3, 0.5, 0.77, 0.95, 1.0])
    found = weighted_quantile(values, torch.ones_like(values), torch.from_numpy(at))
    np.testing.assert_allclose(found.numpy(), np.quantile(values.numpy(), at, method="hazen"), rtol=1e-13, atol=1e-14)


def test_weighted_quantiles_by_hand():
    # Masses 1/4 and 3/4: the middles of the two jumps are at 1/8 and at 5/8.
    found = weighted_quantile(tensor([10.0, 0.0]), tensor([3.0, 1.0]), tensor([0.1, 0.125, 0.375, 0.625, 0.9]))
    torch.testing.assert_close(found, tensor([0.0, 0.0, 5.0, 10.0, 10.0]))


def test_a_value_of_weight_two_is_the_value_twice_in_any_order():
    at = torch.linspace(0, 1, 23, dtype=torch.float64)
    weighted = weighted_quantile(tensor([3.0, 1.0, 2.0, 1.0]), tensor([2.0, 1.0, 3.0, 1.0]), at)
    repeated = weighted_quantile(tensor([1.0, 2.0, 3.0, 2.0, 1.0, 3.0, 2.0]), torch.ones(7, dtype=torch.float64), at)
    torch.testing.assert_close(weighted, repeated)


# ----------------------------------------------------------------------------------------------------- columns


def test_columns_by_hand():
    basis = TimeBasis(shift=0.5, center=math.log(2), spread=2.0, bumps=(-1.0, 0.0), width=0.5)
    # At t = 1.5 the clock shows 0; at t = 2 e^2 - 0.5 it shows 1, which is 4 and 2 widths away from the bumps.
    found = basis.columns(tensor([1.5, 2 * math.e**2 - 0.5]))
    expected = tensor([[0.0, math.exp(-2), 1.0], [1.0, math.exp(-8), math.exp(-2)]])
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


# -------------------------------------------------------------------------------------------------- even times


def some_basis() -> TimeBasis:
    time = event_times()
    return place_basis(time, torch.ones_like(time), 3)


@pytest.mark.parametrize("last", [0.0, 1e-9, 0.01, 0.4, 1.0, 1.7, 300.0])
def test_even_times_reach_the_last_one_and_no_further_than_needed(last):
    times = some_basis().even_times(16, last)
    assert float(times[0]) == 0
    assert float(times[-1]) >= last * (1 - 1e-8)
    assert len(times) == 1 or float(times[-2]) < last


def test_even_times_do_not_depend_on_the_last_one():
    longest = some_basis().even_times(16, 50.0)
    for last in (0.01, 0.4, 1.0, 7.0):
        times = some_basis().even_times(16, last)
        assert torch.equal(times, longest[: len(times)])


@pytest.mark.parametrize("count", [2, 16, 64])
def test_so_many_of_them_lie_within_the_training_range_evenly_on_the_clock(count):
    basis = some_basis()
    times = basis.even_times(count, 1.0)
    assert len(times) == count
    assert float(times[-1]) == pytest.approx(1, rel=1e-12)
    steps = basis.clock(times).diff()
    torch.testing.assert_close(steps, steps[:1].expand(len(steps)), rtol=1e-9, atol=1e-12)
