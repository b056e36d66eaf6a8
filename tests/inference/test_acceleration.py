"""The extrapolated sweeps end where the plain ones end, sooner, and the ELBO never falls."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from inference.problems import fitted, problem_of, simulated
from neuralsurv.inference import cavi, mode

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


def test_a_sequence_that_shrinks_by_a_constant_factor_is_followed_to_its_limit():
    _, start = problem_at_its_mode((4,), "tanh", 0.3)
    state = cavi.CaviState(None, None, start.theta, torch.zeros(3), torch.ones(3, dtype=torch.float64))
    limit = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    states = [replace(state, m=limit * (1 - 0.9**k), v=torch.exp(-limit * 0.9**k)) for k in range(3)]
    guess = cavi.extrapolate(*states, torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64))
    torch.testing.assert_close(guess.m, limit)
    torch.testing.assert_close(guess.v, torch.ones(3, dtype=torch.float64))


@pytest.mark.parametrize("wrong", [float("nan"), 1e6, -1e6], ids=["nan", "far up", "far down"])
def test_a_jump_that_does_not_help_is_taken_back(monkeypatch, wrong):
    problem, start = problem_at_its_mode((4,), "tanh", 0.3)
    options = {"tolerance": 1e-6, "max_sweeps": 3000}
    _, plain, _ = fitted(problem, start.theta, start.phi, accelerate=False, **options)
    monkeypatch.setattr(
        cavi, "extrapolate", lambda base, first, second, weight: replace(second, m=second.m * 0 + wrong)
    )
    _, state, info = fitted(problem, start.theta, start.phi, accelerate=True, **options)
    assert info.converged
    assert np.diff(info.elbo).min() >= -1e-9 * abs(info.elbo[-1])
    torch.testing.assert_close(state.m, plain.m, rtol=0, atol=1e-12)
