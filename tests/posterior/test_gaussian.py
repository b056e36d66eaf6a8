"""Moments and joint draws of g, and the integrals of the hazard, against numpy, quadrature and hand calculation."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit
from scipy.stats import gamma, kstest
from torch import Tensor

from false_alarm import FALSE_ALARM, z_bound
from inference.problems import FrozenNetwork, Level
from neuralsurv.model.panels import even_panels
from neuralsurv.model.prior import Gamma
from neuralsurv.posterior import gaussian as posterior_module
from neuralsurv.posterior.gaussian import Posterior, people_blocks
from neuralsurv.prediction import predictor as predictor_module
from neuralsurv.solvers.primal import PrimalGaussian
from posteriors import by_hand_g, covariates, g_moments, kinks, small_posterior, small_predictor

RHOS = (0.6, 1.0, 1.5)
# What a panel's rule may be off for a tanh network of this size, from the hardest case: a hazard with an infinite or
# a vanishing baseline at 0, where the integrand is not smooth.
SMOOTH_ERROR = {0.6: 3e-5, 1.0: 3e-8, 1.5: 3e-6}


def tensor(values) -> Tensor:
    return torch.as_tensor(values, dtype=torch.float64)


def points(count: int = 6) -> tuple[Tensor, Tensor]:
    return torch.linspace(0, 1.2, count, dtype=torch.float64), tensor(covariates(count, seed=2).to_numpy())


def by_hand_hazard(posterior: Posterior, theta: np.ndarray, phi: float, time: float, x: np.ndarray, z: float) -> float:
    return phi * time ** (posterior.rho - 1) * expit(by_hand_g(posterior, theta, time, x)) / z


# ------------------------------------------------------------------------------------------------------- moments


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_moments_by_hand(activation):
    posterior = small_posterior(activation)
    time, x = points()
    mean, variance = g_moments(posterior, time, x)
    # g is linear in theta, so its row is found by moving one weight at a time.
    center = posterior.theta.mean.numpy()
    sigma = np.linalg.inv(posterior.theta.factor.numpy() @ posterior.theta.factor.numpy().T)
    unit = np.eye(len(center))
    rows = np.array(
        [
            [by_hand_g(posterior, center + e, t, u) - by_hand_g(posterior, center, t, u) for e in unit]
            for t, u in zip(time.tolist(), x.numpy(), strict=True)
        ]
    )
    expected = [by_hand_g(posterior, center, t, u) for t, u in zip(time.tolist(), x.numpy(), strict=True)]
    np.testing.assert_allclose(mean.numpy(), expected, rtol=1e-12)
    np.testing.assert_allclose(variance.numpy(), np.einsum("pi,ij,pj->p", rows, sigma, rows), rtol=1e-10)


# --------------------------------------------------------------------------------------------------------- draws


@pytest.fixture(scope="module")
def many():
    """20,000 joint draws of g at six points."""
    posterior = small_posterior("tanh")
    draws = posterior.draw(20_000, seed=11)
    return posterior, draws, posterior.g_draws(draws, *points()).numpy()


def test_draws_of_g_have_its_mean(many):
    posterior, draws, g = many
    mean, variance = (part.numpy() for part in g_moments(posterior, *points()))
    scores = (g.mean(0) - mean) / np.sqrt(variance / len(draws))
    assert np.abs(scores).max() < z_bound(len(scores))


def test_draws_of_g_have_its_covariance(many):
    posterior, draws, g = many
    rows = posterior.network.jacobian(posterior.theta_star, *points())
    covariance = (rows @ torch.cholesky_inverse(posterior.theta.factor) @ rows.T).numpy()
    spread = np.sqrt((covariance**2 + np.outer(covariance.diagonal(), covariance.diagonal())) / len(draws))
    scores = (np.cov(g.T) - covariance) / spread
    assert np.abs(covariance - np.diag(covariance.diagonal())).max() > 10 * spread.max(), "no correlation to find"
    assert np.abs(scores).max() < z_bound(scores.size)


def test_draws_of_phi_follow_its_gamma(many):
    posterior, draws, _ = many
    test = kstest(draws.phi.numpy(), gamma(posterior.phi.shape, scale=1 / posterior.phi.rate).cdf)
    assert test.pvalue > FALSE_ALARM


def test_phi_is_drawn_independently_of_theta(many):
    _, draws, g = many
    correlation = [np.corrcoef(draws.phi.numpy(), column)[0, 1] for column in g.T]
    assert np.abs(correlation).max() * math.sqrt(len(draws)) < z_bound(len(correlation))


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_one_draw_is_one_theta_at_every_point(activation):
    posterior = small_posterior(activation)
    draws = posterior.draw(5, seed=1)
    time, x = points()
    g = posterior.g_draws(draws, time, x)
    for s, theta in enumerate(draws.theta.numpy()):
        expected = [by_hand_g(posterior, theta, t, u) for t, u in zip(time.tolist(), x.numpy(), strict=True)]
        np.testing.assert_allclose(g[s].numpy(), expected, rtol=1e-12)


def test_the_same_seed_gives_the_same_draws():
    posterior = small_posterior()
    first, second, other = (posterior.draw(7, seed=seed) for seed in (3, 3, 4))
    assert len(first) == 7
    assert torch.equal(first.theta, second.theta)
    assert torch.equal(first.phi, second.phi)
    assert not torch.isclose(first.theta, other.theta).any()
    assert not torch.isclose(first.phi, other.phi).any()


QUANTITIES = {
    "survival": lambda predictor, X: predictor.survival(X, [0, 3, 30, 50]),
    "hazard": lambda predictor, X: predictor.hazard(X, [3, 30, 50]),
    "quantile": lambda predictor, X: predictor.quantile(X, [0.2, 0.6]),
    "rmst": lambda predictor, X: predictor.rmst(X, 25),
    "difference": lambda predictor, X: predictor.difference(X, X.iloc[::-1], [3, 30]),
    "event time": lambda predictor, X: predictor.event_time(X),
}


@pytest.mark.parametrize("quantity", QUANTITIES)
@pytest.mark.parametrize("budget", [1, 90_000])
def test_draws_do_not_depend_on_the_blocks(monkeypatch, quantity, budget):
    predictor, X = small_predictor(), covariates(11)
    whole = QUANTITIES[quantity](predictor, X)
    assert len(list(whole.blocks())) == 1
    at_once = whole.draws  # before the blocks are made smaller: they are cut when draws are made
    monkeypatch.setattr(predictor_module, "people_blocks", partial(people_blocks, budget=budget))
    apart = QUANTITIES[quantity](predictor, X)
    assert len(list(apart.blocks())) > (10 if budget == 1 else 1)
    np.testing.assert_allclose(apart.draws, at_once, rtol=1e-12, atol=1e-12)


# --------------------------------------------------------------------------------------- hazard and its integral


@pytest.mark.parametrize("normaliser", ["half", "closed-form", "monte-carlo"])
@pytest.mark.parametrize("rho", RHOS)
def test_hazard_by_hand(normaliser, rho):
    posterior = small_posterior("tanh", rho=rho, normaliser=normaliser)
    draws = posterior.draw(3, seed=1)
    time, x = points()
    time = time + 0.1
    z = posterior.normaliser(time, x)
    assert (float(z.std()) > 0.01) == (normaliser != "half"), "Z should differ between points unless it is one half"
    found = posterior.hazard_draws(draws, time, x)
    for s in range(3):
        for p in range(len(time)):
            expected = by_hand_hazard(
                posterior, draws.theta[s].numpy(), float(draws.phi[s]), float(time[p]), x[p].numpy(), float(z[p])
            )
            assert float(found[s, p]) == pytest.approx(expected, rel=1e-12)


def exact_and_slack(posterior: Posterior, theta: np.ndarray, phi: float, x: np.ndarray, upto: float):
    """Return the integral of a draw's hazard by scipy, and how far its jumps allow the panels to be off."""
    rho = posterior.rho
    row = tensor(x)[None]

    def integrand(u: float) -> float:
        t = u ** (1 / rho)
        z = float(posterior.normaliser(tensor([t]), row))
        return expit(by_hand_g(posterior, theta, t, x)) / z * phi / rho

    cuts = kinks(posterior, x, upto) if posterior.network.activation == "relu" else []
    total = slack = 0.0
    for low, high in zip([0, *cuts], [*cuts, upto], strict=True):
        total += quad(integrand, low**rho, high**rho, epsabs=1e-8, epsrel=1e-8)[0]
    for cut in cuts:
        jump = abs(integrand((cut + 1e-9) ** rho) - integrand((cut - 1e-9) ** rho))
        # The panel that holds the jump, in u, is no longer than this.
        length = (cut + 1 / 50) ** rho - max(cut - 1 / 50, 0) ** rho
        slack += 0.3 * jump * length
    return total, slack


