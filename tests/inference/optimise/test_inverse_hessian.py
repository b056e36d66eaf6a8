import pytest
import torch

from neuralsurv.inference.optimise.inverse_hessian import DenseInverseHessian, LimitedInverseHessian


def test_matrix_is_updated_by_the_formula_of_bfgs():
    generator = torch.Generator().manual_seed(3)
    inverse = DenseInverseHessian(5)
    expected = None
    for _ in range(4):
        step = torch.randn(5, generator=generator, dtype=torch.float64)
        change = torch.linspace(0.5, 4, 5, dtype=torch.float64) * step
        if expected is None:
            expected = torch.eye(5, dtype=torch.float64) * float(step @ change) / float(change @ change)
        left = torch.eye(5, dtype=torch.float64) - torch.outer(step, change) / float(step @ change)
        expected = left @ expected @ left.T + torch.outer(step, step) / float(step @ change)
        inverse.update(step, change)
    columns = [-inverse.direction(unit) for unit in torch.eye(5, dtype=torch.float64)]
    torch.testing.assert_close(torch.stack(columns, 1), expected, rtol=1e-12, atol=1e-12)


def test_both_forms_give_the_same_direction():
    generator = torch.Generator().manual_seed(0)
    dense, limited = DenseInverseHessian(6), LimitedInverseHessian()
    steps, gradient = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    dense.update(steps, 3 * steps)
    limited.update(steps, 3 * steps)
    assert torch.allclose(dense.direction(gradient), limited.direction(gradient), rtol=1e-12)


@pytest.mark.parametrize("form", [lambda: DenseInverseHessian(6), LimitedInverseHessian])
def test_meets_the_secant_condition(form):
    generator = torch.Generator().manual_seed(1)
    inverse = form()
    assert inverse.fresh
    for _ in range(4):
        step = torch.randn(6, generator=generator, dtype=torch.float64)
        change = torch.linspace(0.5, 4, 6, dtype=torch.float64) * step
        inverse.update(step, change)
        assert torch.allclose(inverse.direction(change), -step, rtol=1e-10)
    assert not inverse.fresh


def test_a_metric_takes_the_place_of_the_scaled_identity():
    generator = torch.Generator().manual_seed(2)
    spread = torch.linspace(0.5, 4, 6, dtype=torch.float64)
    inverse = LimitedInverseHessian(pairs=2, metric=lambda vector: spread * vector)
    gradient, step = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
    assert torch.equal(inverse.direction(gradient), -spread * gradient)
    change = 3 * step
    inverse.update(step, change)
    left = torch.eye(6, dtype=torch.float64) - torch.outer(step, change) / float(step @ change)
    dense = left @ torch.diag(spread) @ left.T + torch.outer(step, step) / float(step @ change)
    torch.testing.assert_close(inverse.direction(gradient), -(dense @ gradient))
