import math

import pytest
import torch

from inference.problems import double
from neuralsurv.inference import descent
from neuralsurv.inference.descent import DenseInverseHessian, LimitedInverseHessian, descend


def quadratic(theta):
    """Lowest, with value 1, at (1, 2, …, m); curvatures from 1 to 1000."""
    size = len(theta)
    curvature = torch.logspace(0, 3, size, dtype=torch.float64)
    offset = theta - torch.arange(1, size + 1, dtype=torch.float64)
    return 1 + float((curvature * offset**2).sum()) / 2, curvature * offset


def crease(theta):
    """A valley along a parabolic crease: 8 |x² − y| + (1 − x)² + 1, lowest with value 1 at (1, 1), on the kink."""
    x, y = theta.tolist()
    side = 1.0 if x**2 >= y else -1.0
    return 8 * abs(x**2 - y) + (1 - x) ** 2 + 1, double([16 * side * x - 2 * (1 - x), -8 * side])


@pytest.fixture(params=["matrix", "pairs"])
def either(request, monkeypatch):
    """Run a test with both forms of the inverse Hessian."""
    if request.param == "pairs":
        monkeypatch.setattr(descent, "_LARGEST_DENSE", 0)


class TestDescend:
    @pytest.mark.usefixtures("either")
    @pytest.mark.parametrize("size", [1, 5, 40])
    def test_quadratic(self, size):
        found = descend(quadratic, torch.zeros(size, dtype=torch.float64), tolerance=1e-14, max_iterations=1000)
        assert found.converged
        assert found.value == pytest.approx(1, abs=1e-10)
        assert torch.allclose(found.theta, torch.arange(1, size + 1, dtype=torch.float64), atol=1e-5)

    @pytest.mark.usefixtures("either")
    @pytest.mark.parametrize("begin", [(-1.0, 1.5), (-1.2, 1.0), (3.0, -2.0)])
    def test_goes_on_along_a_crease(self, begin):
        found = descend(crease, double(begin), tolerance=1e-13, max_iterations=5000)
        assert found.converged
        assert found.value == pytest.approx(1, abs=1e-6)
        assert torch.allclose(found.theta, double([1.0, 1.0]), atol=1e-3)

    def test_values_never_rise_and_end_with_the_value(self):
        found = descend(crease, double([-1.0, 1.5]), tolerance=1e-13, max_iterations=5000)
        values = double(found.values)
        assert bool((values[1:] <= values[:-1]).all())
        assert found.values[0] == crease(double([-1.0, 1.5]))[0]
        assert found.values[-1] == found.value == crease(found.theta)[0]

    def test_at_the_limit_it_says_so(self):
        found = descend(quadratic, torch.zeros(40, dtype=torch.float64), tolerance=1e-14, max_iterations=3)
        assert not found.converged
        assert len(found.values) == 4

    def test_a_kink_that_is_not_the_bottom_is_left(self):
        # Straight downhill from (0, 0) leads up: the gradient there is that of one side, the descent is along the kink.
        def ridge(theta):
            x, y = theta.tolist()
            side = 1.0 if x >= 0 else -1.0
            return 100 * abs(x) + 10 - y + y**2 / 2, double([100 * side, y - 1])

        stuck = descend(ridge, double([0.0, 0.0]), tolerance=1e-13, max_iterations=500, off_kinks=False)
        free = descend(ridge, double([0.0, 0.0]), tolerance=1e-13, max_iterations=500)
        assert (stuck.value, stuck.converged) == (10, False)
        assert free.converged
        assert free.value == pytest.approx(9.5, abs=1e-6)

    def test_where_nothing_is_found_and_nothing_tried_it_has_not_converged(self):
        # The gradient is a lie: no step along it goes down.
        def liar(theta):
            return 1 + float(theta.abs().sum()), -torch.ones_like(theta)

        found = descend(liar, double([0.0, 0.0]), tolerance=1e-9, max_iterations=50, off_kinks=False)
        assert not found.converged
        assert found.value == 1

    def test_a_value_that_is_not_finite_ends_it(self):
        def broken(theta):
            return math.nan, torch.full_like(theta, math.nan)

        found = descend(broken, double([1.0]), tolerance=1e-9, max_iterations=50)
        assert not found.converged
        assert math.isnan(found.value)

    def test_what_was_learned_helps_a_second_descent(self):
        begin = torch.zeros(40, dtype=torch.float64)
        first = descend(quadratic, begin, tolerance=1e-12, max_iterations=1000)
        warm = descend(quadratic, begin, tolerance=1e-12, max_iterations=1000, inverse_hessian=first.inverse_hessian)
        assert len(warm.values) < len(first.values) / 2


class TestInverseHessian:
    def test_both_forms_give_the_same_direction(self):
        generator = torch.Generator().manual_seed(0)
        dense, limited = DenseInverseHessian(6), LimitedInverseHessian()
        steps, gradient = (torch.randn(6, generator=generator, dtype=torch.float64) for _ in range(2))
        dense.update(steps, 3 * steps)
        limited.update(steps, 3 * steps)
        assert torch.allclose(dense.direction(gradient), limited.direction(gradient), rtol=1e-12)

    @pytest.mark.parametrize("form", [lambda: DenseInverseHessian(6), LimitedInverseHessian])
    def test_meets_the_secant_condition(self, form):
        generator = torch.Generator().manual_seed(1)
        inverse = form()
        assert inverse.fresh
        for _ in range(4):
            step = torch.randn(6, generator=generator, dtype=torch.float64)
            change = torch.linspace(0.5, 4, 6, dtype=torch.float64) * step
            inverse.update(step, change)
            assert torch.allclose(inverse.direction(change), -step, rtol=1e-10)
        assert not inverse.fresh
