"""Exact expectations against numerical integrals, and the ascent against the ELBO written down afresh."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from torch import Tensor

from inference import exact_bound
from inference.exact_bound import additive_likelihood, dense_ascent, exact_elbo, usual_rows
from inference.problems import simulated
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.default.expectations import Ascent, expectations
from neuralsurv.inference.paper import cavi
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.solvers.primal import PrimalGaussian, PrimalSolver

# ------------------------------------------------------------------------------------------------- expectations


def integral(f, mean: float, sd: float) -> float:
    """E[f(g)] by adaptive quadrature, split where g = 0."""
    if sd == 0:
        return float(f(mean))
    middle = float(np.clip(-mean / sd, -11, 11))
    root = math.sqrt(2 * math.pi)
    value, _ = quad(
        lambda z: f(mean + sd * z) * math.exp(-(z**2) / 2) / root, -12, 12, points=[middle], epsabs=1e-11, limit=200
    )
    return float(value)


def log_sigmoid(g):
    return -np.logaddexp(0, -g)


def slope_of_sigmoid(g):
    return expit(g) * expit(-g)


def bend_of_sigmoid(g):
    return expit(g) * expit(-g) * (1 - 2 * expit(g))


def information(g):
    return expit(g) * expit(-g) ** 2


def spread_out(likelihood: Likelihood, sd: float) -> tuple[Tensor, Tensor]:
    """Means from -8 to 2 over the points, and one standard deviation."""
    count = len(likelihood.points)
    return torch.linspace(-8, 2, count, dtype=torch.float64), torch.full((count,), sd**2, dtype=torch.float64)


# What fifteen nodes can do: next to nothing is lost up to a standard deviation of 1.
ERRORS = [(0.0, 1e-12), (0.5, 1e-11), (1.0, 2e-7), (2.0, 3e-4)]


@pytest.mark.parametrize(("sd", "error"), ERRORS)
def test_expectations_are_the_integrals(sd, error):
    likelihood, phi = additive_likelihood(simulated(3, entry=True, weight=True), nodes=3)
    mean, variance = spread_out(likelihood, sd)
    exact = expectations(likelihood, phi, mean, variance, fisher=False)
    fisher = expectations(likelihood, phi, mean, variance, fisher=True)
    events = likelihood.points.events
    weight = likelihood.points.weight[:events].numpy()
    # Z = 1/30 everywhere.
    mass = 30 * phi * likelihood.points.weight[events:].numpy()
    at_events, at_nodes = mean[:events].tolist(), mean[events:].tolist()

    def means(f, places):
        return np.array([integral(f, place, sd) for place in places])

    value = weight @ means(log_sigmoid, at_events) - mass @ means(expit, at_nodes)
    value += weight.sum() * (math.log(phi) + math.log(30))
    size = weight.sum() + mass.sum()
    assert exact.value == pytest.approx(value, abs=error * size)
    assert fisher.value == exact.value
    slope = np.concatenate([weight * (1 - means(expit, at_events)), -mass * means(slope_of_sigmoid, at_nodes)])
    np.testing.assert_allclose(exact.slope.numpy(), slope, atol=error * size, rtol=0)
    assert torch.equal(fisher.slope, exact.slope)
    bend = np.concatenate([weight * means(slope_of_sigmoid, at_events), mass * means(bend_of_sigmoid, at_nodes)])
    assert (bend < -error * size).any(), "above one half the second derivative has the wrong sign"
    np.testing.assert_allclose(exact.curvature.numpy(), np.maximum(bend, 0), atol=error * size, rtol=0)
    assert bool((exact.curvature >= 0).all())
    expected = np.concatenate([np.zeros(events), mass * means(information, at_nodes)])
    np.testing.assert_allclose(fisher.curvature.numpy(), expected, atol=error * size, rtol=0)


def test_slope_and_curvature_are_derivatives_of_the_value_with_respect_to_the_mean_of_g():
    likelihood, phi = additive_likelihood(usual_rows(6), nodes=2)
    count = len(likelihood.points)
    mean, variance = torch.linspace(-6, -2, count, dtype=torch.float64), torch.full((count,), 0.3).double()
    at = expectations(likelihood, phi, mean, variance, fisher=False)
    step = 1e-3
    for point in range(count):
        shift = step * torch.eye(count, dtype=torch.float64)[point]
        up, down = (expectations(likelihood, phi, mean + s, variance, fisher=False) for s in (shift, -shift))
        assert float(at.slope[point]) == pytest.approx((up.value - down.value) / (2 * step), rel=1e-5, abs=1e-7)
        bend = (2 * at.value - up.value - down.value) / step**2
        assert float(at.curvature[point]) == pytest.approx(bend, rel=1e-3, abs=1e-5)


def test_a_variance_below_zero_by_rounding_counts_as_none():
    likelihood, phi = additive_likelihood(usual_rows(6))
    mean = torch.full((len(likelihood.points),), -3.0).double()
    none, less = (expectations(likelihood, phi, mean, v + 0 * mean, fisher=False) for v in (0.0, -1e-18))
    assert none.value == less.value


# ------------------------------------------------------------------------------------------------------ ascent


def climbed(ascent: Ascent, tolerance: float = 1e-12):
    return ascent.climb(ascent.start(), tolerance=tolerance, most=400)


def covariance_factor(gaussian: PrimalGaussian) -> Tensor:
    return torch.linalg.cholesky(torch.cholesky_inverse(gaussian.factor))


@pytest.mark.parametrize("hidden", [None, (3,)], ids=["linear", "with network"])
@pytest.mark.parametrize("fisher", [False, True])
def test_the_elbo_is_the_one_written_down_afresh_and_never_falls(hidden, fisher):
    likelihood, phi = additive_likelihood(usual_rows(), hidden=hidden)
    ascent, jacobian = dense_ascent(likelihood, phi, fisher=fisher)
    state, info = ascent.climb(ascent.start(), tolerance=1e-10, most=400)
    assert info.converged
    assert bool((np.diff(info.elbo) >= 0).all())
    assert info.elbo[-1] > info.elbo[0] + 0.1, "there was something to climb"
    assert info.steps == len(info.elbo)
    for each in (ascent.start(), state):
        factor = covariance_factor(each.theta)
        afresh = exact_elbo(likelihood, phi, ascent.offset, jacobian, ascent.precision, each.theta.mean, factor)
        assert each.elbo == pytest.approx(float(afresh), abs=1e-5)
    assert state.elbo == info.elbo[-1]


@pytest.mark.parametrize("hidden", [None, (3,)], ids=["linear", "with network"])
def test_at_the_end_the_elbo_has_no_slope_in_any_direction(hidden):
    likelihood, phi = additive_likelihood(usual_rows(), hidden=hidden)
    ascent, jacobian = dense_ascent(likelihood, phi)
    begin, (state, _) = ascent.start(), climbed(ascent)

    def slopes(theta: PrimalGaussian) -> float:
        mean = theta.mean.clone().requires_grad_()
        factor = covariance_factor(theta).requires_grad_()
        bound = exact_elbo(likelihood, phi, ascent.offset, jacobian, ascent.precision, mean, factor)
        by_mean, by_factor = torch.autograd.grad(bound, [mean, factor])
        # In standard deviations of q: nats gained by a step of one.
        inverse = factor.detach().T @ by_mean
        relative = (factor.detach().T @ by_factor).tril()
        return float(max(inverse.abs().max(), relative.abs().max()))

    assert slopes(state.theta) < 1e-4
    assert slopes(begin.theta) > 0.05


def test_points_above_one_half_get_no_curvature_and_the_ascent_still_rises_and_ends():
    """There the second derivative has the wrong sign; without it the top is missed by next to nothing."""
    likelihood, phi = additive_likelihood(usual_rows(), headroom=3.0)
    ascent, _ = dense_ascent(likelihood, phi)
    state, info = climbed(ascent)
    assert bool((state.expected.curvature == 0).any())
    assert info.converged
    assert bool((np.diff(info.elbo) >= 0).all())


def test_fisher_curvature_is_that_of_the_formula_and_ends_no_higher_than_the_exact_one():
    likelihood, phi = additive_likelihood(usual_rows())
    ascent, jacobian = dense_ascent(likelihood, phi, fisher=True)
    # The first q has the information of the middle of the prior, where sigma(g) = 1/30 at every point.
    start = ascent.start()
    events = likelihood.points.events
    weight = phi * 30 * likelihood.points.weight[events:] * (1 / 30) * (29 / 30) ** 2
    precision = torch.diag(ascent.precision) + (jacobian[events:].T * weight) @ jacobian[events:]
    torch.testing.assert_close(start.theta.factor @ start.theta.factor.T, precision, rtol=1e-9, atol=1e-9)
    state, _ = climbed(ascent)
    exact, _ = climbed(dense_ascent(likelihood, phi)[0])
    assert exact.elbo >= state.elbo - 1e-9
    assert exact.elbo == pytest.approx(state.elbo, abs=0.2)


def test_warm_start_ends_at_the_same_place_in_fewer_steps():
    likelihood, phi = additive_likelihood(usual_rows())
    ascent, _ = dense_ascent(likelihood, phi)
    cold, cold_info = climbed(ascent)
    near, _ = dense_ascent(likelihood, phi, 1.1 * ascent.precision)
    there, _ = climbed(near)
    warm, info = ascent.climb(ascent.state(there.curvature, there.slope), tolerance=1e-12, most=400)
    assert warm.elbo == pytest.approx(cold.elbo, abs=1e-9)
    assert info.steps < cold_info.steps


def test_the_limit_of_steps_is_kept_and_told():
    likelihood, phi = additive_likelihood(usual_rows())
    ascent, _ = dense_ascent(likelihood, phi)
    state, info = ascent.climb(ascent.start(), tolerance=1e-12, most=1)
    assert not info.converged
    assert info.steps == 2
    assert state.elbo == info.elbo[-1]


def test_an_elbo_that_is_not_finite_is_an_error():
    likelihood, phi = additive_likelihood(usual_rows())
    ascent, _ = dense_ascent(likelihood, phi)
    state = ascent.start()
    with pytest.raises(NotFiniteError, match=r"the ELBO became nan; look for extreme covariates or weights"):
        ascent.state(state.curvature, torch.full_like(state.slope, math.nan))


# ---------------------------------------------------------------------------------------------- exact posterior


@pytest.mark.parametrize(("n", "gap", "share"), [(30, 0.03, 0.05), (200, 0.01, 0.02)])
def test_against_the_exact_posterior_of_two_weights(n, gap, share):
    """Trend and bias on a grid: the ELBO is below the log evidence and close to it, and so are mean and spread."""
    likelihood, phi = additive_likelihood(simulated(n, covariates=0, seed=2), bumps=0)
    precision = torch.tensor([1.0, 0.25], dtype=torch.float64)
    ascent, jacobian = dense_ascent(likelihood, phi, precision)
    assert jacobian.shape[1] == 2
    state, _ = climbed(ascent)
    covariance = torch.cholesky_inverse(state.theta.factor)
    sd = covariance.diagonal().sqrt()
    axes = [
        torch.linspace(float(m - 7 * s), float(m + 7 * s), 121, dtype=torch.float64)
        for m, s in zip(state.theta.mean, sd, strict=True)
    ]
    grid = torch.cartesian_prod(*axes)
    log_joint = torch.cat(
        [exact_bound.log_likelihood(likelihood, phi, ascent.offset + part @ jacobian.T) for part in grid.split(2000)]
    )
    log_joint += torch.distributions.Normal(0, precision.rsqrt()).log_prob(grid).sum(1)
    cell = float(axes[0][1] - axes[0][0]) * float(axes[1][1] - axes[1][0])
    evidence = float(torch.logsumexp(log_joint, 0)) + math.log(cell)
    assert evidence - gap < state.elbo < evidence
    shares = torch.softmax(log_joint, 0)
    mean = shares @ grid
    spread = (shares @ (grid - mean) ** 2).sqrt()
    assert float(((state.theta.mean - mean) / spread).abs().max()) < share
    assert float((sd / spread - 1).abs().max()) < share
    correlation = float(shares @ (grid - mean).prod(1) / spread.prod())
    assert float(covariance[0, 1] / sd.prod()) == pytest.approx(correlation, abs=share)


# -------------------------------------------------------------------------------- against the Pólya–Gamma bound


def by_cavi(likelihood: Likelihood, phi: float, precision: Tensor, *, tolerance: float):
    # Tight enough to hold phi, and not so tight that the log of the Gamma function rounds.
    tight = 1e6 * likelihood.event_count
    problem = PaperProblem(
        **{name: getattr(likelihood, name) for name in ("points", "x", "network", "normaliser", "rho")},
        weight_prior=WeightPrior(precision),
        phi_prior=Gamma(phi * tight, tight),
    )
    zeros = torch.zeros(likelihood.network.size, dtype=torch.float64)
    linearised = linearise(problem, zeros)
    solver = PrimalSolver(linearised.rows, precision)
    start = cavi.start(problem, linearised, zeros, phi)
    state, info = cavi.sweep_until_converged(problem, linearised, solver, start, tolerance=tolerance, max_sweeps=5000)
    assert info.converged
    return state, info


def both(weight: float, headroom: float):
    """Fit by exact expectations and by CAVI, where phi is held in the latter by a very tight prior."""
    rows = simulated(20, seed=6)
    rows = replace(rows, weight=weight * rows.weight)
    likelihood, phi = additive_likelihood(rows, headroom=headroom)
    ascent, jacobian = dense_ascent(likelihood, phi)
    state, _ = ascent.climb(ascent.start(), tolerance=1e-9, most=400)
    return state, *by_cavi(likelihood, phi, ascent.precision, tolerance=1e-7), jacobian


def test_the_two_agree_where_the_bound_is_tight():
    """A posterior so narrow that g is next to known: the bound then holds with equality, relative to its size."""
    state, other, info, _ = both(weight=1e4, headroom=30.0)
    torch.testing.assert_close(other.theta_mean, state.theta.mean, rtol=2e-3, atol=2e-3)
    assert info.elbo[-1] < state.elbo, "a bound of the ELBO is below it"
    assert info.elbo[-1] == pytest.approx(state.elbo, rel=1e-3)


@pytest.mark.parametrize("headroom", [10.0, 40.0])
def test_the_bound_overstates_the_information_where_hazards_are_far_below_their_ceiling(headroom):
    """By headroom / (2 log headroom) where the hazard is the average one, and by more where it is lower."""
    state, other, _, jacobian = both(weight=1e4, headroom=headroom)
    ratio = state.theta.variance(jacobian) / other.theta.variance(jacobian)
    expected = headroom / (2 * math.log(headroom))
    assert bool((ratio > 1).all())
    assert expected < float(ratio.median()) < 2 * expected


def test_the_bound_with_phi_held_is_where_cavi_ends():
    """The two are written down apart: coordinate ascent with a Gamma for phi, and the ascent of the default preset."""
    rows = usual_rows()
    likelihood, phi = additive_likelihood(rows)
    ascent, _ = dense_ascent(likelihood, phi)
    bounded = replace(ascent, bounded=True)
    state, ascent_info = bounded.climb(bounded.start(), tolerance=1e-12, most=2000)
    assert ascent_info.converged
    assert bool((np.diff(ascent_info.elbo) >= 0).all())
    other, info = by_cavi(likelihood, phi, ascent.precision, tolerance=1e-9)
    torch.testing.assert_close(state.theta.mean, other.theta_mean, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(
        torch.cholesky_inverse(state.theta.factor), torch.cholesky_inverse(other.theta.factor), rtol=1e-4, atol=1e-5
    )
    assert state.elbo == pytest.approx(info.elbo[-1], abs=1e-4)
    exact, _ = climbed(ascent)
    assert state.elbo < exact.elbo