@pytest.mark.parametrize(
    ("activation", "normaliser"),
    [("relu", "half"), ("tanh", "half"), ("relu", "closed-form"), ("tanh", "closed-form"), ("tanh", "monte-carlo")],
)
@pytest.mark.parametrize("rho", RHOS)
def test_cumulative_hazard_against_scipy(activation, rho, normaliser):
    posterior = small_posterior(activation, rho=rho, normaliser=normaliser)
    people = 2 if normaliser == "half" else 1
    draws = posterior.draw(2, seed=1)
    x = covariates(people).to_numpy()
    times = [0.05, 0.31, 1.0, 1.4] if normaliser == "half" else [0.31, 1.4]
    found = posterior.cumulative_hazard_draws(draws, tensor(times), tensor(x))
    jumps = 0.0
    for s in range(2):
        for i in range(people):
            for k, upto in enumerate(times):
                exact, slack = exact_and_slack(posterior, draws.theta[s].numpy(), float(draws.phi[s]), x[i], upto)
                jumps += slack
                assert abs(float(found[s, i, k]) - exact) < SMOOTH_ERROR[rho] + slack
    assert (jumps > 0) == (activation == "relu")


@pytest.mark.parametrize("rho", RHOS)
def test_cumulative_hazard_of_a_step_function_by_hand(rho):
    network = FrozenNetwork(levels=(0.0, 2.0, -1.0), breaks=(0.25, 0.5))
    theta = PrimalGaussian(torch.zeros(1, dtype=torch.float64), torch.eye(1, dtype=torch.float64))
    posterior = Posterior(Gamma(3.0, 1.0), theta, torch.zeros(1, dtype=torch.float64), network, Level(0.4), rho)
    draws = posterior.draw(4, seed=0)
    times = [0.1, 0.25, 0.4, 0.5, 0.8]
    found = posterior.cumulative_hazard_draws(draws, tensor(times), torch.zeros(2, 2, dtype=torch.float64))
    # σ(0), σ(2) and σ(−1), each over its own stretch of t^rho.
    heights = [1 / (1 + math.exp(-level)) for level in (0.0, 2.0, -1.0)]
    stretches = [
        [min(t, 0.25) ** rho, max(0.0, min(t, 0.5) ** rho - 0.25**rho), max(0.0, t**rho - 0.5**rho)] for t in times
    ]
    shape = [sum(h * s for h, s in zip(heights, stretch, strict=True)) / (0.4 * rho) for stretch in stretches]
    expected = draws.phi[:, None, None] * tensor(shape)[None, None, :].expand(1, 2, -1)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rho", RHOS)
