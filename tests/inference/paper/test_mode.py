import math

import pytest
import torch
from scipy.optimize import minimize_scalar

from inference.problems import baseline_exposure, constant, double, event_weight, intricate, problem_of, simulated
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper import mode

TIGHT_DIRECT = {"tolerance": 1e-13, "max_iterations": 20000}
TIGHT_EM = {"tolerance": 1e-12, "max_iterations": 20000, "inner_tolerance": 1e-12, "inner_iterations": 200}


def start(problem, seed=0):
    return mode.random_starts(problem, 1, seed)[0]


def gradient_at(problem, theta):
    return mode.value_and_slope(problem, theta)[1]()


def negative_log_posterior(problem, theta, phi):
    """−log p(θ, φ | data) up to a constant, from the likelihood and the two priors, differentiable in both."""
    points, events = problem.points, problem.points.events
    g = problem.network.value(theta, points.time, problem.x[points.row])
    z = problem.normaliser(points.time, problem.x[points.row])
    log_hazard = torch.log(phi) + (problem.rho - 1) * torch.log(points.time) + torch.log(torch.sigmoid(g) / z)
    cumulative = phi * (points.weight * torch.sigmoid(g) / z)[events:].sum()
    log_prior = -0.5 * (problem.weight_prior.precision * theta**2).sum()
    log_prior = log_prior + (problem.phi_prior.shape - 1) * torch.log(phi) - problem.phi_prior.rate * phi
    return -(points.weight * log_hazard)[:events].sum() + cumulative - log_prior


ARCHITECTURES = [((), "relu"), ((4,), "relu"), ((4,), "tanh"), ((5, 3), "tanh"), ((5, 3), "silu")]


class TestObjective:
    @pytest.mark.parametrize(("hidden", "activation"), ARCHITECTURES)
    def test_is_the_log_posterior_up_to_one_constant(self, hidden, activation):
        problem = intricate(activation, hidden)
        rests = []
        for seed, phi in enumerate([0.05, 0.7, 3.0, 40.0]):
            theta = start(problem, seed)
            rests.append(
                mode.objective(problem, theta, phi) - float(negative_log_posterior(problem, theta, double(phi)))
            )
        assert rests == pytest.approx([rests[0]] * 4, abs=1e-9)

    @pytest.mark.parametrize(("hidden", "activation"), ARCHITECTURES)
    def test_gradient_against_automatic_differentiation(self, hidden, activation):
        # Where phi is at its best, the slope of the joint objective in theta is that of U.
        problem = intricate(activation, hidden)
        theta = start(problem).requires_grad_(True)
        g = problem.network.value(theta.detach(), problem.points.time, problem.point_x)
        phi = double(mode.best_phi(problem, g[problem.points.events :]))
        (slope,) = torch.autograd.grad(negative_log_posterior(problem, theta, phi), theta)
        gradient = gradient_at(problem, theta.detach())
        assert torch.allclose(gradient, slope, rtol=1e-11, atol=1e-11)

    # A difference may reach across a kink of a ReLU network, so these are smooth.
    @pytest.mark.parametrize(("hidden", "activation"), [((), "relu"), ((4,), "tanh"), ((5, 3), "silu")])
    def test_gradient_against_differences(self, hidden, activation):
        problem = intricate(activation, hidden)
        theta = start(problem)
        gradient = gradient_at(problem, theta)
        step = 1e-5
        for index in range(len(theta)):
            direction = torch.zeros_like(theta)
            direction[index] = step
            rise = mode.objective(problem, theta + direction) - mode.objective(problem, theta - direction)
            # Central differences: 1e-10 from the third derivative, 1e-9 from rounding of U ~ 100.
            assert float(gradient[index]) == pytest.approx(rise / (2 * step), rel=1e-6, abs=1e-7)

    @pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
    @pytest.mark.parametrize("hidden", [(4,), (5, 3)])
    def test_at_zero_weights_only_the_last_bias_has_a_slope(self, activation, hidden):
        problem = intricate(activation, hidden)
        gradient = gradient_at(problem, torch.zeros(problem.network.size, dtype=torch.float64))
        assert bool((gradient[:-1] == 0).all())
        assert abs(float(gradient[-1])) > 0.1

    @pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
    def test_a_search_from_zero_never_leaves_the_constant_g(self, activation):
        problem = intricate(activation, (5, 3))
        found = mode.direct(problem, torch.zeros(problem.network.size, dtype=torch.float64), **TIGHT_DIRECT)
        assert bool((found.theta[:-1] == 0).all())
        gradient = gradient_at(problem, found.theta)
        assert abs(float(gradient[-1])) < 1e-6
        assert mode.direct(problem, start(problem), **TIGHT_DIRECT).objective < found.objective - 0.1


