"""Sweeps with a search for the mean end where the plain ones end, sooner, and the ELBO never falls."""

import numpy as np
import pytest
import torch

from inference.problems import fitted, problem_of, simulated
from neuralsurv.inference.paper import acceleration, cavi, mode, updates
from neuralsurv.inference.paper.acceleration import search_mean, slope_of_mean
from neuralsurv.inference.paper.updates import elbo
from neuralsurv.model.augmentation import latent_intensity, log_sigmoid_bound
from neuralsurv.model.linearise import linearise
from neuralsurv.solvers.dual import DualSolver
from neuralsurv.solvers.lowrank import low_rank_solver
from neuralsurv.solvers.primal import PrimalSolver

CASES = [
    pytest.param((4,), "tanh", 0.3, id="tanh"),
    pytest.param((5, 3), "relu", 0.6, id="two layers, heavy censoring"),
    pytest.param((), "tanh", 0.0, id="linear, no censoring"),
]


def problem_at_its_mode(hidden, activation, censoring):
    problem = problem_of(simulated(40, censoring=censoring, seed=3), hidden=hidden, activation=activation)
    return problem, mode.direct(problem, mode.random_starts(problem, 1, seed=0)[0])


@pytest.mark.parametrize("spread", ["mode", "prior"])
@pytest.mark.parametrize(("hidden", "activation", "censoring"), CASES)
def test_same_end_in_fewer_sweeps(hidden, activation, censoring, spread):
    problem, start = problem_at_its_mode(hidden, activation, censoring)
    options = {"tolerance": 1e-8, "max_sweeps": 5000, "spread": spread}
    _, plain, plain_info = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    _, fast, fast_info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert plain_info.converged
    assert fast_info.converged
    assert fast_info.sweeps < plain_info.sweeps
    # Both stop when a sweep moves nothing by more than 1e-8, a little before their common limit.
    torch.testing.assert_close(fast.m, plain.m, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(fast.v, plain.v, rtol=1e-4, atol=1e-6)
    assert fast.phi.shape == pytest.approx(plain.phi.shape, rel=1e-5)
    assert fast_info.elbo[-1] == pytest.approx(plain_info.elbo[-1], abs=1e-6)
    assert np.diff(fast_info.elbo).min() >= -1e-9 * abs(fast_info.elbo[-1])


class TestRoughSweeps:
    @pytest.fixture(params=[pytest.param(case.values, id=case.id) for case in CASES])
    def parts(self, request):
        problem, start = problem_at_its_mode(*request.param)
        linearised = linearise(problem, start.theta)
        solver = low_rank_solver(linearised.rows, problem.weight_prior.precision)
        return problem, linearised, solver, cavi.start(problem, linearised, start.theta, start.phi)

    def test_end_is_that_of_exact_sweeps(self, parts):
        _, _, solver, _ = parts
        exact, exact_info = cavi.sweep_until_converged(*parts, tolerance=1e-8)
        found, info = cavi.sweep_until_converged(*parts, tolerance=1e-8, rough=solver.rough())
        assert exact_info.rough_sweeps == 0
        assert info.converged
        assert info.rough_sweeps >= 2
        assert info.sweeps < exact_info.sweeps
        torch.testing.assert_close(found.m, exact.m, rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(found.v, exact.v, rtol=1e-5, atol=1e-7)
        assert info.elbo[-1] == pytest.approx(exact_info.elbo[-1], abs=1e-8)
        assert np.diff(info.elbo).min(initial=0) >= -1e-9 * abs(info.elbo[-1])

    def test_what_is_kept_is_exact_even_where_sweeps_run_out(self, parts):
        problem, linearised, solver, _ = parts
        state, info = cavi.sweep_until_converged(*parts, tolerance=1e-8, max_sweeps=3, rough=solver.rough())
        assert (info.sweeps, info.rough_sweeps) == (1, 2)
        mean, variance = solver.moments(state.theta)
        torch.testing.assert_close(state.m, linearised.offset + mean, rtol=1e-12, atol=1e-12)
        torch.testing.assert_close(state.v, variance, rtol=1e-12, atol=1e-12)
        divergence = state.theta.divergence(problem.weight_prior.precision)
        assert info.elbo[-1] == pytest.approx(elbo(problem, state.m, state.v, state.phi, divergence), abs=1e-9)


class TestMeanSearch:
    @pytest.fixture(params=[pytest.param(case.values, id=case.id) for case in CASES])
    def somewhere(self, request):
        """Return a problem, its linearised points, the coordinates of a Gaussian, and variances not at rest."""
        problem, start = problem_at_its_mode(*request.param)
        linearised = linearise(problem, start.theta)
        solver = PrimalSolver(linearised.rows, problem.weight_prior.precision)
        state = cavi.start(problem, linearised, start.theta, start.phi)
        gaussian = updates.sweep(problem, linearised, solver, state).theta
        random = torch.Generator().manual_seed(2)
        v = 0.1 + 2 * torch.rand(len(linearised.offset), generator=random, dtype=torch.float64)
        return problem, linearised, solver.coordinates(gaussian), v

    @staticmethod
    def search(problem, linearised, coordinates, v, tolerance=1e-12):
        return search_mean(problem, coordinates, linearised.offset, v, tolerance)

    def test_slope_against_automatic_differentiation(self, somewhere):
        problem, linearised, coordinates, v = somewhere
        m = linearised.offset + coordinates.rows.times(coordinates.place)
        phi = updates.update_phi(problem, m, v)
        place = m.clone().requires_grad_()
        s = torch.sqrt(place**2 + v)
        events = problem.points.events
        terms = torch.cat(
            [
                problem.event_weight * log_sigmoid_bound(place[:events], s[:events]),
                latent_intensity(problem.baseline, place[events:], s[events:], phi.mean_log),
            ]
        )
        (slope,) = torch.autograd.grad(terms.sum(), place)
        torch.testing.assert_close(slope_of_mean(problem, m, v, phi), slope, rtol=1e-9, atol=1e-12)

    def test_ends_where_no_mean_is_better(self, somewhere):
        problem, linearised, coordinates, v = somewhere
        m = self.search(*somewhere)
        # The mean that gives this m: the rows have more points than weights.
        jacobian = linearised.rows.dense()
        mean = torch.linalg.lstsq(jacobian, (m - linearised.offset)[:, None], driver="gelsd").solution[:, 0]
        torch.testing.assert_close(linearised.offset + linearised.rows.times(mean), m, rtol=1e-7, atol=1e-7)

        def bound(theta):
            place = linearised.offset + linearised.rows.times(theta)
            square = float((problem.weight_prior.precision * theta**2).sum()) / 2
            return elbo(problem, place, v, updates.update_phi(problem, place, v), square)

        best = bound(mean)
        assert best > bound(coordinates.place) + 1e-3
        random = torch.Generator().manual_seed(1)
        for size in (1e-3, 1e-2, 1e-1):
            for _ in range(20):
                step = size * torch.randn(len(mean), generator=random, dtype=torch.float64)
                assert bound(mean + step) < best

    def test_a_coarse_search_stops_earlier(self, somewhere):
        _, linearised, coordinates, _ = somewhere
        start = linearised.offset + coordinates.rows.times(coordinates.place)
        torch.testing.assert_close(self.search(*somewhere, tolerance=1e9), start, rtol=0, atol=0)
        exact, coarse = self.search(*somewhere), self.search(*somewhere, tolerance=0.1)
        assert 0 < float((coarse - exact).norm()) < float((start - exact).norm())


def test_coordinates_of_every_solver_tell_the_same():
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    linearised = linearise(problem, start.theta)
    state = cavi.start(problem, linearised, start.theta, start.phi)
    found = []
    for solver in (
        PrimalSolver(linearised.rows, problem.weight_prior.precision),
        DualSolver(linearised.rows, problem.weight_prior.precision),
        low_rank_solver(linearised.rows, problem.weight_prior.precision),
    ):
        after = updates.sweep(problem, linearised, solver, state)
        coordinates = solver.coordinates(after.theta)
        torch.testing.assert_close(
            linearised.offset + coordinates.rows.times(coordinates.place), after.m, rtol=1e-8, atol=1e-8
        )
        rows = coordinates.rows.dense()
        variance = (rows @ torch.cholesky_inverse(coordinates.factor) * rows).sum(1)
        torch.testing.assert_close(variance, after.v, rtol=1e-7, atol=1e-9)
        found.append(TestMeanSearch.search(problem, linearised, coordinates, after.v))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[2], found[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wrong", [float("nan"), 1e6, -1e6], ids=["nan", "far up", "far down"])
def test_a_search_that_does_not_help_is_taken_back(monkeypatch, wrong):
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    options = {"tolerance": 1e-6, "max_sweeps": 3000}
    _, plain, _ = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    monkeypatch.setattr(acceleration, "search_mean", lambda problem, coordinates, offset, *others: offset * 0 + wrong)
    _, state, info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert info.converged
    assert np.diff(info.elbo).min() >= -1e-9 * abs(info.elbo[-1])
    torch.testing.assert_close(state.m, plain.m, rtol=0, atol=1e-12)