@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_every_drawn_curve_starts_at_one_and_never_rises(activation, rho):
    posterior = small_posterior(activation, rho=rho, precision=0.1)
    times = torch.cat([torch.linspace(0, 1.5, 200, dtype=torch.float64), tensor([3.0, 40.0])])
    cumulative = posterior.cumulative_hazard_draws(posterior.draw(200, seed=1), times, tensor(covariates(4).to_numpy()))
    survival = torch.exp(-cumulative)
    assert (survival[:, :, 0] == 1).all()
    assert (survival.diff(dim=2) <= 0).all()
    assert float(survival.min()) >= 0


def test_times_may_come_in_any_order_and_be_repeated():
    posterior = small_posterior("relu", rho=0.6)
    draws, x = posterior.draw(3, seed=1), tensor(covariates(2).to_numpy())
    ordered = posterior.cumulative_hazard_draws(draws, tensor([0.0, 0.2, 0.7, 1.3]), x)
    mixed = posterior.cumulative_hazard_draws(draws, tensor([0.7, 1.3, 0.0, 0.7, 0.2, 0.2]), x)
    assert torch.equal(mixed, ordered[:, :, [2, 3, 0, 2, 1, 1]])


@pytest.mark.parametrize("rho", RHOS)
def test_further_times_change_a_smooth_curve_within_the_stated_error(rho):
    posterior = small_posterior("tanh", rho=rho)
    draws, x = posterior.draw(20, seed=1), tensor(covariates(3).to_numpy())
    few = posterior.cumulative_hazard_draws(draws, tensor([0.33, 0.9]), x)
    more = posterior.cumulative_hazard_draws(draws, tensor([*np.linspace(0, 0.89, 57), 0.33, 0.9]), x)[:, :, -2:]
    assert not torch.equal(few, more), "the panels should differ"
    assert float((few - more).abs().max()) < 2 * SMOOTH_ERROR[rho]


