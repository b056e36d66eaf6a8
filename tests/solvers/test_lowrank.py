import pytest
import torch

from neuralsurv.solvers import lowrank
from neuralsurv.solvers.lowrank import low_rank_solver, sampled_solver, spread_sample
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows
from solvers.gaussian_cases import GaussianCases, close, covariance, problem


class TestNothingCut(GaussianCases):
    """With tolerance 0 the low-rank solver is exact, from whichever Gram matrix."""

    def make(self, jacobian, precision):
        return low_rank_solver(DenseRows(jacobian), precision)


class TestFromPivots(GaussianCases):
    @pytest.fixture(autouse=True)
    def _no_eigenvectors(self, monkeypatch):
        monkeypatch.setattr(lowrank, "MOST_FOR_EIGENVECTORS", 0)

    def make(self, jacobian, precision):
        return low_rank_solver(DenseRows(jacobian), precision)


def decaying(points, weights, base=0.5, seed=3):
    """Rows whose singular values fall by `base` from one to the next."""
    generator = torch.Generator().manual_seed(seed)
    size = min(points, weights)
    left, right = (
        torch.linalg.qr(torch.randn(n, size, generator=generator, dtype=torch.float64))[0] for n in (points, weights)
    )
    return left * base ** torch.arange(size, dtype=torch.float64) @ right.T


SHAPES = pytest.mark.parametrize("shape", [(60, 40), (40, 60)], ids=["many points", "few points"])
PATHS = pytest.mark.parametrize("most_points", [3000, 0], ids=["eigenvectors", "pivots"])


class TestCut:
    @SHAPES
    @PATHS
    def test_information_given_up_is_within_the_tolerance_and_reported(self, shape, most_points, monkeypatch):
        monkeypatch.setattr(lowrank, "MOST_FOR_EIGENVECTORS", most_points)
        jacobian = decaying(*shape)
        precision = problem(*shape).precision
        importance = torch.linspace(0.1, 2, shape[0], dtype=torch.float64)
        ranks = []
        for tolerance in (1e-1, 1e-4, 1e-8):
            solver = low_rank_solver(DenseRows(jacobian), precision, importance, tolerance=tolerance)
            lost = solver.lost_information(importance)
            # By hand: the part of the whitened rows across the basis.
            whitened = jacobian / precision.sqrt()
            across = whitened - whitened @ solver.basis @ solver.basis.T
            assert lost == pytest.approx(float(importance @ across.square().sum(1)), rel=1e-4, abs=1e-13)
            assert lost <= tolerance * (1 + 1e-9)
            ranks.append(solver.rank)
        assert 0 < ranks[0] < ranks[1] < ranks[2] < 30

    @SHAPES
    @PATHS
    def test_moments_differ_by_no_more_than_what_was_given_up(self, shape, most_points, monkeypatch):
        monkeypatch.setattr(lowrank, "MOST_FOR_EIGENVECTORS", most_points)
        jacobian, case = decaying(*shape), problem(*shape)
        exact = low_rank_solver(DenseRows(jacobian), case.precision)
        mean, variance = exact.moments(exact.solve(case.curvature, case.slope))
        previous = float("inf")
        for tolerance in (1e-2, 1e-4, 1e-6):
            solver = low_rank_solver(DenseRows(jacobian), case.precision, case.curvature, tolerance=tolerance)
            found_mean, found_variance = solver.moments(solver.solve(case.curvature, case.slope))
            error = float((found_variance - variance).abs().max() + (found_mean - mean).abs().max())
            assert error < 20 * tolerance**0.5
            assert error < previous
            previous = error

    @PATHS
    def test_what_is_cut_keeps_its_prior(self, most_points, monkeypatch):
        monkeypatch.setattr(lowrank, "MOST_FOR_EIGENVECTORS", most_points)
        jacobian, case = decaying(30, 50), problem(30, 50)
        solver = low_rank_solver(DenseRows(jacobian), case.precision, most=4)
        assert solver.rank == 4
        gaussian = solver.solve(case.curvature, case.slope)
        across = torch.linalg.qr(solver.basis, mode="complete")[0][:, 4:].T * case.precision.sqrt()
        close(gaussian.variance(across), torch.ones(46, dtype=torch.float64), rtol=1e-8)
        # The solver's own variances are those of the Gaussian, remainder included.
        close(solver.moments(gaussian)[1], gaussian.variance(jacobian), rtol=1e-7)

    @PATHS
    def test_basis_is_orthonormal(self, most_points, monkeypatch):
        monkeypatch.setattr(lowrank, "MOST_FOR_EIGENVECTORS", most_points)
        solver = low_rank_solver(DenseRows(decaying(40, 60)), torch.ones(60, dtype=torch.float64), tolerance=1e-6)
        product = solver.basis.T @ solver.basis
        close(product, torch.eye(solver.rank, dtype=torch.float64), rtol=1e-8)

    def test_divergence_to_another_prior(self):
        case = problem(6, 9)
        gaussian = low_rank_solver(DenseRows(case.jacobian), case.precision, most=3).solve(case.curvature, case.slope)
        other = case.precision * torch.linspace(0.5, 2, 9, dtype=torch.float64)
        normal = torch.distributions.MultivariateNormal
        eye = torch.eye(9, dtype=torch.float64)
        expected = torch.distributions.kl_divergence(
            normal(gaussian.mean, covariance(gaussian, eye, eye)),
            normal(torch.zeros(9, dtype=torch.float64), precision_matrix=other.diag()),
        )
        assert gaussian.divergence(other) == pytest.approx(float(expected), rel=1e-10)