class TestPhi:
    @pytest.mark.parametrize("seed", range(3))
    def test_best_phi_is_the_lowest_point_of_the_joint_objective(self, seed):
        problem = intricate()
        theta = start(problem, seed)
        g = problem.network.value(theta, problem.points.time, problem.point_x)
        best = mode.best_phi(problem, g[problem.points.events :])
        found = minimize_scalar(
            lambda log_phi: float(negative_log_posterior(problem, theta, double(math.exp(log_phi)))),
            bracket=(math.log(best) - 1, math.log(best) + 2),
            options={"xtol": 1e-10},
        )
        # A minimum is found to the root of the rounding of its value.
        assert best == pytest.approx(math.exp(found.x), rel=1e-6)
        assert mode.objective(problem, theta, best) == pytest.approx(mode.objective(problem, theta), rel=1e-14)
        for factor in (0.5, 0.99, 1.01, 2.0):
            assert mode.objective(problem, theta, factor * best) > mode.objective(problem, theta)

    @pytest.mark.parametrize("level", [0.0, 40.0])
    @pytest.mark.parametrize("search", [mode.direct, mode.em])
    def test_is_the_mode_of_the_exact_posterior_of_an_exponential_model(self, level, search):
        rows = simulated(25, entry=True, weight=True, seed=2)
        problem = constant(rows, level, rho=1.5, phi_prior=(1.3, 0.8))
        found = search(problem, double([0.7]))
        assert found.phi == pytest.approx((0.3 + event_weight(rows)) / (0.8 + baseline_exposure(rows, 1.5)), rel=1e-13)
        assert float(found.theta) == pytest.approx(0, abs=1e-9)

    def test_phi_of_the_em_iterations_goes_there(self):
        found = mode.em(
            constant(simulated(25, seed=2), 0.0), torch.zeros(1, dtype=torch.float64), phi=50.0, tolerance=1e-14
        )
        # The trace is at the phi of each iteration, the objective at the best: they meet only if EM's phi arrives.
        assert found.trace[0] - found.objective > 10
        assert found.trace[-1] == pytest.approx(found.objective, abs=1e-9)


def never_rises(trace):
    values = double(trace)
    return float(((values[1:] - values[:-1]) / values[1:].abs()).max()) < 1e-12


