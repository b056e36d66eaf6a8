import math

import pytest

from inference.problems import double
from neuralsurv.inference.optimise.line_search import line_search


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
