"""Neighbourhoods against their formula written out, one row and one centre at a time."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from neuralsurv.model.additive import Additive
from neuralsurv.model.neighbourhoods import Neighbourhoods, proximity
from neuralsurv.model.time_basis import TimeBasis

BASIS = TimeBasis(shift=0.1, center=-1.0, spread=0.8, bumps=(-1.0, 0.2), width=0.7)


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def neighbourhoods(centres: int = 5, columns: int = 3) -> Neighbourhoods:
    """Two covariates: one with three values, one with many; the table of the first is filled up."""
    values = torch.tensor([[0.0, 1.0, 2.0, 2.0, 2.0], [-3.0, -1.0, 0.0, 0.5, 4.0]], dtype=torch.float64)
    ranks = torch.tensor([[0.1, 0.5, 0.9, 0.9, 0.9], [0.0, 0.2, 0.4, 0.7, 1.0]], dtype=torch.float64)
    relevance = torch.tensor([0.3, 1.2], dtype=torch.float64)
    parts = normal(centres, 2, seed=1), relevance, normal(centres, columns, seed=2), normal(columns, seed=3)
    return Neighbourhoods(values, ranks, *parts)


def written_out(near: Neighbourhoods, row: Tensor) -> np.ndarray:
    scores = [
        (np.interp(float(value), values.numpy(), ranks.numpy()) - 0.5) * math.sqrt(12)
        for value, values, ranks in zip(row, near.values, near.ranks, strict=True)
    ]
    units = [
        math.exp(-sum(float(w) * abs(u - float(c)) for w, u, c in zip(near.relevance, scores, centre, strict=True)))
        for centre in near.centres
    ]
    return np.array(units) @ near.mix.numpy() - near.mean.numpy()


# Within the table, on its values, between them, below, above.
ROWS = torch.tensor([[0, -1], [1, 0.1], [2, 4], [0.3, 0.5], [-5, -9], [7, 11], [1.99, -0.5]], dtype=torch.float64)


def test_columns_are_the_formula() -> None:
    near = neighbourhoods()
    found = near.columns(ROWS)
    assert found.shape == (len(ROWS), near.size)
    for row, columns in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(columns.numpy(), written_out(near, row), atol=1e-14)


def test_points_of_a_row_have_its_columns_in_any_order() -> None:
    near = neighbourhoods()
    which = torch.tensor([0, 0, 0, 3, 3, 0, 6, 5, 5, 5, 1])
    torch.testing.assert_close(near.columns(ROWS[which]), near.columns(ROWS)[which], rtol=0, atol=1e-15)


def test_no_rows() -> None:
    assert neighbourhoods().columns(ROWS[:0]).shape == (0, 3)


def test_many_rows_are_done_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    near, x = neighbourhoods(), normal(50, 2, seed=9)
    whole = near.columns(x)
    monkeypatch.setattr("neuralsurv.model.neighbourhoods.CACHE_NUMBERS", 10)
    torch.testing.assert_close(near.columns(x), whole, rtol=0, atol=1e-15)


def test_a_row_is_closest_to_itself() -> None:
    scores = normal(6, 2, seed=4)
    near = proximity(scores, scores, torch.tensor([0.5, 2.0], dtype=torch.float64))
    torch.testing.assert_close(near.diagonal(), torch.ones(6, dtype=torch.float64))
    assert bool((near.fill_diagonal_(0) < 1).all())


@pytest.mark.parametrize("varying", [True, False])
@pytest.mark.parametrize("linear", [True, False])
def test_the_additive_network_adds_them_to_the_linear_path_and_to_the_changes(linear: bool, varying: bool) -> None:
    near = neighbourhoods()
    network = Additive(2, BASIS, -2.5, None, torch.zeros(0).double(), linear=linear, varying=varying, near=near)
    time = torch.linspace(0.1, 1, len(ROWS), dtype=torch.float64)
    theta = normal(network.size, seed=5)
    w, v = 2 * linear, 2 * varying
    a, b, trend, c, d, e, bias = theta.split([w, 3, 1, 2, v, 3 * varying, 1])
    clock, columns = BASIS.clock(time), near.columns(ROWS)
    g = -2.5 + bias + columns @ b + BASIS.columns(time) @ torch.cat([trend, c])
    if linear:
        g = g + ROWS @ a
    if varying:
        g = g + clock * (ROWS @ d + columns @ e)
    torch.testing.assert_close(network.value(theta, time, ROWS), g)
    jacobian = torch.func.jacrev(lambda weights: network.value(weights, time, ROWS))(theta)
    torch.testing.assert_close(network.jacobian(theta, time, ROWS), jacobian)
