"""Products of which only a triangle is worked out, against the whole products."""

import pytest
import torch

from neuralsurv.solvers import triangles
from neuralsurv.solvers.triangles import add_weighted_gram, mirrored, squared_lengths

SHAPES = [(0, 3), (1, 1), (7, 3), (40, 129), (300, 260), (5, 300)]


@pytest.fixture(params=[2**20, 1000], ids=["one block", "many blocks"], autouse=True)
def numbers_in_a_block(request, monkeypatch):
    monkeypatch.setattr(triangles, "CACHE_NUMBERS", request.param)


def rows_and_weights(shape):
    generator = torch.Generator().manual_seed(sum(shape))
    rows = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return rows, torch.rand(shape[0], generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("share", [1.0, 0.2], ids=["all rows", "few rows count"])
def test_gram(shape, share):
    rows, weight = rows_and_weights(shape)
    weight = torch.where(weight <= share, weight, torch.zeros_like(weight))
    matrix = torch.eye(shape[1], dtype=torch.float64)
    add_weighted_gram(matrix, rows, weight)
    expected = torch.eye(shape[1], dtype=torch.float64) + rows.T @ (weight[:, None] * rows)
    torch.testing.assert_close(mirrored(matrix), expected, rtol=1e-12, atol=1e-12)


def test_gram_of_a_negative_weight_is_not_a_number():
    rows, weight = rows_and_weights((7, 3))
    weight[2] = -1
    matrix = torch.zeros(3, 3, dtype=torch.float64)
    add_weighted_gram(matrix, rows, weight)
    assert bool(mirrored(matrix).isnan().all())


@pytest.mark.parametrize("shape", SHAPES)
def test_squared_lengths(shape):
    rows, _ = rows_and_weights(shape)
    lower = rows_and_weights((shape[1], shape[1]))[0].tril()
    expected = (rows @ lower.T).square().sum(1)
    torch.testing.assert_close(squared_lengths(rows, lower), expected, rtol=1e-12, atol=1e-12)