def test_later_times_change_nothing():
    posterior = small_posterior("relu")
    draws, x = posterior.draw(20, seed=1), tensor(covariates(3).to_numpy())
    alone = posterior.cumulative_hazard_draws(draws, tensor([0.33, 0.9]), x)
    with_later = posterior.cumulative_hazard_draws(draws, tensor([0.33, 0.9, 0.95, 70.0, 1e4]), x)
    torch.testing.assert_close(with_later[:, :, :2], alone, rtol=1e-12, atol=0)


# -------------------------------------------------------------------------------------------------------- panels


@pytest.mark.parametrize("last", [2.0, 50.0, 1e3, 1e9])
@pytest.mark.parametrize("count", [1, 300])
def test_far_beyond_the_training_range_panels_are_bounded(last, count):
    times = tensor(np.linspace(0, last, count + 1)[1:])
    edges, _ = even_panels(times)
    # 50 up to the end of the training range, 500 beyond it, and one more for each time at most.
    assert len(edges) - 1 <= 50 + 500 + count + 1
    assert small_posterior().points_per_person(times) == 2 * (len(edges) - 1)


def test_a_linear_integrand_far_beyond_the_range_is_still_right():
    """With g at one level the panels beyond the range may be as long as they like."""
    network = FrozenNetwork(levels=(0.5,))
    theta = PrimalGaussian(torch.zeros(1, dtype=torch.float64), torch.eye(1, dtype=torch.float64))
    posterior = Posterior(Gamma(3.0, 1.0), theta, torch.zeros(1, dtype=torch.float64), network, Level(0.5), 1.5)
    draws = posterior.draw(3, seed=0)
    found = posterior.cumulative_hazard_draws(draws, tensor([1e4]), torch.zeros(1, 2, dtype=torch.float64))
    expected = draws.phi * float(expit(0.5)) / 0.5 * 1e4**1.5 / 1.5
    torch.testing.assert_close(found[:, 0, 0], expected, rtol=1e-10, atol=0)


# ------------------------------------------------------------------------------------------------ log-likelihood


@pytest.mark.parametrize("rho", RHOS)
def test_log_likelihood_against_scipy(rho):
    posterior = small_posterior("tanh", rho=rho, normaliser="closed-form")
    draws = posterior.draw(2, seed=1)
    x = covariates(3).to_numpy()
    entry, time, event = [0.0, 0.2, 0.5], [0.8, 1.0, 0.6], [True, False, True]
    found = posterior.log_likelihood_draws(draws, tensor(entry), tensor(time), torch.tensor(event), tensor(x))
    assert found.shape == (2, 3)
    for s in range(2):
        theta, phi = draws.theta[s].numpy(), float(draws.phi[s])
        for i in range(3):
            late, _ = exact_and_slack(posterior, theta, phi, x[i], time[i])
            early, _ = exact_and_slack(posterior, theta, phi, x[i], entry[i]) if entry[i] else (0.0, 0.0)
            z = float(posterior.normaliser(tensor(time[i : i + 1]), tensor(x[i : i + 1])))
            density = math.log(by_hand_hazard(posterior, theta, phi, time[i], x[i], z)) if event[i] else 0.0
            assert float(found[s, i]) == pytest.approx(density - (late - early), abs=SMOOTH_ERROR[rho] + 1e-7)


# -------------------------------------------------------------------------------------------------------- blocks


@pytest.mark.parametrize("people", [0, 1, 7, 1000])
@pytest.mark.parametrize("budget", [1, 10, 1000, 10**9])
def test_blocks_hold_everybody_once_within_the_budget(people, budget):
    parts = list(people_blocks(people, 3, budget=budget))
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(people))
    assert all(part.stop - part.start <= max(1, budget // 3) for part in parts)


def test_the_default_budget_is_64_mebibytes_of_doubles():
    step = next(people_blocks(10**9, 1)).stop
    assert 8 * step == 64 * 2**20


def test_a_person_needs_some_nodes_for_each_panel():
    assert posterior_module.PANEL_NODES == 2
    assert small_posterior().points_per_person(tensor([1.0])) == 100
