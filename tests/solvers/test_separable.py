"""Products of features and functions of time against the matrix of all points written out."""

import itertools
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from neuralsurv.solvers import separable
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows
from neuralsurv.solvers.separable import SeparableScales, SeparableSolver, SeparableTerm, separable_scales
from neuralsurv.solvers.subspace import SubspaceGaussian
from solvers.gaussian_cases import GaussianCases, close, rows_elsewhere

# Sizes of terms in the order of their weights, "t" for columns of time alone, and the function of time of each.
LAYOUTS = {
    "one block": [(4, 0)],
    "two functions of time": [(3, 0), (2, 1)],
    "one function twice, apart": [(3, 0), (2, 1), (4, 0)],
    "time between": [(3, 0), ("t", 2), (2, 1), (4, 0), ("t", 1)],
    "time alone": [("t", 3)],
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
# With 3 rows most terms have more features than there are rows.
every_count = pytest.mark.parametrize("count", [3, 30], ids=["few rows", "many rows"])


class Case:
    """Terms, and the columns of their points written out, one point at a time."""

    def __init__(self, layout: list[tuple[int | str, int]], count: int) -> None:
        generator = torch.Generator().manual_seed(5)

        def normal(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=generator, dtype=torch.float64)

        # Rows with no point, with one and with many, not in order.
        points = 4 * count
        self.row = torch.randint(count, (points,), generator=generator)
        functions = normal(2, points)
        self.terms, parts = [], []
        self.places: list[tuple[int, int]] = []
        start = 0
        for size, which in layout:
            if size == "t":
                columns = normal(points, which)
                self.terms.append(SeparableTerm(None, columns))
                parts.append(columns)
            else:
                features = normal(count, int(size))
                self.terms.append(SeparableTerm(features, functions[which].clone()))
                parts.append(torch.stack([functions[which, p] * features[self.row[p]] for p in range(points)]))
            self.places.append((start, start + parts[-1].shape[1]))
            start = self.places[-1][1]
        self.jacobian = torch.cat(parts, 1)
        self.unit = (normal(start) / 2).exp()
        self.curvature, self.slope = normal(points).exp(), normal(points)
        self.curvature[::4] = 0
        # One scale for each term.
        self.scale = torch.cat([normal(1).exp().expand(stop - begin) for begin, stop in self.places])
        if not any(size == "t" for size, _ in layout):
            self.add_bias()

    def add_bias(self) -> None:
        """Every model has a bias, a column of time alone."""
        points, size = self.jacobian.shape
        one = torch.ones(points, 1, dtype=torch.float64)
        self.terms.append(SeparableTerm(None, one))
        self.jacobian = torch.cat([self.jacobian, one], 1)
        self.unit, self.scale = torch.cat([self.unit, 0.3 * one[0]]), torch.cat([self.scale, one[0]])
        self.places.append((size, size + 1))

    @property
    def scales(self) -> SeparableScales:
        return separable_scales(self.row, self.terms, self.unit)

    @property
    def solver(self) -> SeparableSolver:
        return self.scales.at(self.scale)


@every_layout
@every_count
def test_products_are_those_of_the_dense_matrix(layout, count):
    case = Case(layout, count)
    solver = case.solver
    rows, size = solver.rows, solver.rank
    precision = case.unit / case.scale**2
    close(solver.precision, precision)
    # The rows in the basis, whitened: the matrix that no method writes out.
    dense = case.jacobian / precision.sqrt() @ solver.basis
    generator = torch.Generator().manual_seed(8)
    vector = torch.randn(size, generator=generator, dtype=torch.float64)
    close(rows.times(vector), dense @ vector)
    several = torch.stack([vector, 2 * vector, vector.flip(0)], 1)
    close(rows.times_each(several), dense @ several)
    close(rows.transposed_times(case.slope), dense.T @ case.slope)
    close(rows.gram(case.curvature).tril(), (dense.T @ (case.curvature[:, None] * dense)).tril())
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    covariance = root @ root.T
    close(rows.variances(covariance), torch.diagonal(dense @ covariance @ dense.T))
    factor = torch.linalg.cholesky(covariance + torch.eye(size, dtype=torch.float64))
    close(rows.variances_by_factor(factor), rows.variances(torch.cholesky_inverse(factor)))


@every_layout
@every_count
def test_the_basis_is_orthonormal_and_holds_all_rows(layout, count):
    case = Case(layout, count)
    basis = case.solver.basis
    close(basis.T @ basis, torch.eye(basis.shape[1], dtype=torch.float64))
    whitened = case.jacobian / (case.unit / case.scale**2).sqrt()
    close(whitened @ basis @ basis.T, whitened)
    assert case.solver.lost_information(case.curvature) == pytest.approx(0, abs=1e-12)
    # Of a term with more features than rows, as many directions as rows are kept.
    kept = sum(
        stop - start if term.features is None else min(stop - start, count)
        for term, (start, stop) in zip(case.terms, case.places, strict=True)
    )
    assert case.scales.rank == case.solver.rank == kept


@every_layout
@every_count
def test_the_gaussian_is_that_of_the_plain_solver(layout, count):
    case = Case(layout, count)
    solver, precision = case.solver, case.unit / case.scale**2
    found = solver.solve(case.curvature, case.slope)
    twin_solver = PrimalSolver(DenseRows(case.jacobian), precision)
    twin = twin_solver.solve(case.curvature, case.slope)
    close(found.mean, twin.mean, rtol=1e-9)
    for rows in (case.jacobian, rows_elsewhere(len(precision))):
        close(found.variance(rows), twin.variance(rows), rtol=1e-9)
    for one, other in zip(solver.moments(found), twin_solver.moments(twin), strict=True):
        close(one, other, rtol=1e-9)
    assert found.divergence(precision) == pytest.approx(twin.divergence(precision), rel=1e-9)
    assert found.inner_trace == pytest.approx(float(found.inner_covariance.diagonal().sum()), rel=1e-9)
    assert type(found.compact(0)) is SubspaceGaussian, "which holds no variances of points"


@every_layout
@every_count
def test_chosen_columns_are_those_of_the_dense_matrix(layout, count):
    rows = Case(layout, count).scales.rows
    identity = torch.eye(rows.size, dtype=torch.float64)
    dense = torch.stack([rows.times(column) for column in identity], 1)
    weight = torch.linspace(-1, 2, len(dense), dtype=torch.float64)
    close(rows.gram_diagonal(weight), (dense.square() * weight[:, None]).sum(0))
    close(rows.squared_norms(weight[: rows.size]), dense.square() @ weight[: rows.size])
    which = (torch.arange(rows.size) % 3 != 1) | (torch.arange(rows.size) >= rows.first)
    some = rows.chosen(which)
    close(torch.stack([some.times(column) for column in identity[which][:, which]], 1), dense[:, which])


@every_layout
@every_count
@pytest.mark.parametrize("tolerance", [0.0, 5.0, 1e9])
def test_without_some_directions_the_covariance_is_that_of_the_others_and_the_prior(layout, count, tolerance):
    case = Case(layout, count)
    whole = case.solver
    thinned = whole.thinned(case.curvature, tolerance)
    dropped = torch.ones(whole.rank, dtype=torch.bool)
    dropped[thinned.kept] = False
    identity = torch.eye(whole.rank, dtype=torch.float64)
    dense = torch.stack([whole.times(column) for column in identity], 1)
    information = (dense.square() * case.curvature[:, None]).sum(0)
    assert not bool(dropped[whole.rows.first :].any()), "columns of time alone are always kept"
    assert float(information[dropped].sum()) <= tolerance
    if tolerance == 1e9:
        assert int(dropped.sum()) == whole.rows.first
    # No directions of less information are kept.
    most = float(information[dropped].max()) if bool(dropped.any()) else 0.0
    assert bool((information[: whole.rows.first][~dropped[: whole.rows.first]] >= most).all())
    found = thinned.solve(case.curvature, case.slope)
    matrix = dense.T @ (case.curvature[:, None] * dense)
    matrix[dropped] = 0
    matrix[:, dropped] = 0
    covariance = torch.linalg.inv(matrix + identity)
    close(found.inner_covariance, covariance, rtol=1e-8)
    close(thinned.moments(found)[1], torch.diagonal(dense @ covariance @ dense.T), rtol=1e-8)
    assert found.inner_trace == pytest.approx(float(covariance.diagonal().sum()), rel=1e-9)
    close(found.inner_mean[thinned.kept], (covariance @ (dense.T @ case.slope))[thinned.kept], rtol=1e-8)
    lost = float(case.curvature @ whole.remainder + information[dropped].sum())
    assert thinned.lost_information(case.curvature) == pytest.approx(lost, rel=1e-9, abs=1e-12)


@every_layout
@every_count
def test_steps_of_the_mean_lead_to_that_of_all_directions(layout, count):
    """With slopes of a quadratic log-likelihood the mean is that of the plain solver, whatever was left out."""
    case = Case(layout, count)
    solver = case.solver
    curvature = case.curvature / 50
    wanted = solver.solve(curvature, case.slope)
    thinned = solver.thinned(curvature, 0.5)
    found = thinned.solve(curvature, case.slope)
    for _ in range(60):
        found = solver.moved(found, case.slope - curvature * thinned.moments(found)[0])
    close(found.inner_mean, wanted.inner_mean, rtol=1e-7)
    # The whole solver is there in one step.
    far = replace(wanted, inner_mean=wanted.inner_mean + 1)
    near = solver.moved(far, case.slope - curvature * solver.moments(far)[0])
    close(near.inner_mean, wanted.inner_mean, rtol=1e-8)


@every_layout
@every_count
def test_directions_of_neighbouring_weights_are_within_them_and_complete(layout, count):
    case = Case(layout, count)
    scales, every = case.scales, []
    for start, stop in case.places:
        directions = scales.directions(start, stop)
        outside = torch.ones(len(case.unit), dtype=torch.bool)
        outside[start:stop] = False
        assert not bool(scales.basis[outside][:, directions].any())
        every += directions.tolist()
    assert sorted(every) == list(range(scales.rank))
    # A group may have several terms.
    for first, last in itertools.pairwise(range(len(case.places))):
        both = scales.directions(case.places[first][0], case.places[last][1]).tolist()
        parts = [scales.directions(*case.places[k]).tolist() for k in (first, last)]
        assert sorted(both) == sorted(parts[0] + parts[1])


def test_terms_with_one_function_of_time_are_joined():
    rows = Case(LAYOUTS["one function twice, apart"], 30).solver.rows
    assert [block.shape[1] for block in rows.blocks] == [7, 2]


def test_another_scale_leaves_the_first_solver_alone():
    case = Case(LAYOUTS["time between"], 30)
    scales = case.scales
    one = scales.at(case.scale)
    before = one.solve(case.curvature, case.slope).mean.clone()
    scales.at(3 * case.scale).solve(case.curvature, case.slope)
    assert torch.equal(one.solve(case.curvature, case.slope).mean, before)


class TestSeparable(GaussianCases):
    """All that a solver owes: every point is a row of its own and time is constant."""

    def make(self, jacobian: Tensor, precision: Tensor) -> SeparableSolver:
        points, weights = jacobian.shape
        one = torch.ones(points, dtype=torch.float64)
        half = weights // 2
        terms = [
            SeparableTerm(jacobian[:, :half] / 2, 2 * one),
            SeparableTerm(None, jacobian[:, half:]),
        ][half == 0 :]
        return separable_scales(torch.arange(points), terms, precision).at(torch.ones(weights, dtype=torch.float64))


def test_what_lies_across_the_directions_that_are_kept_has_its_prior_variance(monkeypatch):
    monkeypatch.setattr(separable, "_MOST_DIRECTIONS", 3)
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(30, 8, generator=generator, dtype=torch.float64)
    row, factor = torch.arange(30).repeat_interleave(2), torch.rand(60, generator=generator, dtype=torch.float64)
    bias = SeparableTerm(None, torch.ones(60, 1, dtype=torch.float64))
    unit = torch.ones(9, dtype=torch.float64)
    scales = separable_scales(row, [SeparableTerm(features, factor), bias], unit)
    assert scales.rank == 4
    multipliers = torch.cat([torch.full((8,), 1.5), torch.ones(1)]).double()
    solver = scales.at(multipliers)
    # Without data every point has its prior variance, inside the directions and across them.
    nothing = solver.solve(torch.zeros(60, dtype=torch.float64), torch.zeros(60, dtype=torch.float64))
    expected = 1.5**2 * factor.square() * features.square().sum(1)[row] + 1
    close(solver.moments(nothing)[1], expected)
    curvature = torch.rand(60, generator=generator, dtype=torch.float64)
    basis = scales.basis[:8, scales.owner < 8]
    across = features - features @ basis @ basis.T
    lost = (curvature * 1.5**2 * factor.square() * across.square().sum(1)[row]).sum()
    assert solver.lost_information(curvature) == pytest.approx(float(lost), rel=1e-9)
