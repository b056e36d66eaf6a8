"""The fit with a random network: what it builds, what must not change it, and truths that it must find."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from inference.problems import baseline_exposure, changed, event_weight, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default import fit as additive_fit
from neuralsurv.inference.default.fit import DefaultFit, fit_default
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.model.additive import Additive
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian
from neuralsurv.solvers.subspace import SubspaceGaussian
from posteriors import g_moments

SMALL = DefaultSettings(hidden=(4,), random_network=True)
GRID = torch.linspace(0.02, 1, 7, dtype=torch.float64)


def fit(rows: Cohort, choices: DefaultSettings = SMALL, seed: int = 0) -> DefaultFit:
    return fit_default(rows, choices, seed=seed)


def posterior(found: DefaultFit) -> Posterior:
    model = found.likelihood
    return Posterior(found.phi, found.theta, found.theta_star, model.network, model.normaliser, model.rho)


def log_hazard_moments(found: DefaultFit, x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of g, plus log of the ceiling, over times and people."""
    time = GRID.repeat(len(x))
    people = x.repeat_interleave(len(GRID), 0)
    mean, variance = g_moments(posterior(found), time, people)
    ceiling = math.log(found.phi.mean) - torch.log(found.likelihood.normaliser(time, people))
    return mean + ceiling, variance.sqrt()


def assert_same(one: DefaultFit, other: DefaultFit, x: Tensor, tolerance: float) -> None:
    """Compare moments, not draws: a basis of the same directions may come with other signs."""
    assert other.top.score == pytest.approx(one.top.score, abs=tolerance)
    for name, scale in one.scales.items():
        assert other.scales[name] == pytest.approx(scale, rel=10 * tolerance), name
    for found, expected in zip(log_hazard_moments(other, x), log_hazard_moments(one, x), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=10 * tolerance)


ROWS = simulated(40, entry=True, weight=True, seed=8)


@pytest.fixture(scope="module")
def usual() -> DefaultFit:
    return fit(ROWS)


# -------------------------------------------------------------------------------------------------------- parts


def test_the_middle_of_the_prior_has_the_crude_rate_for_everybody(usual):
    assert usual.phi.mean == pytest.approx(event_weight(ROWS) / baseline_exposure(ROWS, 1.0), rel=1e-12)
    assert usual.phi_prior is usual.phi
    time, x = GRID, ROWS.x[: len(GRID)]
    g = usual.likelihood.network.value(torch.zeros_like(usual.theta_star), time, x)
    hazard = usual.phi.mean * torch.sigmoid(g) / usual.likelihood.normaliser(time, x)
    torch.testing.assert_close(hazard, torch.full_like(hazard, usual.phi.mean))


def test_every_weight_but_the_bias_is_in_exactly_one_group():
    for choices in (SMALL, replace(SMALL, hidden=()), changed(SMALL, bumps=0), changed(SMALL, linear=False)):
        network = build_network(ROWS.time[ROWS.event], ROWS.weight[ROWS.event], 2, choices, seed=1)
        prior = build_prior(network, choices)
        places = [place for group in prior.groups for place in range(group.start, group.stop)]
        assert sorted(places) == [k for k in range(network.size) if k != network.linear_size - 1]
        assert bool((prior.unit > 0).all())


def test_weights_of_the_network_are_scaled_by_fan_in_and_those_of_the_covariates_by_their_number():
    network = build_network(ROWS.time[ROWS.event], ROWS.weight[ROWS.event], 2, SMALL, seed=1)
    prior = build_prior(network, SMALL)
    assert prior.unit[:2].tolist() == [2.0, 2.0]
    # Three inputs and a bias into four units; four units and a bias into the output.
    assert prior.unit[network.linear_size :].tolist() == [4.0] * 16 + [5.0] * 5


def test_names_of_the_scales(usual):
    assert list(usual.scales) == [group.name for group in usual.prior.groups]
    assert {"covariates", "trend", "bumps", "network"} <= usual.scales.keys()
    assert all(scale > 0 for scale in usual.scales.values())


def test_the_score_never_falls_and_ends_at_the_top(usual):
    assert bool((np.diff(usual.trace) >= 0).all())
    assert usual.trace[-1] == usual.top.score


def test_the_posterior_is_a_mixture_around_the_top(usual):
    assert isinstance(usual.theta, MixtureGaussian)
    assert usual.settings == len(usual.theta.parts) > 1
    assert usual.theta.parts[0] is usual.top.state.theta
    alone = fit(ROWS, replace(SMALL, average=False))
    assert isinstance(alone.theta, SubspaceGaussian)
    assert alone.settings == 1
    # Not knowing the scales makes bands wider on the whole.
    assert float(log_hazard_moments(usual, ROWS.x)[1].mean()) > float(log_hazard_moments(alone, ROWS.x)[1].mean())


