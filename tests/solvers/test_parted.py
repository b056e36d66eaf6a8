"""Rows in parts against the dense matrix that they stand for."""

import pytest
import torch

from neuralsurv.solvers import parted
from neuralsurv.solvers.parted import Copy, PartedRows, parted_scales
from neuralsurv.solvers.separable import SeparableTerm, separable_scales


def normal(*shape, seed):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def problem():
    """Two parts of points of four rows, in turn; features of three columns, and of five, which are reduced."""
    row, features = torch.arange(4).repeat_interleave(3), (normal(4, 3, seed=1), normal(4, 5, seed=2))
    places = [torch.arange(0, 24, 2), torch.arange(1, 24, 2)]
    times = normal(24, seed=3)
    # Shared weights: 3, 5, a column of time and a constant; then copies of the first two.
    unit = torch.tensor([3.0] * 3 + [1.0] * 5 + [1.0] + [0.5] * 3 + [4.0] * 5 + [0.25], dtype=torch.float64)
    shared = torch.cat([torch.arange(9), torch.tensor([17])])
    parts = []
    for place in places:
        time = times[place]
        terms = [
            SeparableTerm(features[0], torch.ones_like(time)),
            SeparableTerm(features[1], time),
            SeparableTerm(None, time[:, None]),
            SeparableTerm(None, torch.ones_like(time)[:, None]),
        ]
        parts.append(separable_scales(row, terms, unit[shared]))
    factors = torch.tensor([1.0, -1.0], dtype=torch.float64)
    copies = [Copy(slice(0, 3), slice(9, 12), factors), Copy(slice(3, 8), slice(12, 17), 2 * factors)]
    dense = torch.zeros(24, 18, dtype=torch.float64)
    for place, sign in zip(places, factors, strict=True):
        own = torch.cat([features[0][row], features[1][row] * times[place, None]], 1)
        dense[place, :8] = own
        dense[place, 8], dense[place, 17] = times[place], 1.0
        dense[place, 9:12], dense[place, 12:17] = sign * own[:, :3], 2 * sign * own[:, 3:]
    return parted_scales(parts, places, unit, shared, copies), dense / unit.sqrt()


def test_every_product_is_that_of_the_dense_columns():
    scales, whitened = problem()
    rows = scales.rows
    assert isinstance(rows, PartedRows)
    identity = torch.eye(scales.rank, dtype=torch.float64)
    columns = torch.stack([rows.times(direction) for direction in identity], 1)
    torch.testing.assert_close(columns, whitened @ scales.basis)
    torch.testing.assert_close(scales.basis.T @ scales.basis, identity)
    weight, values = normal(24, seed=4).abs(), normal(24, seed=5)
    torch.testing.assert_close(rows.gram(weight), columns.T @ (columns * weight[:, None]))
    torch.testing.assert_close(rows.transposed_times(values), columns.T @ values)
    half = normal(scales.rank, scales.rank, seed=6)
    covariance = half @ half.T + identity
    torch.testing.assert_close(rows.variances(covariance), ((columns @ covariance) * columns).sum(1))
    torch.testing.assert_close(rows.gram_diagonal(weight), columns.square().T @ weight)
    scale, vectors = normal(scales.rank, seed=7).abs(), normal(scales.rank, 3, seed=8)
    torch.testing.assert_close(rows.squared_norms(scale), columns.square() @ scale)
    torch.testing.assert_close(rows.times_each(vectors), columns @ vectors)
    factor = torch.linalg.cholesky(torch.linalg.inv(covariance)).contiguous()
    torch.testing.assert_close(rows.variances_by_factor(factor), rows.variances(covariance))


def test_scales_multiply_columns_and_what_lies_across_them():
    scales, whitened = problem()
    multipliers = torch.ones(18, dtype=torch.float64)
    multipliers[12:17] = 0.3
    solver = scales.at(multipliers)
    moved = torch.stack([solver.rows.times(one) for one in torch.eye(scales.rank, dtype=torch.float64)], 1)
    torch.testing.assert_close(moved, (whitened * multipliers) @ scales.basis)
    # Basis and remainder together hold all of the prior variance of a point.
    total = (whitened * multipliers).square().sum(1)
    torch.testing.assert_close(moved.square().sum(1) + solver.remainder, total)


@pytest.mark.parametrize("most", [50, 0], ids=["slices", "one by one"])
def test_some_columns_are_those_of_the_dense_ones(monkeypatch, most):
    monkeypatch.setattr(parted, "_MOST_RUNS", most)
    scales, whitened = problem()
    columns = whitened @ scales.basis
    which = scales.rows.of_time | (normal(scales.rank, seed=9) > 0)
    assert 0 < int(scales.rows.of_time.sum()) < int(which.sum()) < scales.rank
    rows = scales.rows.chosen(which)
    few = columns[:, which]
    assert rows.size == few.shape[1]
    torch.testing.assert_close(
        torch.stack([rows.times(one) for one in torch.eye(rows.size, dtype=torch.float64)], 1), few
    )
    weight = normal(24, seed=10).abs()
    torch.testing.assert_close(rows.gram(weight), few.T @ (few * weight[:, None]))
    torch.testing.assert_close(rows.transposed_times(weight), few.T @ weight)
    assert torch.equal(rows.of_time, scales.rows.of_time[which])