class TestEmAndDirectAgree:
    @pytest.mark.parametrize("seed", range(3))
    def test_linear_g_has_one_mode(self, seed):
        problem = problem_of(simulated(20, entry=True, weight=True, seed=seed), hidden=(), rho=1.3, phi_prior=(2, 0.7))
        direct = mode.direct(problem, start(problem, seed), **TIGHT_DIRECT)
        em = mode.em(problem, start(problem, seed + 10), **TIGHT_EM)
        assert direct.converged
        assert em.converged
        assert em.objective == pytest.approx(direct.objective, abs=1e-8)
        # U is known to 1e-14, so its lowest point to about the root of that.
        assert torch.allclose(em.theta, direct.theta, atol=1e-5)
        assert em.phi == pytest.approx(direct.phi, rel=1e-5)
        assert never_rises(em.trace)

    # With eight rows of this seed the best ReLU network has no point on a kink, so U is smooth where it is lowest.
    @pytest.mark.parametrize(
        ("activation", "n", "data", "seed"),
        [("tanh", 30, 1, 0), ("tanh", 30, 2, 1), ("relu", 8, 7, 0), ("relu", 8, 7, 1)],
    )
    def test_neither_gains_where_the_other_stopped(self, activation, n, data, seed):
        problem = problem_of(simulated(n, seed=data), hidden=(4,), activation=activation)
        em = mode.em(problem, start(problem, seed), **TIGHT_EM)
        direct = mode.direct(problem, start(problem, seed), **TIGHT_DIRECT)
        assert em.converged
        assert direct.converged
        for found in (em, direct):
            assert float(gradient_at(problem, found.theta).abs().max()) < 1e-5
            assert float(found.theta[:-1].norm()) > 0.5  # not the constant g
        assert em.objective - mode.direct(problem, em.theta, **TIGHT_DIRECT).objective < 1e-8
        again = mode.em(problem, direct.theta, phi=direct.phi, **TIGHT_EM)
        assert direct.objective - again.objective < 1e-8
        assert never_rises(em.trace)
        assert never_rises(again.trace)

    @pytest.mark.parametrize(("hidden", "n", "data", "seed"), [((4,), 30, 5, 0), ((4,), 30, 1, 1), ((8,), 40, 2, 2)])
    def test_nor_on_the_kinks_of_a_relu_network(self, hidden, n, data, seed):
        # The lowest U has points on kinks of the ReLU, where the slope does not vanish. From such a place itself a
        # restart could stall whatever the place, so that there are restarts from beside it too.
        problem = problem_of(simulated(n, seed=data), hidden=hidden, activation="relu")
        loose_em = {"tolerance": 1e-9, "inner_tolerance": 1e-9}
        direct = mode.direct(problem, start(problem, seed), **TIGHT_DIRECT)
        em = mode.em(problem, start(problem, seed), **loose_em)
        assert direct.converged
        assert em.converged
        assert never_rises(em.trace)
        generator = torch.Generator().manual_seed(0)
        for found in (direct, em):
            assert float(gradient_at(problem, found.theta).abs().max()) > 1e-2
            assert found.objective - mode.direct(problem, found.theta, **TIGHT_DIRECT).objective < 1e-4
            again = mode.em(problem, found.theta, phi=found.phi, **loose_em)
            assert found.objective - again.objective < 1e-4
            for _ in range(5):
                noise = torch.randn(problem.network.size, generator=generator, dtype=torch.float64)
                beside = mode.direct(problem, found.theta + 1e-4 * noise, **TIGHT_DIRECT)
                assert found.objective - beside.objective < 1e-4

    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    @pytest.mark.parametrize("dressed", [False, True], ids=["plain", "entry and weights"])
    def test_em_never_raises_the_joint_objective(self, activation, dressed):
        for seed, (censoring, rho) in enumerate([(0.0, 0.6), (0.5, 1.0), (0.9, 1.5)]):
            rows = simulated(20, censoring=censoring, entry=dressed, weight=dressed, seed=seed)
            problem = problem_of(rows, hidden=(5, 3), activation=activation, rho=rho)
            found = mode.em(problem, start(problem, seed), phi=20.0, max_iterations=12, inner_iterations=15)
            assert never_rises(found.trace)
            assert found.trace[-1] < found.trace[0] - 1


class TestStarts:
    def test_seeded_and_different(self):
        problem = intricate()
        starts = mode.random_starts(problem, 4, 7)
        again = mode.random_starts(problem, 2, 7)
        assert [bool(torch.equal(one, other)) for one, other in zip(starts, again, strict=False)] == [True, True]
        assert len({tuple(theta.tolist()) for theta in starts + mode.random_starts(problem, 4, 8)}) == 8

    def test_do_not_depend_on_the_rows(self):
        one, other = (problem_of(simulated(n, seed=n), hidden=(3,)) for n in (5, 9))
        assert torch.equal(mode.random_starts(one, 1, 0)[0], mode.random_starts(other, 1, 0)[0])

    def test_are_not_touched_by_the_search(self):
        problem = intricate()
        theta = start(problem)
        for search in (mode.direct, mode.em):
            search(problem, theta, max_iterations=3)
            assert torch.equal(theta, start(problem))

    def test_best_of_has_the_lowest_objective(self):
        problem = intricate()
        found = [mode.direct(problem, theta, max_iterations=2) for theta in mode.random_starts(problem, 5, 0)]
        assert mode.best_of(found).objective == min(one.objective for one in found)