# -------------------------------------------------------------------------------------------------- invariances


def test_the_same_seed_gives_the_same_fit_and_another_one_another_network(usual):
    again, other = fit(ROWS), fit(ROWS, seed=1)
    assert torch.equal(again.theta.mean, usual.theta.mean)
    assert again.trace == usual.trace
    network, others = usual.likelihood.network, other.likelihood.network
    assert isinstance(network, Additive)
    assert isinstance(others, Additive)
    assert not torch.equal(network.origin, others.origin)
    assert network.basis == others.basis
    gap = log_hazard_moments(other, ROWS.x)[0] - log_hazard_moments(usual, ROWS.x)[0]
    # What is linearised elsewhere differs, but by less than what is not known anyway.
    assert 1e-6 < float(gap.abs().max()) < 1.0


def test_the_order_of_the_rows(usual):
    order = torch.randperm(40, generator=torch.Generator().manual_seed(0))
    assert_same(usual, fit(ROWS.take(order)), ROWS.x, 1e-7)


def test_a_weight_of_two_is_the_row_twice():
    doubled = torch.cat([torch.arange(40), torch.arange(10)])
    weight = torch.where(torch.arange(40) < 10, 2.0, 1.0).double()
    one = replace(ROWS, weight=weight)
    other = replace(ROWS, weight=torch.ones(40).double()).take(doubled)
    assert_same(fit(one), fit(other), ROWS.x, 1e-7)


# The rule for the integrals is not exact: a row in two pieces has twice as many nodes.
SAME_INTEGRAL = 1e-4


@pytest.mark.parametrize("share", [0.2, 0.5, 0.9])
def test_a_row_cut_in_two_is_the_row(usual, share):
    cut = ROWS.entry + share * (ROWS.time - ROWS.entry)
    pieces = Cohort(
        torch.cat([cut, ROWS.time]),
        torch.cat([torch.zeros(40, dtype=torch.bool), ROWS.event]),
        torch.cat([ROWS.entry, cut]),
        ROWS.weight.repeat(2),
        ROWS.x.repeat(2, 1),
    )
    assert_same(usual, fit(pieces), ROWS.x, SAME_INTEGRAL)


def test_the_number_of_nodes_hardly_matters(usual):
    assert_same(usual, fit(ROWS, replace(SMALL, quadrature_points=40)), ROWS.x, 10 * SAME_INTEGRAL)


def test_what_is_really_another_fit_is_seen(usual):
    moved = ROWS.time.clone()
    moved[int(torch.nonzero(ROWS.event)[0])] += 0.01
    gap = log_hazard_moments(fit(replace(ROWS, time=moved)), ROWS.x)[0] - log_hazard_moments(usual, ROWS.x)[0]
    assert float(gap.abs().max()) > 100 * SAME_INTEGRAL / 10


# ------------------------------------------------------------------------------------------------------- truths


def survival_of(found: DefaultFit, times: Tensor, x: Tensor) -> Tensor:
    model = posterior(found)
    draws = model.draw(400, seed=3)
    return torch.exp(-model.cumulative_hazard_draws(draws, times, x)).mean(0)


def truncated(n: int = 600, seed: int = 5) -> Cohort:
    """Exponential times of rate 3 seen only from a random entry on, and one covariate that means nothing."""
    rng = np.random.default_rng(seed)
    time, entry = rng.exponential(1 / 3, 4 * n), rng.uniform(0, 0.6, 4 * n)
    seen = np.flatnonzero(time > entry)[:n]
    time, entry = time[seen], entry[seen]
    event = time < 1
    parts = (np.minimum(time, 1.0), event, entry, np.ones(n), rng.normal(size=(n, 1)))
    return Cohort(*(torch.from_numpy(part) for part in parts))


def test_late_entry_is_accounted_for():
    rows = truncated()
    times, x = torch.linspace(0.1, 0.9, 9, dtype=torch.float64), torch.zeros(1, 1, dtype=torch.float64)
    truth = torch.exp(-3 * times)
    found, ignored = (
        survival_of(fit(each, replace(SMALL, average=False)), times, x)[0]
        for each in (rows, replace(rows, entry=torch.zeros_like(rows.entry)))
    )
    # About 560 events give the rate to 4 %, and so the curve to 0.015 where that matters most.
    assert float((found - truth).abs().max()) < 0.05
    assert float((ignored - truth).abs().max()) > 0.15


