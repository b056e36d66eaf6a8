"""The plain solver: the cases of every solver, its messages, and its blocks."""

import pytest
import torch

from neuralsurv.errors import NotFiniteError, NotPositiveDefiniteError
from neuralsurv.solvers import rows as rows_module
from neuralsurv.solvers.primal import PrimalSolver, cholesky, eigenvectors
from neuralsurv.solvers.rows import DenseRows
from solvers.gaussian_cases import GaussianCases, problem, rows_elsewhere


class TestPrimal(GaussianCases):
    def make(self, jacobian, precision):
        return PrimalSolver(DenseRows(jacobian), precision)

    def test_the_factor_is_that_of_the_precision(self):
        case = problem(40, 6)
        found = torch.cholesky_inverse(self.solve(case).factor)
        torch.testing.assert_close(found, case.covariance, rtol=1e-11, atol=1e-13)


def test_cholesky_gives_the_lower_factor():
    root = torch.tensor([[2.0, 0.0], [1.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(cholesky(root @ root.T), root, rtol=1e-14, atol=0)


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_not_finite_matrix_is_named(bad):
    matrix = torch.eye(3, dtype=torch.float64)
    matrix[2, 1] = matrix[1, 2] = bad
    message = r"the 3x3 precision matrix holds 2 values that are NaN or infinite; look for extreme covariates, weights"
    with pytest.raises(NotPositiveDefiniteError, match=message):
        cholesky(matrix)


def test_indefinite_matrix_is_named():
    matrix = torch.diag(torch.tensor([4.0, -2.0, 1.0], dtype=torch.float64))
    message = (
        r"the 3x3 precision matrix is not positive definite to working precision: "
        r"the leading minor of order 2 fails\. Its diagonal runs from -2 to 4; rescale covariates or weights, or raise"
    )
    with pytest.raises(NotPositiveDefiniteError, match=message):
        cholesky(matrix)


def test_eigenvectors_that_are_not_found_are_named():
    matrix = torch.full((3, 3), float("nan"), dtype=torch.float64)
    message = r"the eigenvectors of a 3x3 matrix of the linearised network were not found; 9 of its values"
    with pytest.raises(NotFiniteError, match=message):
        eigenvectors(matrix)


def test_singular_matrix_gets_no_jitter():
    with pytest.raises(NotPositiveDefiniteError, match="the leading minor of order 2 fails"):
        cholesky(torch.ones(2, 2, dtype=torch.float64))


def test_not_finite_jacobian_and_negative_curvature_are_refused():
    case = problem(10, 3)
    jacobian = case.jacobian.clone()
    jacobian[4, 1] = float("nan")
    with pytest.raises(NotPositiveDefiniteError, match="holds 5 values that are NaN or infinite"):
        PrimalSolver(DenseRows(jacobian), case.precision).solve(case.curvature + 1, case.slope)
    with pytest.raises(NotPositiveDefiniteError, match="NaN or infinite"):
        PrimalSolver(DenseRows(case.jacobian), case.precision).solve(-case.curvature - 1, case.slope)


@pytest.mark.parametrize("numbers", [1, 12, 20, 10_000])
def test_blocks_change_nothing(monkeypatch, numbers):
    """Blocks of one row, of two and of three rows (the last one short), and one block."""
    case = problem(10, 6)
    rows = rows_elsewhere(6, count=7)
    whole = PrimalSolver(DenseRows(case.jacobian), case.precision).solve(case.curvature, case.slope)
    expected = whole.variance(rows)
    monkeypatch.setattr(rows_module, "BLOCK_NUMBERS", numbers)
    cut = PrimalSolver(DenseRows(case.jacobian), case.precision).solve(case.curvature, case.slope)
    torch.testing.assert_close(cut.factor, whole.factor, rtol=1e-13, atol=1e-14)
    torch.testing.assert_close(cut.mean, whole.mean, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(cut.variance(rows), expected, rtol=1e-12, atol=0)
