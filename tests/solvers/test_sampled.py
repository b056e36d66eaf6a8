"""The solver of sampled rows against the plain one."""

import torch

from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows
from neuralsurv.solvers.sampled import sampled_solver, spread_sample


def problem(points: int = 40, weights: int = 60, rank: int = 12):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = DenseRows(normal(points, rank) @ normal(rank, weights))
    return rows, 1 + normal(weights).abs(), 1 + normal(points).abs(), normal(points)


def test_with_rows_enough_to_span_all_others_it_is_the_plain_solver():
    rows, precision, curvature, slope = problem()
    solver = sampled_solver(rows, precision, curvature, 25)
    assert solver.rank == 12
    plain = PrimalSolver(rows, precision)
    found, expected = solver.solve(curvature, slope), plain.solve(curvature, slope)
    assert torch.allclose(found.mean, expected.mean, atol=1e-9)
    for a, b in zip(solver.moments(found), plain.moments(expected), strict=True):
        assert torch.allclose(a, b, atol=1e-8)
    assert solver.lost_information(curvature) < 1e-8


def test_what_is_left_out_keeps_its_prior_variance():
    rows, precision, curvature, slope = problem()
    solver = sampled_solver(rows, precision, curvature, 5)
    assert solver.rank == 5
    assert torch.allclose(solver.basis.T @ solver.basis, torch.eye(5, dtype=torch.float64), atol=1e-8)
    prior = rows.squared_norms(1 / precision)
    assert torch.allclose(solver.reduced.square().sum(1) + solver.remainder, prior, atol=1e-9)
    nothing = torch.zeros_like(curvature)
    assert torch.allclose(solver.moments(solver.solve(nothing, slope))[1], prior, atol=1e-9)
    # Greedy pivots keep more of the information with the same number of directions, but not by far.
    greedy = low_rank_solver(rows, precision, curvature, most=5)
    assert greedy.lost_information(curvature) <= solver.lost_information(curvature)


def test_the_sample_is_spread_over_the_importance_and_skips_what_has_none():
    importance = torch.cat([torch.zeros(10), torch.ones(90), 9 * torch.ones(10)]).double()
    chosen = spread_sample(importance, 18)
    assert int(chosen.min()) >= 10
    assert int((chosen >= 100).sum()) == 9