def test_a_strong_effect_is_found_and_a_covariate_without_one_is_not():
    rows = simulated(300, seed=9)
    found = fit(rows, replace(SMALL, average=False))
    # The hazard of the simulation is proportional to exp(x_0); x_1 does nothing.
    people = torch.tensor([[-1.0, 0.0], [1.0, 0.0], [0.0, -1.0], [0.0, 1.0]], dtype=torch.float64)
    low, high, before, after = log_hazard_moments(found, people)[0].reshape(4, -1).mean(1).tolist()
    assert high - low == pytest.approx(2.0, abs=0.6)
    assert abs(after - before) < 0.5


# ------------------------------------------------------------------------------------------------------ choices


@pytest.mark.parametrize(
    "change",
    [
        {"hidden": ()},
        {"hidden": (3, 2)},
        {"activation": "relu"},
        {"bumps": 0},
        {"bumps": 1},
        {"headroom": 5.0},
        {"quadrature_points": 2},
        {"curvature": "fisher"},
        {"curvature": "polya-gamma"},
        {"hyper_priors": False},
        {"linear": False},
        {"varying": False},
        {"pairs": False},
    ],
    ids=str,
)
def test_every_choice_reaches_the_fit(usual, change):
    other = fit(ROWS, changed(SMALL, **change))
    assert math.isfinite(other.top.score)
    gap = log_hazard_moments(other, ROWS.x)[0] - log_hazard_moments(usual, ROWS.x)[0]
    assert 1e-6 < float(gap.abs().max()) < 3.0


def test_linearising_anew_raises_the_score_or_is_not_taken(usual):
    again = fit(ROWS, changed(SMALL, relinearise=2))
    assert again.top.score >= usual.top.score
    if again.top.score > usual.top.score:
        assert bool(again.theta_star.any())
    assert bool((np.diff(again.trace) >= 0).all())


def test_a_large_cohort_has_its_scales_sought_on_some_rows_and_is_fitted_to_all(monkeypatch):
    rows = simulated(120, seed=2)
    whole = fit(rows, replace(SMALL, hidden=(), average=False))
    monkeypatch.setattr(additive_fit, "_ROWS_TO_SEARCH", 40)
    part = fit(rows, replace(SMALL, hidden=(), average=False))
    assert part.trace == (part.top.score,)
    assert len(part.likelihood.points) == len(whole.likelihood.points)
    assert part.phi == whole.phi
    # The scales were not chosen for these rows, so the score cannot be better, but hardly worse either.
    assert whole.top.score - 2 < part.top.score <= whole.top.score + 0.02
    for name, scale in whole.scales.items():
        assert abs(math.log(part.scales[name] / scale)) < 1.5, name


def test_a_large_cohort_is_not_averaged_over(monkeypatch):
    monkeypatch.setattr(additive_fit, "_ROWS_TO_AVERAGE", 39)
    assert fit(ROWS).settings == 1


# ------------------------------------------------------------------------------------------------------ extremes


def test_one_row_with_one_event():
    rows = Cohort.of([1.0], [True], [0.0], [1.0], [[0.0]])
    found = fit(rows)
    assert math.isfinite(found.top.score)
    survival = survival_of(found, GRID, rows.x)
    assert bool((survival.diff(dim=1) < 0).all())
    assert 0.02 < float(survival[0, -1]) < 0.9


def test_rows_that_all_end_at_one_time():
    n = 12
    rows = simulated(n)
    rows = replace(rows, time=torch.ones(n).double(), event=torch.arange(n) % 3 == 0)
    assert math.isfinite(fit(rows).top.score)


def test_a_covariate_that_is_the_same_for_everybody():
    rows = simulated(20)
    same = replace(rows, x=torch.zeros_like(rows.x))
    found = fit(same)
    moments = log_hazard_moments(found, same.x)
    for values in moments:
        assert float(values.reshape(20, -1).std(0).max()) < 1e-10


def test_every_covariate_can_have_a_scale_of_its_own():
    found = fit(simulated(40, covariates=2), changed(SMALL, per_covariate=True, average=False))
    assert [name for name in found.scales if name.startswith("covariate")] == ["covariate 0", "covariate 1"]
    assert "covariates" not in found.scales
    assert found.scales["covariate 0"] != found.scales["covariate 1"]


def test_an_interrupt_while_averaging_keeps_the_top(monkeypatch):
    def stopped(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(additive_fit, "average_over", stopped)
    found = fit(simulated(40), replace(SMALL, average=True))
    assert found.interrupted
    assert found.settings == 1
    assert torch.equal(found.theta.mean, found.top.state.theta.mean)
