"""The posterior with phi integrated out, its proposal, and weights against it."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from false_alarm import FALSE_ALARM, z_bound
from inference.problems import double, simulated
from neuralsurv.inference.check import importance, marginal
from neuralsurv.inference.check.marginal import Proposal, fit_proposal, target_of
from neuralsurv.inference.choices import resolve
from neuralsurv.inference.default.fit import fit_additive
from neuralsurv.inference.exact.directions import find_directions
from neuralsurv.inference.paper.fit import fit
from neuralsurv.solvers.primal import PrimalGaussian

ROWS = simulated(14, covariates=1, entry=True, seed=2)
COHORT = ROWS.arguments


def paper(hidden=(), **options):
    return fit(*COHORT, resolve("paper", hidden=hidden, activation="tanh", **options), seed=0)


@pytest.fixture(scope="module")
def linear():
    """A network without hidden layers: three weights, for time, the covariate and the bias."""
    return paper(rho=1.3, phi_prior=(2.0, 0.7))


def target_for(fit):
    directions = find_directions(fit, COHORT)
    return target_of(fit, COHORT, directions.project, torch.ones(directions.rank, dtype=torch.float64))


def log_joint(theta, phi, rho=1.3, shape=2.0, rate=0.7):
    """The log of prior and likelihood of one theta and phi, by adaptive quadrature, without constants."""
    value = -0.5 * float(theta @ theta) + (shape - 1) * math.log(phi) - rate * phi

    def g(t, x):
        return theta[0] * t + theta[1] * x + theta[2]

    for time, event, entry, x in zip(ROWS.time, ROWS.event, ROWS.entry, ROWS.x[:, 0], strict=True):
        hazard = lambda t, x=float(x): phi * t ** (rho - 1) * 2 / (1 + math.exp(-g(t, x)))  # noqa: E731
        value -= quad(hazard, float(entry), float(time))[0]
        if bool(event):
            value += math.log(phi) - math.log1p(math.exp(-g(float(time), float(x))))
    return value


def test_density_is_the_joint_one_with_phi_integrated_out(linear):
    target = target_for(linear)
    thetas = np.random.default_rng(0).standard_normal((3, 3))
    found, rate = target.log_density(torch.from_numpy(thetas))

    def by_brute_force(theta):
        middle = log_joint(theta, 1.5)
        return middle + math.log(quad(lambda phi: math.exp(log_joint(theta, phi) - middle), 1e-6, 40, limit=100)[0])

    exact = [by_brute_force(theta) for theta in thetas]
    np.testing.assert_allclose(found.numpy() - float(found[0]), np.array(exact) - exact[0], atol=1e-5)
    # Given theta, phi is Gamma(a, B): the joint density has that slope in phi.
    slope = (log_joint(thetas[0], 2.001) - log_joint(thetas[0], 1.999)) / 0.002
    assert (target.shape - 1) / 2.0 - float(rate[0]) == pytest.approx(slope, rel=1e-4)


def test_density_where_phi_is_held():
    held = fit_additive(*COHORT, resolve("default", hidden=(), average=False), seed=0)
    target = target_for(held)
    z = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(target.precision))))
    value, exposure = target.log_density(z)
    g = target.offset + z @ target.rows.T
    events = target.likelihood.points.events
    expected = torch.log(torch.sigmoid(g[:, :events])).sum(1) - 0.5 * z.square().sum(1)
    expected -= held.phi.mean * (torch.sigmoid(g[:, events:]) * target.likelihood.baseline).sum(1)
    torch.testing.assert_close(value, expected)
    assert (exposure > 0).all()


def test_proposal_draws_have_the_density_that_is_said():
    factor = torch.tensor([[1.5, 0.0, 0.0], [0.3, 0.8, 0.0], [-0.2, 0.4, 2.0]], dtype=torch.float64)
    ridge = double([2.0, 1.0, -2.0]) / 3
    mean = double([0.5, -1.0, 2.0])
    draws, density = Proposal(PrimalGaussian(mean, factor), ridge).draw(20_000, np.random.default_rng(0))
    noise = ((draws - mean) @ factor).numpy()
    along = noise @ ridge.numpy()
    across = noise - np.outer(along, ridge.numpy())
    length = (across**2).sum(1)
    widths = ((1.0, 0.7), (1.15, 0.2), (1.5, 0.1))
    # Two directions across the ridge.
    mixture = sum(share * stats.norm(scale=w).pdf(np.sqrt(length)) * stats.norm(scale=w).pdf(0) for w, share in widths)
    expected = stats.t(5).logpdf(along / 1.3) + np.log(mixture)
    np.testing.assert_allclose(density.numpy() - float(density[0]), expected - expected[0], atol=1e-9)
    assert stats.kstest(along / 1.3, stats.t(5).cdf).pvalue > FALSE_ALARM
    law = stats.kstest(length, lambda v: sum(share * stats.chi2(2, scale=w**2).cdf(v) for w, share in widths))
    assert law.pvalue > FALSE_ALARM


def test_proposal_is_where_the_posterior_is(linear):
    target = target_for(linear)
    proposal = fit_proposal(target, torch.zeros(3, dtype=torch.float64))
    axis = np.linspace(-5, 5, 61)
    grid = torch.from_numpy(np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3))
    mass = torch.softmax(target.log_density(grid)[0], 0)
    mean = mass @ grid
    sd = (mass @ (grid - mean) ** 2).sqrt()
    assert float(((proposal.gaussian.mean - mean) / sd).abs().max()) < 0.15
    ratio = proposal.gaussian.variance(torch.eye(3, dtype=torch.float64)).sqrt() / sd
    assert float((ratio - 1).abs().max()) < 0.12


def test_a_precision_that_is_not_positive_falls_back_to_the_fisher_information(linear, monkeypatch):
    target = target_for(linear)
    refused = 0
    right = marginal.cholesky

    def first_refused(matrix):
        nonlocal refused
        refused += 1
        if refused == 1:
            raise marginal.NotPositiveDefiniteError("")
        return right(matrix)

    monkeypatch.setattr(marginal, "cholesky", first_refused)
    monkeypatch.setattr(marginal, "_STEPS", 1)
    start = torch.zeros(3, dtype=torch.float64)
    found = fit_proposal(target, start).gaussian
    events = target.likelihood.points.events
    share = torch.sigmoid(target.offset + target.rows @ start)[events:]
    mass, nodes = target.likelihood.baseline, target.rows[events:]
    phi = target.shape / (0.7 + float(mass @ share))
    pull = phi * nodes.T @ (mass * share * (1 - share))
    precision = torch.eye(3, dtype=torch.float64) - torch.outer(pull, pull) / target.shape
    precision += nodes.T @ ((phi * mass * share * (1 - share) ** 2)[:, None] * nodes)
    torch.testing.assert_close(found.factor @ found.factor.T, precision)


def test_weighed_draws_have_the_moments_of_the_posterior(linear):
    drawn = importance.weigh_draws(linear, COHORT, draws=3000, seed=1)
    assert drawn.theta.shape == (3000, 3)
    assert drawn.k_hat < 0.7
    target = target_for(linear)
    axis = np.linspace(-5, 5, 61)
    grid = torch.from_numpy(np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3))
    value, rate = target.log_density(grid)
    mass = torch.softmax(value, 0)
    exact = torch.cat([mass @ grid, mass @ grid**2, (mass @ (target.shape / rate))[None]])
    found = torch.cat([drawn.theta, drawn.theta**2, drawn.phi[:, None]], 1)
    # 30,000 draws were weighed; at least this share of them counts, and 3,000 were kept.
    worth = min(len(found), drawn.effective * 10 * len(found))
    scores = (found.mean(0) - exact) / (found.std(0) / math.sqrt(worth))
    assert float(scores.abs().max()) < 1.5 * z_bound(len(exact)), scores
    again = importance.weigh_draws(linear, COHORT, draws=3000, seed=1)
    assert torch.equal(drawn.theta, again.theta)


def test_check_finds_a_posterior_that_is_too_narrow(linear):
    from dataclasses import replace

    right = importance.check_posterior(linear, COHORT, 0)
    narrow = replace(linear, theta=PrimalGaussian(linear.theta.mean, 2 * linear.theta.factor))
    wrong = importance.check_posterior(narrow, COHORT, 0)
    assert wrong["k_hat"] > right["k_hat"] + 0.2
    assert wrong["effective"] < right["effective"]


def test_check_of_a_small_and_of_a_reduced_posterior_agree():
    primal, reduced = (paper(hidden=(4,), solver=solver) for solver in ("primal", "low-rank"))
    found = [importance.check_posterior(one, COHORT, 0) for one in (primal, reduced)]
    # The same posterior in two forms, weighed with other draws.
    assert abs(found[0]["k_hat"] - found[1]["k_hat"]) < 0.4


def test_nothing_is_checked_where_it_would_be_slow(linear, monkeypatch):
    monkeypatch.setattr(importance, "_MOST_ROWS", 5)
    assert importance.check_posterior(linear, COHORT, 0) == {}
    monkeypatch.setattr(importance, "_MOST_ROWS", 5000)
    monkeypatch.setattr(importance, "BLOCK_NUMBERS", 10)
    assert importance.check_posterior(linear, COHORT, 0) == {}
