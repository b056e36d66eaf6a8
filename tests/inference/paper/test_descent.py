import math

import pytest
import torch

from inference.problems import double
from neuralsurv.inference.paper import descent
from neuralsurv.inference.paper.descent import (
    DenseInverseHessian,
    LimitedInverseHessian,
    descend,
    descend_together,
    line_search,
)


def quadratic(theta):
    """Lowest, with value 1, at (1, 2, …, m); curvatures from 1 to 1000."""
    size = len(theta)
    curvature = torch.logspace(0, 3, size, dtype=torch.float64)
    offset = theta - torch.arange(1, size + 1, dtype=torch.float64)
    return 1 + float((curvature * offset**2).sum()) / 2, lambda: curvature * offset


def crease(theta):
    """A valley along a parabolic crease: 8 |x² − y| + (1 − x)² + 1, lowest with value 1 at (1, 1), on the kink."""
    x, y = theta.tolist()
    side = 1.0 if x**2 >= y else -1.0
    return 8 * abs(x**2 - y) + (1 - x) ** 2 + 1, lambda: double([16 * side * x - 2 * (1 - x), -8 * side])


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
            return 100 * abs(x) + 10 - y + y**2 / 2, lambda: double([100 * side, y - 1])

        stuck = descend(ridge, double([0.0, 0.0]), tolerance=1e-13, max_iterations=500, off_kinks=False)
        free = descend(ridge, double([0.0, 0.0]), tolerance=1e-13, max_iterations=500)
        assert (stuck.value, stuck.converged) == (10, False)
        assert free.converged
        assert free.value == pytest.approx(9.5, abs=1e-6)

    def test_where_nothing_is_found_and_nothing_tried_it_has_not_converged(self):
        # The gradient is a lie: no step along it goes down.
        def liar(theta):
            return 1 + float(theta.abs().sum()), lambda: -torch.ones_like(theta)

        found = descend(liar, double([0.0, 0.0]), tolerance=1e-9, max_iterations=50, off_kinks=False)
        assert not found.converged
        assert found.value == 1

    def test_a_value_that_is_not_finite_ends_it(self):
        def broken(theta):
            return math.nan, lambda: torch.full_like(theta, math.nan)

        found = descend(broken, double([1.0]), tolerance=1e-9, max_iterations=50)
        assert not found.converged
        assert math.isnan(found.value)

    def test_what_was_learned_helps_a_second_descent(self):
        begin = torch.zeros(40, dtype=torch.float64)
        first = descend(quadratic, begin, tolerance=1e-12, max_iterations=1000)
        warm = descend(quadratic, begin, tolerance=1e-12, max_iterations=1000, inverse_hessians=[first.inverse_hessian])
        assert len(warm.values) < len(first.values) / 2


class TestDescendTogether:
    STARTS = tuple(map(double, [(-1.0, 1.5), (3.0, -2.0), (1.0, 1.0), (-1.2, 1.0)]))

    def run(self, functions, **options):
        seen = [[] for _ in self.STARTS]
        found = descend_together(
            functions,
            self.STARTS,
            inverse_hessians=[None] * len(self.STARTS),
            callbacks=[values.append for values in seen],
            **options,
        )
        return found, seen

    @pytest.mark.parametrize("limit", [1, 20, 5000])
    def test_each_goes_where_it_would_go_alone(self, limit):
        options = {"tolerance": 1e-13, "max_iterations": limit}
        found, seen = self.run(lambda places: [crease(place) for place in places], **options)
        for start, one, values in zip(self.STARTS, found, seen, strict=True):
            alone = descend(crease, start, **options)
            assert torch.equal(one.theta, alone.theta)
            assert (one.value, one.values, one.converged) == (alone.value, alone.values, alone.converged)
            # Iterations of a descent from beside a kink are not reported one by one.
            assert set(values) <= set(one.values)
            assert len(values) >= min(limit, len(one.values) - 1) / 2

    def test_one_call_serves_all_that_are_on_their_way(self):
        sizes = []

        def functions(places):
            sizes.append(len(places))
            return [crease(place) for place in places]

        self.run(functions, tolerance=1e-13, max_iterations=5000)
        alone = []
        for start in self.STARTS:
            count = []
            descend(
                lambda place, count=count: count.append(0) or crease(place), start, tolerance=1e-13, max_iterations=5000
            )
            alone.append(len(count))
        assert len(set(alone)) > 1
        assert sizes == [sum(count > round_ for count in alone) for round_ in range(max(alone))]


class TestCost:
    """Most of the time of a descent goes into places that are tried; these counts are what the speed rests on."""

    def counted(self, function, begin, **options):
        counts = {"values": 0, "gradients": 0}

        def counting(theta):
            value, differentiate = function(theta)
            counts["values"] += 1

            def gradient():
                counts["gradients"] += 1
                return differentiate()

            return value, gradient

        return descend(counting, begin, **options), counts

    def test_few_places_are_tried_where_full_steps_are_right(self):
        found, counts = self.counted(
            quadratic, torch.zeros(40, dtype=torch.float64), tolerance=1e-12, max_iterations=1000
        )
        assert counts["values"] < 1.5 * len(found.values)


def searched(function, value, slope, length):
    """Search along a line from 0, where `value` and `slope` are given, and return where that ends."""
    search = line_search(double([0.0]), value, slope, double([1.0]), length)
    answer = None
    while True:
        try:
            place = search.send(answer)
        except StopIteration as end:
            return end.value
        answer = function(place)


def test_no_gradient_where_the_value_is_too_high():
    tried, asked = [], []

    def wall(theta):
        place = float(theta[0])
        tried.append(place)

        def gradient():
            asked.append(place)
            return 2 * (theta - 2)

        return (math.inf if place > 1 else (place - 2) ** 2), gradient

    searched(wall, 4.0, -4.0, 8.0)
    assert tried == [8.0, 4.0, 2.0, 1.0]
    assert asked == [1.0]


@pytest.mark.parametrize("length", [0.05, 1.0, 30.0])
def test_the_lowest_point_of_a_parabola_is_found_at_once(length):
    # f(t) = (t − 3)² along a line: too long a step is cut to the vertex, unless that is less than a tenth of it.
    def parabola(theta):
        return float((theta[0] - 3) ** 2), lambda: 2 * (theta - 3)

    place, _, _, reached = searched(parabola, 9.0, -6.0, length)
    assert float(place) == reached
    assert 0 < reached < 6
    if length == 30.0:
        assert reached == pytest.approx(3)


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
