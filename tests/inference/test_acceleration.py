"""Sweeps with a Newton step of the mean end where the plain ones end, sooner, and the ELBO never falls."""

import numpy as np
import pytest
import torch

from inference.problems import fitted, problem_of, simulated
from neuralsurv.inference import cavi, mode
from neuralsurv.inference.anderson import Anderson
from neuralsurv.inference.evidence import elbo
from neuralsurv.inference.linearise import linearise
from neuralsurv.inference.mean_step import MeanStep, slope_and_curvature, step_of_mean
from neuralsurv.model.augmentation import latent_intensity, log_sigmoid_bound
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


class TestMeanStep:
    @pytest.fixture(params=[pytest.param(case.values, id=case.id) for case in CASES])
    def somewhere(self, request):
        """Return a problem, its linearised points, and a mean, moments of g and q(phi) that are not at rest."""
        problem, start = problem_at_its_mode(*request.param)
        linearised = linearise(problem, start.theta)
        mean = start.theta + 0.3 * torch.randn(
            len(start.theta), generator=torch.Generator().manual_seed(1), dtype=torch.float64
        )
        m = linearised.offset + linearised.rows.times(mean)
        v = 0.1 + 2 * torch.rand(len(m), generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        return problem, linearised, mean, m, v, cavi.update_phi(problem, m, v)

    def test_derivatives_against_automatic_differentiation(self, somewhere):
        problem, _, _, m, v, phi = somewhere
        place = m.clone().requires_grad_()
        s = torch.sqrt(place**2 + v)
        events = problem.points.events
        terms = torch.cat(
            [
                problem.event_weight * log_sigmoid_bound(place[:events], s[:events]),
                latent_intensity(problem.baseline, place[events:], s[events:], phi.mean_log),
            ]
        )
        (first,) = torch.autograd.grad(terms.sum(), place, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), place)
        slope, curvature = slope_and_curvature(problem, m, v, phi)
        kappa, _ = cavi.curvature_and_slope(problem, m, v, phi)
        torch.testing.assert_close(slope, first.detach(), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(curvature, torch.maximum(-second, 0.02 * kappa), rtol=1e-8, atol=1e-11)
        # The bound of a sweep is never flatter than what it bounds.
        assert bool((curvature <= kappa * (1 + 1e-9)).all())

    def test_raises_the_bound_and_keeps_mean_and_points_together(self, somewhere):
        problem, linearised, mean, m, v, phi = somewhere
        solver = PrimalSolver(linearised.rows, problem.weight_prior.precision)
        step = step_of_mean(problem, linearised, solver, mean, m, v, phi)
        assert step is not None

        def bound(theta, place):
            return elbo(problem, place, v, phi, float((problem.weight_prior.precision * theta**2).sum()) / 2)

        assert bound(step.theta, step.m) > bound(mean, m)
        torch.testing.assert_close(step.m, linearised.offset + linearised.jacobian @ step.theta)

    def test_where_the_mean_is_at_rest_nothing_is_gained(self, somewhere):
        problem, linearised, mean, m, v, phi = somewhere
        solver = PrimalSolver(linearised.rows, problem.weight_prior.precision)
        for _ in range(60):
            step = step_of_mean(problem, linearised, solver, mean, m, v, phi)
            if step is None:
                break
            moved, mean, m = float((step.theta - mean).norm()), step.theta, step.m
            if moved < 1e-9 * float(mean.norm()):
                break
        slope, _ = slope_and_curvature(problem, m, v, phi)
        gradient = linearised.rows.transposed_times(slope) - problem.weight_prior.precision * mean
        assert float(gradient.abs().max()) < 1e-5


def shifted(wrong):
    """Return a step that goes to a wrong place."""
    return lambda problem, linearised, solver, theta, m, v, phi: MeanStep(theta, m * 0 + wrong)


@pytest.mark.parametrize("wrong", [float("nan"), 1e6, -1e6], ids=["nan", "far up", "far down"])
def test_a_step_that_does_not_help_is_taken_back(monkeypatch, wrong):
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    options = {"tolerance": 1e-6, "max_sweeps": 3000}
    _, plain, _ = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    monkeypatch.setattr(cavi, "step_of_mean", shifted(wrong))
    _, state, info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert info.converged
    assert np.diff(info.elbo).min() >= -1e-9 * abs(info.elbo[-1])
    torch.testing.assert_close(state.m, plain.m, rtol=0, atol=1e-12)


def test_without_a_step_sweeps_are_still_extrapolated(monkeypatch):
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    options = {"tolerance": 1e-8, "max_sweeps": 3000}
    _, plain, plain_info = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    monkeypatch.setattr(cavi, "step_of_mean", lambda *arguments: None)
    _, state, info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert info.converged
    assert info.sweeps < plain_info.sweeps / 2
    torch.testing.assert_close(state.m, plain.m, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("wrong", [float("nan"), 1e6, -1e6], ids=["nan", "far up", "far down"])
def test_a_guess_that_does_not_help_is_taken_back(monkeypatch, wrong):
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    options = {"tolerance": 1e-8, "max_sweeps": 3000}
    _, plain, _ = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    guessed = []

    def misled(self):
        guessed.append(self)
        return self._ends[-1] + wrong if self._ends else None

    monkeypatch.setattr(Anderson, "guess", misled)
    _, state, info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert guessed
    assert info.converged
    assert np.diff(info.elbo).min() >= -1e-9 * abs(info.elbo[-1])
    torch.testing.assert_close(state.m, plain.m, rtol=1e-4, atol=1e-4)
