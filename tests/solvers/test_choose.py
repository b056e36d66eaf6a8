import pytest

from neuralsurv.solvers.choose import SOLVERS, choose, costs

PLENTY = 64 * 2**30


class TestChoose:
    @pytest.mark.parametrize(
        ("points", "weights", "expected"),
        [
            (8_000, 20, "primal"),  # few weights: nothing to gain
            (8_000, 561, "low-rank"),  # the paper's network on 80 rows
            (1_600_000, 500, "low-rank"),  # many rows
            (8_500, 1_000_000, "low-rank"),  # many weights
            (100, 2_000_000, "dual"),  # a handful of points: nothing to reduce
        ],
    )
    def test_cheapest(self, points, weights, expected):
        found = choose(points, weights, PLENTY)
        assert found.solver == expected
        operations = {cost.solver: cost.operations for cost in costs(points, weights)}
        if weights > 64:
            assert operations[expected] == min(operations.values())

    def test_says_why_with_figures(self):
        reason = choose(8_000, 561, PLENTY).reason
        assert reason.startswith("cheapest for 8000 points and 561 weights: low-rank ")
        for name in SOLVERS:
            assert name in reason

    def test_what_does_not_fit_is_not_chosen(self):
        memory = {cost.solver: cost.memory for cost in costs(10**6, 10**6)}
        assert choose(10**6, 10**6, PLENTY).solver == "low-rank"
        # With few points the matrix of the dual is the smaller one.
        memory = {cost.solver: cost.memory for cost in costs(200, 10**6)}
        assert memory["dual"] < memory["low-rank"]
        assert choose(200, 10**6, memory["dual"]).solver == "dual"

    def test_when_nothing_fits_the_leanest_is_named(self):
        found = choose(10**6, 10**6, 1000)
        assert found.solver == "low-rank"
        assert found.reason.startswith("no solver fits into 0.0 GiB; the leanest is low-rank")

    def test_every_solver_is_costed_and_costs_grow(self):
        small, large = costs(1000, 500), costs(4000, 2000)
        assert tuple(cost.solver for cost in small) == SOLVERS
        for one, other in zip(small, large, strict=True):
            assert other.operations > one.operations
            assert other.memory > one.memory
