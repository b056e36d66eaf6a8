"""The posterior with phi integrated out, and weights of a variational posterior against it."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from inference.problems import simulated
from neuralsurv.inference.check import importance
from neuralsurv.inference.check.importance import best_target, target_of
from neuralsurv.inference.default.fit import fit_default
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.exact.directions import find_coordinates
from neuralsurv.inference.paper.fit import fit_paper
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.solvers.primal import PrimalGaussian

ROWS = simulated(14, covariates=1, entry=True, seed=2)
COHORT = ROWS


def paper(hidden=(), **options):
    return fit_paper(COHORT, PaperSettings(hidden=hidden, activation="tanh", **options), seed=0)


@pytest.fixture(scope="module")
def linear():
    """A network without hidden layers: three weights, for time, the covariate and the bias."""
    return paper(rho=1.3, phi_prior=(2.0, 0.7))


def target_for(fit):
    directions = find_coordinates(fit, COHORT)
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
    held = fit_default(COHORT, DefaultSettings(hidden=(), average=False), seed=0)
    target = target_for(held)
    z = torch.from_numpy(np.random.default_rng(1).standard_normal((2, len(target.precision))))
    value, exposure = target.log_density(z)
    g = target.offset + target.rows.times_each(z.T).T
    events = target.likelihood.points.events
    expected = torch.log(torch.sigmoid(g[:, :events])).sum(1) - 0.5 * z.square().sum(1)
    expected -= held.phi.mean * (torch.sigmoid(g[:, events:]) * target.likelihood.baseline).sum(1)
    torch.testing.assert_close(value, expected)
    assert (exposure > 0).all()


def test_the_target_by_features_and_functions_of_time_is_that_of_the_matrix():
    fit = fit_default(simulated(30, covariates=3, entry=True, weight=True, seed=4), DefaultSettings(), seed=0)
    cohort = simulated(30, covariates=3, entry=True, weight=True, seed=4)
    basis, mean, _ = fit.best_theta.dense_form()
    fast = best_target(fit, cohort, basis)
    slow = target_of(fit, cohort, lambda rows: rows.times_basis(basis), torch.ones_like(mean))
    assert type(fast.rows) is not type(slow.rows)
    z = mean + torch.randn(700, len(mean), generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    for found, wanted in zip(fast.log_density(z), slow.log_density(z), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-9)


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
