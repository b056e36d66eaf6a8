"""Rows reduced once against the plain solver on all rows, for many scales of the prior."""

import itertools

import pytest
import torch
from torch import Tensor

from neuralsurv.solvers.grouped import GroupedSolver, grouped_solver
from neuralsurv.solvers.lowrank import LowRankSolver
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows
from solvers.gaussian_cases import GaussianCases, Problem, close, problem, rows_elsewhere

LEADING = 3
# Three leading weights with scales of their own, then one scale over the whole tail.
SCALES = {"one": (1.0, 1.0, 1.0, 1.0), "unequal": (0.3, 2.0, 1.1, 0.05), "large tail": (1.0, 0.1, 5.0, 20.0)}
every_scale = pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES)


def multipliers(scales: tuple[float, ...], weights: int) -> Tensor:
    *leading, tail = scales
    return torch.tensor([*leading, *[tail] * (weights - len(leading))], dtype=torch.float64)


def reduce(case: Problem, *, tolerance: float = 0.0, most: int = 1000, leading: int = LEADING) -> GroupedSolver:
    parts = [(DenseRows(case.jacobian[:, :leading]), True), (DenseRows(case.jacobian[:, leading:]), False)]
    importance = torch.linspace(0.5, 2, len(case.jacobian), dtype=torch.float64)
    return grouped_solver(parts, case.precision, importance, tolerance=tolerance, most=most)


class TestAtAnyScale(GaussianCases):
    """Everything a solver owes, where the rows were reduced for precisions that are the scales apart."""

    def make(self, jacobian: Tensor, precision: Tensor) -> LowRankSolver:
        weights = len(precision)
        scale = multipliers((0.5, 1.5, 0.8, 2.5)[-min(4, weights) :], weights)
        leading = min(LEADING, weights - 1)
        parts = [(DenseRows(jacobian[:, :leading]), True), (DenseRows(jacobian[:, leading:]), False)]
        importance = jacobian.new_ones(len(jacobian))
        unit = precision * scale**2
        return grouped_solver(parts, unit, importance, tolerance=0.0, most=1000).at(scale)


class TestTwoReducedParts(GaussianCases):
    """Weights that are kept lie between two parts that are reduced, each with a scale of its own."""

    def make(self, jacobian: Tensor, precision: Tensor) -> LowRankSolver:
        weights = len(precision)
        cut = [0, weights // 3, weights // 2, weights]
        scale = torch.cat(
            [
                torch.full((cut[1],), 0.4, dtype=torch.float64),
                torch.linspace(0.5, 2, cut[2] - cut[1], dtype=torch.float64),
                torch.full((cut[3] - cut[2],), 2.5, dtype=torch.float64),
            ]
        )
        slices = [slice(*ends) for ends in itertools.pairwise(cut) if ends[1] > ends[0]]
        parts = [(DenseRows(jacobian[:, part]), part.start == cut[1] and part.stop == cut[2]) for part in slices]
        importance = jacobian.new_ones(len(jacobian))
        return grouped_solver(parts, precision * scale**2, importance, tolerance=0.0, most=1000).at(scale)


class TestWithoutTail(GaussianCases):
    """All weights are kept as they are."""

    def make(self, jacobian: Tensor, precision: Tensor) -> LowRankSolver:
        scale = torch.linspace(0.5, 2, len(precision), dtype=torch.float64)
        importance = jacobian.new_ones(len(jacobian))
        parts = [(DenseRows(jacobian), True)]
        return grouped_solver(parts, precision * scale**2, importance, tolerance=0.0, most=1000).at(scale)


@every_scale
@pytest.mark.parametrize("shape", [(40, 9), (8, 14)], ids=["many points", "few points"])
def test_one_reduction_serves_every_scale(shape, scales):
    case = problem(*shape)
    scale = multipliers(scales, shape[1])
    solver = reduce(case).at(scale)
    gaussian = solver.solve(case.curvature, case.slope)
    plain_solver = PrimalSolver(DenseRows(case.jacobian), case.precision / scale**2)
    plain = plain_solver.solve(case.curvature, case.slope)
    close(gaussian.mean, plain.mean, rtol=1e-9)
    close(gaussian.variance(case.jacobian), plain.variance(case.jacobian), rtol=1e-9)
    rows = rows_elsewhere(shape[1])
    close(gaussian.variance(rows), plain.variance(rows), rtol=1e-9)
    for found, expected in zip(solver.moments(gaussian), plain_solver.moments(plain), strict=True):
        close(found, expected, rtol=1e-9)
    precision = case.precision / scale**2
    assert gaussian.divergence(precision) == pytest.approx(plain.divergence(precision), rel=1e-9)
    assert gaussian.divergence(solver.precision) == pytest.approx(plain.divergence(precision), rel=1e-9)


@every_scale
@pytest.mark.parametrize("most", [0, 1, 4])
def test_what_is_cut_off_stays_in_the_variance(scales, most):
    case = problem(30, 12)
    scale = multipliers(scales, 12)
    solver = reduce(case, most=most).at(scale)
    assert solver.rank == LEADING + most
    # Without a word from the data every point has the variance of its prior, in the basis or across it.
    zero = torch.zeros_like(case.curvature)
    prior = (case.jacobian**2 * scale**2 / case.precision).sum(1)
    close(solver.moments(solver.solve(zero, zero))[1], prior, rtol=1e-9)
    gaussian = solver.solve(case.curvature, case.slope)
    close(solver.moments(gaussian)[1], gaussian.variance(case.jacobian), rtol=1e-9)


@pytest.mark.parametrize("tolerance", [10.0, 1.0, 0.1])
def test_information_given_up_at_scale_one_is_within_the_tolerance_and_scales_with_the_tail(tolerance):
    case = problem(30, 12)
    reduced = reduce(case, tolerance=tolerance)
    importance = torch.linspace(0.5, 2, 30, dtype=torch.float64)
    at_one = reduced.at(torch.ones(12, dtype=torch.float64))
    whitened = case.jacobian / case.precision.sqrt()
    across = whitened - whitened @ reduced.basis @ reduced.basis.T
    lost = float(importance @ across.square().sum(1))
    # Where all directions are kept, what is left of the information is rounding.
    rounding = 1e-12 * float(importance @ whitened.square().sum(1))
    assert 0 < lost <= tolerance
    assert at_one.lost_information(importance) == pytest.approx(lost, rel=1e-8, abs=rounding)
    wide = reduced.at(multipliers((9.0, 9.0, 9.0, 3.0), 12))
    assert wide.lost_information(importance) == pytest.approx(9 * lost, rel=1e-8, abs=rounding)


def test_more_is_kept_where_less_may_be_lost():
    case = problem(30, 12)
    ranks = [reduce(case, tolerance=tolerance).basis.shape[1] for tolerance in (100.0, 3.0, 0.1, 0.0)]
    assert ranks == sorted(ranks)
    assert LEADING <= ranks[0] < ranks[-1] == 12


def test_directions_do_not_mix_the_leading_weights_with_the_tail():
    reduced = reduce(problem(30, 12), most=4)
    identity = torch.eye(LEADING, dtype=torch.float64)
    assert torch.equal(reduced.basis[:LEADING, :LEADING], identity)
    assert not bool(reduced.basis[:LEADING, LEADING:].any())
    assert not bool(reduced.basis[LEADING:, :LEADING].any())
    product = reduced.basis.T @ reduced.basis
    close(product, torch.eye(LEADING + 4, dtype=torch.float64), rtol=1e-10)
