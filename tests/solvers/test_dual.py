"""The dual solver: the cases of every solver, rows in layers, digits, blocks, its compact form, and a whole fit."""

from dataclasses import dataclass, replace

import mpmath
import pytest
import torch

from inference.problems import intricate, setting
from neuralsurv.errors import NotPositiveDefiniteError, StorageError
from neuralsurv.inference.paper import cavi
from neuralsurv.model.network import MLP
from neuralsurv.solvers import rows as rows_module
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.rows import DenseRows, LayeredRows
from solvers.gaussian_cases import GaussianCases, close, covariance, problem, rows_elsewhere


def as_layer(jacobian):
    """Return any rows as those of a layer without inputs, whose biases they are."""
    return LayeredRows(((jacobian[:, :0], jacobian),))


class TestDual(GaussianCases):
    def make(self, jacobian, precision):
        return DualSolver(DenseRows(jacobian), precision)


class TestDualLayered(GaussianCases):
    def make(self, jacobian, precision):
        return DualSolver(as_layer(jacobian), precision)

    # Slow one by one; below, the same noise gives the draws of the matrix.
    test_draws_have_mean_and_covariance = None


def network_rows(points=12, hidden=(5, 4), seed=0):
    """Return the rows of a small network, in layers."""
    generator = torch.Generator().manual_seed(seed)
    network = MLP(3, hidden, "tanh")
    time, x = (torch.randn(*shape, generator=generator, dtype=torch.float64) for shape in ((points,), (points, 3)))
    return network.value_and_rows(network.initial(generator), time, x)[1]


@dataclass(frozen=True)
class FactorsOnly(LayeredRows):
    """Rows that refuse to become a matrix."""

    def dense(self):
        raise AssertionError("the matrix of the rows was formed")


class TestRowsInLayers:
    @pytest.mark.parametrize("equal", [True, False], ids=["one precision", "any precision"])
    def test_same_as_the_matrix(self, equal):
        rows = network_rows()
        points, size = rows.shape
        case = problem(points, size)
        precision = torch.full_like(case.precision, 1.7) if equal else case.precision
        layered, dense = (DualSolver(kind, precision) for kind in (rows, DenseRows(rows.dense())))
        found, expected = (solver.solve(case.curvature, case.slope) for solver in (layered, dense))
        close(found.mean, expected.mean)
        for one, other in zip(layered.moments(found), dense.moments(expected), strict=True):
            close(one, other)
        elsewhere = rows_elsewhere(size)
        close(found.variance(elsewhere), expected.variance(elsewhere))
        assert found.divergence(precision * 2) == pytest.approx(expected.divergence(precision * 2), rel=1e-10)
        draws = [gaussian.draw(3, torch.Generator().manual_seed(5)) for gaussian in (found, expected)]
        close(draws[0], draws[1])

    def test_matrix_is_never_formed(self):
        rows = FactorsOnly(network_rows().layers)
        case = problem(*rows.shape)
        precision = torch.full_like(case.precision, 1.7)
        solver = DualSolver(rows, precision)
        gaussian = solver.solve(case.curvature, case.slope)
        assert bool(torch.isfinite(torch.cat(solver.moments(gaussian))).all())
        assert gaussian.divergence(precision) > 0
        assert gaussian.draw(2, torch.Generator().manual_seed(0)).shape == (2, rows.shape[1])
        assert gaussian.variance(case.jacobian).shape == (rows.shape[0],)
        assert gaussian.in_subspace().basis.shape[0] == rows.shape[1]

    @pytest.mark.parametrize("count", [0, 1, 3])
    def test_products_with_several_vectors(self, count):
        rows = network_rows()
        vectors, values = rows_elsewhere(rows.shape[1], count).T, rows_elsewhere(rows.shape[0], count).T
        for kind in (rows, DenseRows(rows.dense())):
            close(kind.times_each(vectors), rows.dense() @ vectors)
            close(kind.transposed_times_each(values), rows.dense().T @ values)


def test_gram_matrix_is_computed_once_and_in_blocks(monkeypatch):
    calls = []
    whole = LayeredRows.gram

    def counted(self, others, scale):
        calls.append(self.shape[0])
        return whole(self, others, scale)

    rows = network_rows()
    case = problem(*rows.shape)
    expected = DualSolver(rows, case.precision).solve(case.curvature, case.slope)
    monkeypatch.setattr(LayeredRows, "gram", counted)
    monkeypatch.setattr(rows_module, "BLOCK_NUMBERS", 5 * rows.shape[1])
    solver = DualSolver(rows, case.precision)
    for _ in range(3):
        gaussian = solver.solve(case.curvature, case.slope)
        moments = solver.moments(gaussian)
    assert calls == [5, 5, 2]
    close(gaussian.factor, expected.factor)
    for found, other in zip(moments, expected.moments, strict=True):
        close(found, other)
    elsewhere = rows_elsewhere(rows.shape[1], 7)
    close(gaussian.variance(elsewhere), expected.variance(elsewhere))


def test_points_without_curvature_cost_nothing():
    case = problem(40, 60)
    gaussian = DualSolver(DenseRows(case.jacobian), case.precision).solve(case.curvature, case.slope)
    assert gaussian.factor.shape == (30, 30)
    assert bool((case.curvature[gaussian.informed] > 0).all())


