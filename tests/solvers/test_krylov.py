"""The Krylov solver: the cases of every solver, its iterations, the errors it states, its compact form, a whole fit."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.stats import t as student

from false_alarm import FALSE_ALARM
from inference.problems import intricate, setting
from neuralsurv.errors import NotConvergedError, NotFiniteError, NotPositiveDefiniteError
from neuralsurv.inference import cavi
from neuralsurv.model.network import MLP
from neuralsurv.model.rows import DenseRows, LayeredRows
from neuralsurv.solvers import krylov, krylov_gaussian, lanczos
from neuralsurv.solvers.conjugate_gradients import block_conjugate_gradients
from neuralsurv.solvers.krylov import KrylovSolver
from neuralsurv.solvers.lanczos import stochastic_log_determinant
from solvers.gaussian_cases import GaussianCases, Problem, close, problem, rows_elsewhere

TIGHT = 1e-12


class TestKrylov(GaussianCases):
    def make(self, jacobian, precision):
        return KrylovSolver(DenseRows(jacobian), precision, TIGHT)


class TestSmallPreconditioner(GaussianCases):
    def make(self, jacobian, precision):
        return KrylovSolver(DenseRows(jacobian), precision, TIGHT, rank=2, block=128)


class TestNoPreconditioner(GaussianCases):
    def make(self, jacobian, precision):
        return KrylovSolver(DenseRows(jacobian), precision, TIGHT, rank=0, block=128)


class TestLayered(GaussianCases):
    def make(self, jacobian, precision):
        # Any rows are those of a layer without inputs, whose biases they are.
        return KrylovSolver(LayeredRows(((jacobian[:, :0], jacobian),)), precision, TIGHT, rank=3, block=2)

    # Slow one by one; below, the same noise gives the draws of the matrix.
    test_draws_have_mean_and_covariance = None


def orthonormal(rows, columns, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.linalg.qr(torch.randn(rows, columns, generator=generator, dtype=torch.float64))[0]


def hard(points=60, weights=50, base=0.8, scale=100.0) -> Problem:
    """A problem whose information falls slowly from a large value, so that conjugate gradients have work to do."""
    size = min(points, weights)
    singular = scale * base ** torch.arange(size, dtype=torch.float64)
    jacobian = orthonormal(points, size, 1) * singular @ orthonormal(weights, size, 2).T
    return replace(problem(points, weights), jacobian=jacobian)


def solver_of(case, **options):
    return KrylovSolver(DenseRows(case.jacobian), case.precision, **options)


def solved(case, **options):
    return solver_of(case, **options).solve(case.curvature, case.slope)


def log_determinant(case):
    matrix = torch.linalg.inv(case.covariance) / case.precision.sqrt() / case.precision.sqrt()[:, None]
    return float(torch.linalg.slogdet(matrix)[1])


def divergence(case, precision):
    normal = torch.distributions.MultivariateNormal
    covariance = (case.covariance + case.covariance.T) / 2
    prior = normal(torch.zeros_like(precision), precision_matrix=torch.diag(precision))
    return float(torch.distributions.kl_divergence(normal(case.mean, covariance), prior))


class TestConjugateGradients:
    @staticmethod
    def matrix(values, seed=4):
        basis = orthonormal(len(values), len(values), seed)
        return basis * torch.tensor(values, dtype=torch.float64) @ basis.T

    def test_as_many_iterations_as_there_are_eigenvalues(self):
        matrix = self.matrix([1.0] * 10 + [5.0] * 10 + [80.0] * 10)
        right = rows_elsewhere(30, 1).T
        solution, iterations = block_conjugate_gradients(lambda x: matrix @ x, right, 1e-24, 100)
        assert iterations == 3
        close(matrix @ solution, right, rtol=1e-11)

    def test_columns_share_their_iterations(self):
        matrix = self.matrix([float(k) for k in range(1, 41)])
        right = rows_elsewhere(40, 10).T
        alone = [block_conjugate_gradients(lambda x: matrix @ x, right[:, k : k + 1], 1e-20, 100)[1] for k in range(10)]
        solution, together = block_conjugate_gradients(lambda x: matrix @ x, right, 1e-20, 100)
        close(matrix @ solution, right, rtol=1e-9)
        # Ten columns a time, forty dimensions; one column alone has to find them one by one.
        assert together <= 5
        assert min(alone) > 20

    def test_dependent_zero_and_too_many_columns(self):
        matrix = self.matrix([float(k) for k in range(1, 9)])
        right = rows_elsewhere(8, 3).T
        right = torch.cat([right, right @ right[:3, :3], torch.zeros(8, 2, dtype=torch.float64), right, right], 1)
        solution, _ = block_conjugate_gradients(lambda x: matrix @ x, right, 1e-24, 30)
        close(matrix @ solution, right, rtol=1e-11)
        assert torch.equal(solution[:, 6:8], torch.zeros(8, 2, dtype=torch.float64))

    def test_nothing_to_do(self):
        zero = torch.zeros(5, 2, dtype=torch.float64)
        solution, iterations = block_conjugate_gradients(lambda x: x, zero, 1e-20, 0)
        assert iterations == 0
        assert torch.equal(solution, zero)

    def test_too_few_iterations_are_an_error(self):
        matrix = self.matrix([float(k) ** 2 for k in range(1, 41)])
        message = (
            r"conjugate gradients did not converge in 3 iterations: the largest residual is \d\S* of its solution, "
            r"1e-10 is asked for; raise max_iterations or rank, or loosen tolerance\."
        )
        with pytest.raises(NotConvergedError, match=message):
            block_conjugate_gradients(lambda x: matrix @ x, rows_elsewhere(40, 1).T, 1e-20, 3)

    def test_squared_residual_is_at_most_the_goal(self):
        matrix = self.matrix([float(k) ** 2 for k in range(1, 41)])
        right = rows_elsewhere(40, 1).T
        iterations = []
        for goal in (1e-2, 1e-6, 1e-12):
            solution, count = block_conjugate_gradients(lambda x: matrix @ x, right, goal, 100)
            share = (right - matrix @ solution).square().sum(0) / (solution * right).sum(0)
            assert bool((share <= 1.01 * goal).all())
            iterations.append(count)
        assert iterations[0] < iterations[1] < iterations[2]


class TestIterations:
    def test_enough_directions_leave_nothing_to_iterate(self):
        gaussian = solved(problem(40, 6), rank=6)
        assert gaussian.iterations == 1
        assert gaussian.residual < 1e-10

    def test_the_preconditioner_saves_iterations(self):
        case = hard()
        few, some, many = (solved(case, rank=rank) for rank in (0, 10, 30))
        assert few.iterations > 1.5 * some.iterations > 3 * many.iterations
        assert few.own.iterations >= some.own.iterations >= many.own.iterations > 0
        for gaussian in (few, some, many):
            assert 0 < gaussian.residual <= 1e-10
            close(gaussian.mean, case.mean, rtol=1e-8)

    def test_importance_steers_the_preconditioner(self):
        """Where the longest rows have no curvature, others are the ones to know, in directions of their own."""
        case = problem(60, 50)
        jacobian = case.jacobian.clone()
        jacobian[:40, :20], jacobian[40:, 20:] = 0, 0
        jacobian[:40] *= 1000
        curvature = torch.where(torch.arange(60) < 40, 1e-9, 10).to(torch.float64)
        case = replace(case, jacobian=jacobian, curvature=curvature)
        blind, steered = (solved(case, rank=10, importance=weight) for weight in (None, curvature))
        assert steered.iterations < blind.iterations
        assert steered.preconditioner.left < blind.preconditioner.left / 2
        close(steered.mean, case.mean, rtol=1e-8)

    def test_blocks_change_only_the_number_of_iterations(self):
        case = hard(20, 30)
        one, all_at_once = (solved(case, rank=2, block=block) for block in (1, 20))
        close(one.own.variance, all_at_once.own.variance, rtol=1e-9)
        assert one.own.iterations > 5 * all_at_once.own.iterations
        first, second = (gaussian.draw(7, torch.Generator().manual_seed(3)) for gaussian in (one, all_at_once))
        close(first, second, rtol=1e-8)

    def test_solver_says_that_it_did_not_converge(self):
        case = hard()
        with pytest.raises(NotConvergedError, match="conjugate gradients did not converge in 4 iterations"):
            solved(case, rank=0, max_iterations=4)

    def test_corrections_undo_the_drift_of_rounding(self, monkeypatch):
        options = {"rank": 5, "tolerance": 1e-11}
        cases = [hard(scale=scale) for scale in (2e3, 3e3, 4e3, 1e4)]
        corrected = [solved(case, **options).residual for case in cases]
        monkeypatch.setattr(krylov, "_MOST_CORRECTIONS", 1)
        drifted = [solved(case, **options).residual for case in cases]
        # How far each drifts is a matter of rounding; on average over several it is far.
        assert max(corrected) < 1e-9
        assert np.mean(np.log(drifted)) > np.mean(np.log(corrected)) + 0.5

    def test_solver_says_that_rounding_has_spoilt_the_result(self):
        case = hard(scale=1e6)
        message = (
            r"rounding keeps the residual of conjugate gradients at \d\S* of the solution, 1e-10 is asked for: "
            r"the curvatures are too large for so small a preconditioner; raise rank\."
        )
        with pytest.raises(NotConvergedError, match=message):
            solved(case, rank=0, max_iterations=10_000)
        assert solved(case, rank=50).residual < 1e-8

    def test_no_more_rows_at_once_than_a_block(self, monkeypatch):
        formed = []
        whole = LayeredRows.dense
        monkeypatch.setattr(LayeredRows, "dense", lambda self: formed.append(self.shape[0]) or whole(self))
        case = problem(20, 6)
        rows = LayeredRows(((case.jacobian[:, :0], case.jacobian),))
        solver = KrylovSolver(rows, case.precision, block=3)
        gaussian = solver.solve(case.curvature, case.slope)
        gaussian.divergence(case.precision)
        assert formed == []
        solver.moments(gaussian)
        assert formed == [3] * 6 + [2]


class TestStatedErrors:
    @pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
    def test_variances_lie_in_their_brackets(self, tolerance):
        case = hard()
        gaussian = solved(case, tolerance=tolerance, rank=3, block=2)
        own = gaussian.own
        expected = torch.diagonal(case.jacobian @ case.covariance @ case.jacobian.T)
        rounding = 1e-10 * expected
        assert bool((own.variance <= expected + rounding).all())
        assert bool((expected <= own.variance + own.error + rounding).all())
        assert bool((own.error <= 1.1 * tolerance * own.variance).all())
        # The tolerance is used, not surpassed by far.
        assert float(((expected - own.variance) / expected).max()) > 1e-4 * tolerance
        close(gaussian.variance(case.jacobian), own.variance)

    def test_covariances_are_as_good_as_variances(self):
        case = hard()
        rows = rows_elsewhere(50)
        gaussian = solved(case, tolerance=1e-6, rank=3, block=2)
        expected = rows @ case.covariance @ case.jacobian.T
        scale = torch.outer(
            torch.diagonal(rows @ case.covariance @ rows.T),
            torch.diagonal(case.jacobian @ case.covariance @ case.jacobian.T),
        ).sqrt()
        error = ((gaussian.covariance(rows, case.jacobian) - expected).abs() / scale).max()
        assert 1e-12 < float(error) < 1e-6

    @pytest.mark.parametrize("tolerance", [1e-2, 1e-5])
    def test_mean_is_within_its_residual(self, tolerance):
        case = hard()
        gaussian = solved(case, tolerance=tolerance, rank=3)
        error, precision = gaussian.mean - case.mean, torch.linalg.inv(case.covariance)
        share = math.sqrt(float(error @ precision @ error) / float(case.mean @ precision @ case.mean))
        assert 0.01 * gaussian.residual < share <= 1.1 * gaussian.residual <= 1.2 * tolerance

    @pytest.mark.parametrize("shape", [(60, 50), (30, 50)], ids=["many points", "few points"])
    @pytest.mark.parametrize("tolerance", [1.0, 1e-3, 1e-8])
    def test_log_determinant_lies_in_its_bracket(self, shape, tolerance):
        case = hard(*shape)
        # No mean, so that the divergence tells of the covariance alone.
        case = replace(case, slope=torch.zeros_like(case.slope))
        gaussian = solved(case, tolerance=tolerance, rank=4)
        found, expected = gaussian.log_determinant, log_determinant(case)
        assert found.standard_error == 0
        assert found.value - 1e-9 <= expected <= found.value + found.bound + 1e-9
        assert found.bound <= tolerance + 1e-8
        assert gaussian.divergence(case.precision) == pytest.approx(divergence(case, case.precision), abs=tolerance / 2)
        size = gaussian.directions.basis.shape[1]
        assert size <= min(50, shape[0] + 5)
        assert size < 50 or tolerance < 1e-3
        close(gaussian.directions.basis.T @ gaussian.directions.basis, torch.eye(size, dtype=torch.float64))

    def test_too_many_directions_are_replaced_by_probes(self):
        case = hard(base=0.95, scale=10)
        gaussian = solved(case, rank=8, most_directions=30)
        found, expected = gaussian.log_determinant, log_determinant(case)
        assert gaussian.directions.basis.shape[1] == 30
        assert found.bound == 0
        assert 1e-4 < found.standard_error < 0.1 * gaussian.directions.left
        assert abs(found.value - expected) < student.isf(FALSE_ALARM / 2, lanczos.PROBES - 1) * found.standard_error
        for precision in (case.precision, case.precision * 3 + 0.1):
            exact_but_for_the_probes = divergence(case, precision) + (found.value - expected) / 2
            assert gaussian.divergence(precision) == pytest.approx(exact_but_for_the_probes, rel=1e-7)

    def test_probes_are_asked_for_just_what_the_directions_leave(self, monkeypatch):
        def exact(apply, size, generator):
            return float(torch.linalg.slogdet(apply(torch.eye(size, dtype=torch.float64)))[1]), 0.25

        monkeypatch.setattr(krylov_gaussian, "stochastic_log_determinant", exact)
        case = hard(base=0.95, scale=10)
        found = solved(case, rank=8, most_directions=30).log_determinant
        assert found.value == pytest.approx(log_determinant(case), rel=1e-10)
        assert found.standard_error == 0.25

    def test_default_rooms(self):
        assert solver_of(problem(10, 4)).block_size == 128
        assert solver_of(problem(10, 4)).room_for_directions == 2**25
        # A matrix of no rows takes no memory, however long they would be.
        wide = KrylovSolver(DenseRows(torch.zeros(0, 2**20, dtype=torch.float64)), torch.ones(2**20))
        assert wide.block_size == 16
        assert wide.room_for_directions == 128


def test_new_directions_are_found_where_the_candidates_have_none():
    """Zero candidates against axes: every direction that rounding could offer is taken already."""
    basis = torch.eye(6, dtype=torch.float64)[:, :3]
    found = lanczos.complement(torch.zeros(6, 3, dtype=torch.float64), basis, torch.Generator().manual_seed(0))
    both = torch.cat([basis, found], 1)
    close(both.T @ both, torch.eye(6, dtype=torch.float64))


class TestProbes:
    def test_a_diagonal_matrix_is_free_of_error(self):
        values = torch.linspace(1, 9, 30, dtype=torch.float64)
        found, error = stochastic_log_determinant(lambda x: values[:, None] * x, 30, torch.Generator().manual_seed(0))
        assert found == pytest.approx(float(values.log().sum()), rel=1e-8)
        assert error < 1e-7

    def test_any_matrix_within_the_standard_error(self):
        matrix = TestConjugateGradients.matrix([1 + k / 10 for k in range(60)])
        expected = float(torch.linalg.slogdet(matrix)[1])
        bound = student.isf(FALSE_ALARM / 20, lanczos.PROBES - 1)
        for seed in range(10):
            generator = torch.Generator().manual_seed(seed)
            found, error = stochastic_log_determinant(lambda x: matrix @ x, 60, generator)
            assert 0 < error < 0.05 * expected
            assert abs(found - expected) < bound * error

    def test_the_identity_ends_at_once(self):
        calls = []
        found = stochastic_log_determinant(lambda x: calls.append(1) or x, 20, torch.Generator().manual_seed(0))
        assert found == pytest.approx((0, 0), abs=1e-12)
        assert len(calls) == 2


class TestCompact:
    @pytest.mark.parametrize("shape", [(12, 20), (20, 12), (0, 4), (9, 1)], ids=["few", "many", "none", "one weight"])
    @pytest.mark.parametrize("informed", [True, False], ids=["curvature", "slopes only"])
    def test_same_law(self, shape, informed):
        case = problem(*shape)
        curvature = case.curvature if informed else torch.zeros_like(case.curvature)
        gaussian = solver_of(case, tolerance=TIGHT, rank=3).solve(curvature, case.slope)
        compact = gaussian.compact()
        rows = torch.cat([rows_elsewhere(shape[1]), case.jacobian])
        close(compact.mean, gaussian.mean)
        close(compact.variance(rows), gaussian.variance(rows))
        close(compact.covariance(rows, rows), gaussian.covariance(rows, rows))
        close(compact.basis.T @ compact.basis, torch.eye(compact.basis.shape[1], dtype=torch.float64))

    def test_tolerance_bounds_what_is_left_out(self):
        case = hard(60, 80)
        gaussian = solved(case, rank=4)
        whitened = case.jacobian * case.curvature.sqrt()[:, None] / case.precision.sqrt()
        sizes = []
        for tolerance in (10.0, 1e-2, 1e-6):
            compact = gaussian.compact(tolerance)
            close(compact.mean, gaussian.mean, rtol=1e-9)
            across = whitened - whitened @ compact.basis @ compact.basis.T
            assert float(across.square().sum()) <= 1.01 * tolerance
            difference = divergence(case, case.precision) - compact.divergence(case.precision)
            assert -1e-9 < difference < tolerance / 2
            sizes.append(compact.basis.shape[1])
        assert 5 < sizes[0] < sizes[1] < sizes[2] < 62

    def test_without_room_it_says_so(self):
        message = r"7 directions leave out \d\S* nats of information; raise most_directions or the tolerance\."
        with pytest.raises(NotConvergedError, match=message):
            solved(hard(), rank=4, most_directions=7).compact()

    def test_rows_that_repeat_end_early(self):
        """Lanczos vectors run out where all that is left is rounding, and any direction will do."""
        case = problem(4, 30)
        jacobian = torch.cat([case.jacobian] * 5)
        case = replace(problem(20, 30), jacobian=jacobian, precision=case.precision)
        for rank in (0, 1, 4, 20):
            compact = solved(case, rank=rank, tolerance=TIGHT).compact()
            assert compact.basis.shape[1] <= 25
            close(compact.variance(jacobian), torch.diagonal(jacobian @ case.covariance @ jacobian.T))


def test_not_finite_input_and_negative_curvature_are_refused():
    case = problem(10, 6)
    jacobian, slope, negative = case.jacobian.clone(), case.slope.clone(), case.curvature.clone()
    jacobian[5, 1] = slope[5] = float("nan")
    negative[5] = -1
    with pytest.raises(NotPositiveDefiniteError, match="values that are NaN or infinite"):
        solved(replace(case, jacobian=jacobian))
    with pytest.raises(NotPositiveDefiniteError, match="values that are NaN or infinite"):
        solved(replace(case, curvature=negative))
    with pytest.raises(NotPositiveDefiniteError, match="values that are NaN or infinite"):
        solved(replace(case, curvature=negative), rank=0)
    message = "the right-hand side of a linear system holds NaN or infinite values; look at the slopes"
    with pytest.raises(NotFiniteError, match=message):
        solved(replace(case, slope=slope))


def test_rows_in_layers_are_their_matrix():
    generator = torch.Generator().manual_seed(0)
    network = MLP(3, (5, 4), "tanh")
    time, x = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((12,), (12, 3)))
    rows = network.value_and_rows(network.initial(generator), time, x)[1]
    case = problem(*rows.shape)
    layered, dense = (
        KrylovSolver(kind, case.precision, TIGHT, rank=5, block=4) for kind in (rows, DenseRows(rows.dense()))
    )
    found, expected = (solver.solve(case.curvature, case.slope) for solver in (layered, dense))
    close(found.mean, expected.mean)
    for one, other in zip(layered.moments(found), dense.moments(expected), strict=True):
        close(one, other)
    assert found.divergence(case.precision) == pytest.approx(expected.divergence(case.precision), rel=1e-9)
    draws = [gaussian.draw(3, torch.Generator().manual_seed(5)) for gaussian in (found, expected)]
    close(draws[0], draws[1])


@pytest.mark.parametrize(("n", "hidden"), [(6, (6, 6)), (15, (4,))], ids=["few points", "many points"])
def test_fit_is_that_of_the_plain_solver(monkeypatch, n, hidden):
    task = intricate(hidden=hidden, n=n)
    linearised, plain, first = setting(task, task.network.initial(torch.Generator().manual_seed(2)))
    solver = KrylovSolver(linearised.rows, task.weight_prior.precision, rank=8, block=16)
    # This solver has no coordinates to search the mean in; the plain one does without them as well here.
    monkeypatch.setattr(type(plain), "chart", lambda self, gaussian: None)
    expected, expected_info = cavi.fit(task, linearised, plain, first)
    found, info = cavi.fit(task, linearised, solver, first)
    assert info.converged
    assert info.sweeps == expected_info.sweeps
    assert info.elbo == pytest.approx(expected_info.elbo, abs=1e-8)
    assert found.phi.shape == pytest.approx(expected.phi.shape, rel=1e-8)
    assert found.phi.rate == expected.phi.rate
    close(found.theta_mean, expected.theta_mean, rtol=1e-7)
    close(found.m, expected.m, rtol=1e-7)
    close(found.v, expected.v, rtol=1e-7)