class TestTogether:
    @pytest.mark.parametrize("hidden", [(), (4,), (5, 3)])
    @pytest.mark.parametrize("count", [1, 3])
    def test_values_and_gradients_are_those_of_each_alone(self, hidden, count):
        problem = problem_of(simulated(30, seed=5), hidden=hidden, activation="relu")
        thetas = mode.random_starts(problem, count, 0)
        for theta, (value, gradient) in zip(thetas, mode.values_and_slopes(problem, thetas), strict=True):
            wanted, slope = mode.objective(problem, theta), gradient_at(problem, theta)
            assert value == pytest.approx(wanted, rel=1e-13)
            torch.testing.assert_close(gradient(), slope, rtol=1e-11, atol=1e-12)

    def test_starts_end_where_each_would_alone(self):
        problem = problem_of(simulated(30, seed=5), hidden=(4,), activation="tanh")
        thetas = mode.random_starts(problem, 4, 0)
        reports = []
        found = mode.direct_together(problem, thetas, **TIGHT_DIRECT, report=lambda *words: reports.append(words))
        alone = [mode.direct(problem, theta, **TIGHT_DIRECT) for theta in thetas]
        assert [one.objective for one in found] == pytest.approx([one.objective for one in alone], rel=1e-6)
        assert all(one.converged for one in found)
        assert [len(one.trace) for one in found] == [len(one.trace) for one in alone]
        assert reports[-1][1] == min(one.trace[-1] for one in found)
        assert len(reports) == sum(len(one.trace) - 1 for one in found)


class TestSearch:
    @pytest.mark.parametrize("search", [mode.direct, mode.em])
    def test_result_belongs_together(self, search):
        problem = intricate()
        found = search(problem, start(problem), tolerance=1e-4)
        g = problem.network.value(found.theta, problem.points.time, problem.point_x)
        assert found.objective == pytest.approx(mode.objective(problem, found.theta), rel=1e-14)
        assert found.phi == pytest.approx(mode.best_phi(problem, g[problem.points.events :]), rel=1e-12)
        assert found.trace[0] == mode.objective(problem, start(problem), None if search is mode.direct else 1.7 / 0.6)
        assert found.converged

    @pytest.mark.parametrize("search", [mode.direct, mode.em])
    def test_stops_at_the_limit_and_says_so(self, search):
        problem = intricate()
        found = search(problem, start(problem), max_iterations=3)
        assert not found.converged
        assert len(found.trace) == 4

    @pytest.mark.parametrize("search", [mode.direct, mode.em])
    def test_reports_every_iteration(self, search):
        problem = intricate()
        seen = []
        found = search(problem, start(problem), max_iterations=3, report=lambda *words: seen.append(words))
        assert seen == [(k, found.trace[k]) for k in (1, 2, 3)]

    def test_direct_stops_when_twenty_iterations_gain_too_little_on_average(self):
        problem = problem_of(simulated(30, seed=5), hidden=(4,), activation="relu")
        tolerance = 1e-5
        trace = mode.direct(problem, start(problem), tolerance=tolerance).trace
        gains = [(early - late) / 20 / abs(late) for early, late in zip(trace[1:-20], trace[21:], strict=True)]
        assert gains[-1] <= tolerance
        assert min(gains[:-1]) > tolerance

    @pytest.mark.parametrize("search", [mode.direct, mode.em])
    def test_objective_that_is_not_finite_is_an_error(self, search):
        # The sum of the first row's two covariates is infinity minus infinity.
        rows = simulated(10)
        rows.x[0] = double([math.inf, -math.inf])
        problem = problem_of(rows, hidden=())
        with pytest.raises(NotFiniteError, match="the search for the mode reached U = nan; look for extreme"):
            search(problem, torch.ones(problem.network.size, dtype=torch.float64), max_iterations=3)
