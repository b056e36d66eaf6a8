"""CovariateCurves against their formula, one row and one centre at a time, and as parts of the additive network."""

import math
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from neuralsurv.model.covariate_curves import CovariateCurves, normal_scores, units
from neuralsurv.model.neighbourhoods import rank_of, rank_scores

NORMAL = NormalDist()


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def some_curves(columns: int = 4) -> CovariateCurves:
    """Curves of the third and the first of three covariates; the third has three values, its table is filled up."""
    values = torch.tensor([[0.0, 1.0, 2.0, 2.0, 2.0], [-3.0, -1.0, 0.0, 0.5, 4.0]], dtype=torch.float64)
    ranks = torch.tensor([[0.1, 0.5, 0.9, 0.9, 0.9], [0.0, 0.2, 0.4, 0.7, 1.0]], dtype=torch.float64)
    centres = torch.tensor([[-1.2, 0.0, 1.2], [-0.8, 0.3, 2.0]], dtype=torch.float64)
    parts = normal(2 * 2 * 3, columns, seed=1), normal(columns, seed=2)
    return CovariateCurves(torch.tensor([2, 0]), values, ranks, centres, *parts)


def written_out(curves: CovariateCurves, row: Tensor) -> np.ndarray:
    """Rough units of all covariates and centres, then smooth ones; then their combinations."""
    rough, smooth = [], []
    for place, values, ranks, centres in zip(curves.which, curves.values, curves.ranks, curves.centres, strict=True):
        rank = np.interp(float(row[place]), values.numpy(), ranks.numpy())
        score = NORMAL.inv_cdf(min(max(rank, 1e-6), 1 - 1e-6))
        for centre in centres.tolist():
            apart = abs(score - centre)
            near = math.sqrt(5) * apart / 1.5
            rough.append(math.exp(-apart))
            smooth.append((1 + near + near**2 / 3) * math.exp(-near))
    return np.array(rough + smooth) @ curves.mix.numpy() - curves.mean.numpy()


# Within the tables, on their values, between them, below, above. Nobody looks at the second covariate.
ROWS = torch.tensor(
    [[-1, 9, 0], [0.1, 8, 1], [4, 7, 2], [0.5, 6, 0.3], [-9, 5, -5], [11, 4, 7], [-0.5, 3, 1.99]], dtype=torch.float64
)


def test_columns_are_the_formula() -> None:
    curves = some_curves()
    found = curves.columns(ROWS)
    assert found.shape == (len(ROWS), curves.size) == (7, 4)
    for row, columns in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(columns.numpy(), written_out(curves, row), rtol=0, atol=1e-12)


def test_covariates_without_a_curve_do_not_count() -> None:
    curves, other = some_curves(), ROWS.clone()
    other[:, 1] = normal(len(ROWS), seed=3)
    assert torch.equal(curves.columns(other), curves.columns(ROWS))


def test_beyond_the_training_rows_curves_are_flat() -> None:
    curves = some_curves()
    beyond = torch.tensor([[-3.0, 0, 0], [-1e9, 0, -7], [4, 0, 2], [1e9, 0, 1e9]], dtype=torch.float64)
    low, lower, high, higher = curves.columns(beyond)
    assert torch.equal(low, lower)
    assert torch.equal(high, higher)
    assert bool(torch.isfinite(curves.columns(beyond)).all())


def test_no_rows() -> None:
    assert some_curves().columns(ROWS[:0]).shape == (0, 4)


def test_many_rows_are_done_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    curves, x = some_curves(), normal(50, 3, seed=9)
    whole = curves.columns(x)
    monkeypatch.setattr("neuralsurv.model.covariate_curves.CACHE_NUMBERS", 12)
    torch.testing.assert_close(curves.columns(x), whole, rtol=0, atol=1e-14)


# ---------------------------------------------------------------------------------------------------------- kernels


def test_both_kernels_are_covariances_and_1_at_no_distance() -> None:
    places = normal(12, 1, seed=4)
    rough, smooth = units(places, places.T).split(12, dim=1)
    for kernel in (rough, smooth):
        torch.testing.assert_close(kernel.diagonal(), torch.ones(12).double())
        torch.testing.assert_close(kernel, kernel.T)
        assert float(torch.linalg.eigvalsh(kernel)[0]) > 0
        assert float((kernel - torch.eye(12)).max()) < 1


def test_the_rough_kernel_has_a_kink_where_the_smooth_one_is_flat() -> None:
    """A small distance h costs the rough unit h, and the smooth one 5/6 (h / 1.5)²."""
    h = 1e-4
    rough, smooth = units(torch.full((1, 1), h).double(), torch.zeros(1, 1).double())[0].tolist()
    assert 1 - rough == pytest.approx(h, rel=1e-3)
    assert 1 - smooth == pytest.approx(5 / 6 * (h / 1.5) ** 2, rel=1e-3)


def test_scores_are_normal_quantiles_of_ranks() -> None:
    values = torch.tensor([[0.0, 1.0, 3.0]]).double()
    ranks = torch.tensor([[0.2, 0.5, 1.0]]).double()
    x = torch.tensor([[-2.0], [0.0], [0.5], [1.0], [2.0], [3.0], [8.0]]).double()
    wanted = [0.2, 0.2, 0.35, 0.5, 0.75, 1.0, 1.0]
    torch.testing.assert_close(rank_of(values, ranks, x)[:, 0], torch.tensor(wanted).double())
    quantiles = torch.tensor([NORMAL.inv_cdf(min(rank, 1 - 1e-6)) for rank in wanted]).double()
    torch.testing.assert_close(normal_scores(values, ranks, x)[:, 0], quantiles)
    uniform = torch.tensor([(rank - 0.5) * math.sqrt(12) for rank in wanted]).double()
    torch.testing.assert_close(rank_scores(values, ranks, x)[:, 0], uniform)