class TestRough:
    """Single precision: less exact by about 1e-6, and nothing but less exact."""

    @pytest.fixture(params=[(300, 40), (2500, 150)], ids=["one block", "several blocks"])
    def both(self, request):
        case = problem(*request.param)
        exact = low_rank_solver(DenseRows(case.jacobian), case.precision)
        return case, exact, exact.rough()

    def test_gaussian_is_that_of_the_exact_solver(self, both):
        case, exact, rough = both
        expected, found = (solver.solve(case.curvature, case.slope) for solver in (exact, rough))
        assert found.mean.dtype == torch.float64
        close(found.mean, expected.mean, rtol=1e-5)
        assert found.divergence(case.precision) == pytest.approx(expected.divergence(case.precision), rel=1e-5)
        assert not torch.equal(found.mean, expected.mean)

    def test_moments_are_those_of_the_exact_solver(self, both):
        case, exact, rough = both
        gaussian = exact.solve(case.curvature, case.slope)
        for found, expected in zip(rough.moments(gaussian), exact.moments(gaussian), strict=True):
            assert found.dtype == torch.float64
            close(found, expected, rtol=2e-6)

    def test_chart_is_that_of_the_exact_solver(self, both):
        case, exact, rough = both
        gaussian = exact.solve(case.curvature, case.slope)
        expected, found = exact.coordinates(gaussian), rough.coordinates(gaussian)
        close(found.rows.times(found.place), expected.rows.times(expected.place), rtol=2e-6)
        close(found.rows.transposed_times(case.slope), expected.rows.transposed_times(case.slope), rtol=2e-6)


def sampled_problem(points: int = 40, weights: int = 60, rank: int = 12):
    generator = torch.Generator().manual_seed(0)

    def normal(*shape: int):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    rows = DenseRows(normal(points, rank) @ normal(rank, weights))
    return rows, 1 + normal(weights).abs(), 1 + normal(points).abs(), normal(points)


def test_with_rows_enough_to_span_all_others_it_is_the_plain_solver():
    rows, precision, curvature, slope = sampled_problem()
    solver = sampled_solver(rows, precision, curvature, 25)
    assert solver.rank == 12
    plain = PrimalSolver(rows, precision)
    found, expected = solver.solve(curvature, slope), plain.solve(curvature, slope)
    assert torch.allclose(found.mean, expected.mean, atol=1e-9)
    for a, b in zip(solver.moments(found), plain.moments(expected), strict=True):
        assert torch.allclose(a, b, atol=1e-8)
    assert solver.lost_information(curvature) < 1e-8


def test_what_is_left_out_keeps_its_prior_variance():
    rows, precision, curvature, slope = sampled_problem()
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