@pytest.mark.parametrize("shape", [(6, 9), (12, 5)], ids=["few points", "many points"])
def test_moments_keep_their_digits_over_24_orders_of_curvature(shape):
    """Against 60 digits: neither a well-known point nor one that is hardly informed may lose its variance or mean."""
    points = shape[0]
    case = problem(*shape)
    case = replace(case, curvature=torch.logspace(-12, 12, points, dtype=torch.float64))
    case = replace(case, slope=case.curvature.sqrt() * case.slope)
    with mpmath.workdps(60):
        jacobian = mpmath.matrix(case.jacobian.tolist())
        exact = mpmath.diag(case.precision.tolist()) + jacobian.T * mpmath.diag(case.curvature.tolist()) * jacobian
        covariance = jacobian * mpmath.inverse(exact) * jacobian.T
        expected_mean = [float(value) for value in covariance * mpmath.matrix(case.slope.tolist())]
        expected = [float(covariance[p, p]) for p in range(points)]
    solver = DualSolver(DenseRows(case.jacobian), case.precision)
    mean, variance = solver.moments(solver.solve(case.curvature, case.slope))
    assert variance.tolist() == pytest.approx(expected, rel=1e-8, abs=0)
    assert mean.tolist() == pytest.approx(expected_mean, rel=1e-8, abs=0)


def test_not_finite_rows_and_negative_curvature_are_refused():
    case = problem(10, 30)
    jacobian = case.jacobian.clone()
    jacobian[5, 1] = float("nan")
    # A NaN in one row of seven is in one row and one column of the matrix.
    with pytest.raises(NotPositiveDefiniteError, match="the 7x7 precision matrix holds 13 values that are NaN"):
        DualSolver(DenseRows(jacobian), case.precision).solve(case.curvature, case.slope)
    negative = case.curvature.clone()
    negative[5] = -1
    with pytest.raises(NotPositiveDefiniteError, match="the 7x7 precision matrix holds 13 values that are NaN"):
        DualSolver(DenseRows(case.jacobian), case.precision).solve(negative, case.slope)


class TestCompact:
    @pytest.mark.parametrize(
        "shape", [(5, 12), (12, 5), (7, 7), (0, 4), (9, 1)], ids=["few", "many", "square", "none", "one weight"]
    )
    @pytest.mark.parametrize("informed", [True, False], ids=["curvature", "slopes only"])
    def test_same_law(self, shape, informed):
        case = problem(*shape)
        curvature = case.curvature if informed else torch.zeros_like(case.curvature)
        gaussian = DualSolver(DenseRows(case.jacobian), case.precision).solve(curvature, case.slope)
        compact = gaussian.in_subspace()
        rows = torch.cat([rows_elsewhere(shape[1]), case.jacobian])
        close(compact.mean, gaussian.mean)
        close(compact.variance(rows), gaussian.variance(rows))
        close(covariance(compact, rows, rows), covariance(gaussian, rows, rows))
        for precision in (case.precision, case.precision * 3 + 0.1):
            assert compact.divergence(precision) == pytest.approx(gaussian.divergence(precision), rel=1e-10, abs=1e-12)
        close(compact.basis.T @ compact.basis, torch.eye(compact.basis.shape[1], dtype=torch.float64))
        # No more directions than informed points and the mean.
        assert compact.basis.shape[1] <= min(shape[1], int((curvature > 0).sum()) + 1)

    def test_repeated_rows_take_no_room(self):
        case = problem(8, 30)
        jacobian = torch.cat([case.jacobian] * 3)
        curvature = torch.ones(24, dtype=torch.float64)
        gaussian = DualSolver(DenseRows(jacobian), case.precision).solve(curvature, curvature)
        assert gaussian.in_subspace().basis.shape[1] == 9
        close(gaussian.in_subspace().variance(jacobian), gaussian.variance(jacobian))

    def test_itself_where_memory_is_short(self):
        case = problem(5, 12)
        gaussian = DualSolver(DenseRows(case.jacobian), case.precision).solve(case.curvature, case.slope)
        assert gaussian.compact(memory=3 * 8 * 12 * 5 - 1) is gaussian
        close(gaussian.compact(memory=3 * 8 * 12 * 5).mean, gaussian.mean)


@pytest.mark.parametrize(("n", "hidden"), [(6, (6, 6)), (15, (4,))], ids=["few points", "many points"])
def test_fit_is_that_of_the_plain_solver(n, hidden):
    task = intricate(hidden=hidden, n=n)
    theta = task.network.initial(torch.Generator().manual_seed(2))
    linearised, plain, first = setting(task, theta)
    assert (linearised.rows.shape[0] < linearised.rows.shape[1]) == (n == 6)
    dual = DualSolver(linearised.rows, task.weight_prior.precision)
    expected, expected_info = cavi.sweep_until_converged(task, linearised, plain, first)
    found, info = cavi.sweep_until_converged(task, linearised, dual, first)
    assert info.converged
    assert info.sweeps == expected_info.sweeps
    assert info.elbo == pytest.approx(expected_info.elbo, abs=1e-8)
    assert found.phi.shape == pytest.approx(expected.phi.shape, rel=1e-9)
    assert found.phi.rate == expected.phi.rate
    close(found.theta_mean, expected.theta_mean, rtol=1e-8)
    close(found.m, expected.m, rtol=1e-8)
    close(found.v, expected.v, rtol=1e-8)


def test_only_its_compact_form_can_be_stored():
    rows, ones = DenseRows(torch.eye(3).double()), torch.ones(3).double()
    gaussian = DualSolver(rows, ones).solve(ones, ones)
    with pytest.raises(StorageError, match="a Gaussian in its dual form cannot be saved; it is too large"):
        gaussian.describe()
    assert set(gaussian.in_subspace().describe().arrays) == {"basis", "precision", "inner_mean", "inner_factor"}
