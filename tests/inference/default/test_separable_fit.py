"""The fit by features and functions of time against the dense path on the same network; and what must not change it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from inference.default.test_curve_choice import cohort
from inference.exact_bound import dense_ascent
from inference.problems import changed, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.fit import DefaultFit, _evidence, _likelihood, fit_default, reduce_rows
from neuralsurv.inference.default.scales import Evidence, Setting
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_prior, place_units
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.solvers.grouped import GroupedSolver
from neuralsurv.solvers.separable import SeparableScales
from posteriors import g_moments

SETTINGS = DefaultSettings(neighbourhoods=8, quadrature_points=4, tolerance=1e-11, max_sweeps=500)
CASES = {
    "all parts": (25, 3, {}),
    "more covariates than rows": (9, 14, {}),
    "no early effects": (25, 3, {"early": False}),
    "effects that do not change": (25, 3, {"varying": False}),
    "without curves": (25, 3, {"curves": False}),
    "no covariates": (25, 0, {}),
    "no bumps": (25, 2, {"bumps": 0}),
    "two causes": (25, 2, {"causes": 2}),
    "three causes": (30, 2, {"causes": 3}),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def evidences(case: tuple[int, int, dict[str, object]], **options: float) -> tuple[Evidence, Evidence]:
    """The evidence of one network, by the separable solver and by dense rows that are all kept."""
    count, covariates, changes = case
    rows = simulated(count, covariates=covariates, entry=True, weight=True, seed=4)
    causes = changes.get("causes")
    if causes:
        rows = replace(rows, cause=torch.arange(count) % causes * rows.event)
    settings = changed(SETTINGS, **{name: value for name, value in changes.items() if name != "causes"}, **options)
    network = place_units(rows, settings)
    prior = build_prior(network, settings)
    likelihood = _likelihood(rows, network, settings)
    phi = float(rows.event_weight.sum()) / rows.exposure
    fast = _evidence(likelihood, phi, prior, torch.zeros(network.size).double(), settings)
    assert isinstance(fast.solver, SeparableScales)
    points = likelihood.points
    lead, tail = network.rows_by_part(torch.zeros(network.size).double(), points.time, likelihood.point_x)
    assert tail is None
    slow = reduce_rows(lead, tail, network, prior, torch.ones(len(points)).double(), tolerance=0.0, most=network.size)
    assert isinstance(slow, GroupedSolver)
    return fast, replace(fast, solver=slow)


def some_scales(evidence: Evidence) -> Tensor:
    return torch.linspace(-1.2, 0.5, len(evidence.prior.groups), dtype=torch.float64)


@every_case
def test_the_separable_columns_are_those_of_the_network(case):
    fast, _ = evidences(case)
    likelihood, unit = fast.likelihood, fast.prior.unit
    solver = fast.solver
    dense = likelihood.network.jacobian(torch.zeros_like(unit), likelihood.points.time, likelihood.point_x)
    whitened = dense / unit.sqrt()
    identity = torch.eye(solver.rank, dtype=torch.float64)
    columns = torch.stack([solver.rows.times(direction) for direction in identity], 1)
    torch.testing.assert_close(columns, whitened @ solver.basis, rtol=1e-10, atol=1e-10)
    # No part of the rows lies outside the basis.
    torch.testing.assert_close(columns @ solver.basis.T, whitened, rtol=1e-10, atol=1e-10)


@every_case
def test_the_gaussian_and_the_elbo_are_those_of_the_dense_path(case):
    fast, slow = evidences(case)
    scales = some_scales(fast)
    one, other = fast.at(scales), slow.at(scales)
    assert one.info.converged
    assert one.score == pytest.approx(other.score, abs=1e-8)
    torch.testing.assert_close(fast.gradient(one), slow.gradient(other), rtol=0, atol=1e-5)
    torch.testing.assert_close(one.state.theta.mean, other.state.theta.mean, rtol=0, atol=1e-5)
    likelihood = fast.likelihood
    jacobian = likelihood.network.jacobian(
        torch.zeros_like(one.state.theta.mean), likelihood.points.time, likelihood.point_x
    )
    generator = torch.Generator().manual_seed(1)
    elsewhere = torch.randn(6, jacobian.shape[1], generator=generator, dtype=torch.float64)
    for rows in (jacobian, elsewhere):
        found, wanted = (setting.state.theta.variance(rows) for setting in (one, other))
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-9)


@every_case
def test_the_elbo_is_that_of_the_plain_solver(case):
    fast, _ = evidences(case)
    scales = some_scales(fast)
    ascent, _ = dense_ascent(fast.likelihood, fast.phi, fast.prior.at(scales).precision)
    dense, _ = ascent.climb(ascent.start(), tolerance=1e-11, most=500)
    setting = replace(fast, hyper_priors=False).at(scales)
    assert setting.score == pytest.approx(dense.elbo, abs=1e-8)
    torch.testing.assert_close(setting.state.mean, dense.mean, rtol=0, atol=1e-5)


@every_case
def test_the_gradient_of_the_scales_is_that_of_finite_differences(case):
    # Far below the ceiling: where a curvature is cut off at 0, the climb does not end quite at the top.
    fast, _ = evidences(case, headroom=1000.0)
    scales = some_scales(fast)
    middle = fast.at(scales)
    gradient = fast.gradient(middle)
    assert float(gradient.abs().max()) > 0.1, "there is something to compare"
    for place, shift in enumerate(1e-3 * torch.eye(len(scales), dtype=torch.float64)):
        ends = [fast.at(scales + sign * shift, middle.state).score for sign in (1, -1)]
        assert float(gradient[place]) == pytest.approx((ends[0] - ends[1]) / 2e-3, abs=1e-3)


# -------------------------------------------------------------------- settings without directions of little information


def usual_evidence() -> tuple[Evidence, Setting]:
    """An evidence of 60 rows, and its top."""
    rows = simulated(60, covariates=3, entry=True, weight=True, seed=8)
    settings = DefaultSettings(tolerance=1e-9, max_sweeps=500)
    network = place_units(rows, settings)
    prior = build_prior(network, settings)
    phi = float(rows.event_weight.sum()) / rows.exposure
    likelihood = _likelihood(rows, network, settings)
    evidence = _evidence(likelihood, phi, prior, torch.zeros(network.size).double(), settings)
    return evidence, evidence.at(prior.medians)


@pytest.mark.parametrize("group", range(9))
@pytest.mark.parametrize("move", [-1.5, 1.0])
def test_a_setting_beside_the_top_is_about_that_of_the_whole_climb(group, move):
    evidence, top = usual_evidence()
    place = top.log_scales.clone()
    place[group] += move
    slow, fast = evidence.at(place), evidence.beside(place, top.state)
    assert fast.score <= slow.score + 1e-6
    # What it costs is about the same everywhere.
    cost = top.score - evidence.beside(top.log_scales, top.state).score
    assert 0 <= cost < 0.1
    assert fast.score + cost == pytest.approx(slow.score, abs=0.06)
    jacobian = evidence.likelihood.network.jacobian(
        torch.zeros_like(top.state.theta.mean), evidence.likelihood.points.time, evidence.likelihood.point_x
    )
    spread = slow.state.theta.variance(jacobian).sqrt()
    apart = jacobian @ (fast.state.theta.mean - slow.state.theta.mean)
    assert float((apart / spread).abs().max()) < 0.05
    ratio = fast.state.theta.variance(jacobian).sqrt() / spread
    torch.testing.assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=0.08)


def test_a_setting_that_cannot_come_up_to_a_score_is_left():
    evidence, top = usual_evidence()
    place = top.log_scales + 2.5
    whole = evidence.beside(place, top.state)
    left = evidence.beside(place, top.state, least=whole.score + 1000)
    assert left.info.steps < whole.info.steps
    assert left.score < whole.score
    assert evidence.beside(place, top.state, least=whole.score - 1000).score == whole.score


def test_a_climb_that_stopped_early_is_finished():
    evidence, top = usual_evidence()
    early = evidence.at(top.log_scales + 0.3, top.state, enough=0.3)
    whole = evidence.at(top.log_scales + 0.3)
    assert early.score == pytest.approx(whole.score, abs=0.1)
    assert evidence.finished(early).score == pytest.approx(whole.score, abs=1e-7)
    assert evidence.finished(early).info.converged


def test_steps_of_the_mean_alone_end_at_the_best_one_for_the_covariance():
    evidence, top = usual_evidence()
    solver = evidence.solver.at(evidence.prior.multipliers(top.log_scales + 0.5))
    ascent = evidence._ascent(solver, solver.precision)
    first = ascent.state(top.state.curvature, top.state.slope)
    settled, info = ascent.settle(first, solver, tolerance=1e-10, most=100)
    assert info.converged
    assert list(info.elbo) == sorted(info.elbo)
    assert settled.elbo > first.elbo
    assert torch.equal(settled.theta.inner_factor, first.theta.inner_factor)
    # No slope is left: that of the likelihood is the mean, which the prior pulls back by.
    torch.testing.assert_close(
        solver.transposed_times(settled.expected.slope), settled.theta.inner_mean, rtol=0, atol=1e-4
    )
    stopped, info = ascent.settle(first, solver, tolerance=1e-10, most=1)
    assert (info.steps, info.converged) == (2, False)
    assert first.elbo < stopped.elbo < settled.elbo


# ------------------------------------------------------------------------------------- what must not change a fit

QUICK = DefaultSettings(neighbourhoods=20, tolerance=1e-8)
ROWS = simulated(60, covariates=3, entry=True, weight=True, seed=8)
TIMES = torch.linspace(0.02, 1, 5, dtype=torch.float64)


def posterior(found: DefaultFit) -> Posterior:
    model = found.likelihood
    return Posterior(found.phi, found.theta, found.theta_star, model.network, model.normaliser, model.rho)


def moments(found: DefaultFit, x: Tensor = ROWS.x) -> tuple[Tensor, Tensor]:
    return g_moments(posterior(found), TIMES.repeat(len(x)), x.repeat_interleave(len(TIMES), 0))


def assert_same(one: DefaultFit, other: DefaultFit, tolerance: float) -> None:
    assert other.top.score == pytest.approx(one.top.score, abs=tolerance)
    for found, wanted in zip(moments(other), moments(one), strict=True):
        torch.testing.assert_close(found, wanted, rtol=0, atol=10 * tolerance)


@pytest.fixture(scope="module")
def usual() -> DefaultFit:
    return fit_default(ROWS, QUICK, seed=0)


def test_the_seed_changes_nothing(usual):
    other = fit_default(ROWS, QUICK, seed=1)
    assert usual.solver.solver == "separable"
    assert other.trace == usual.trace
    assert torch.equal(other.theta.mean, usual.theta.mean)


def test_a_weight_split_in_two_changes_nothing():
    """Without neighbourhoods, whose centres are every k-th row: rows in canonical form come without such pairs."""
    settings = replace(QUICK, neighbourhoods=0)
    twice = torch.cat([torch.arange(60), torch.arange(20)])
    split = torch.where(torch.arange(60) < 20, ROWS.weight / 2, ROWS.weight)
    halves = replace(ROWS.take(twice), weight=split[twice])
    assert_same(fit_default(ROWS, settings, seed=0), fit_default(halves, settings, seed=0), 1e-6)


def test_the_order_of_the_rows_changes_nothing():
    settings = replace(QUICK, neighbourhoods=0)
    order = torch.randperm(60, generator=torch.Generator().manual_seed(0))
    assert_same(fit_default(ROWS, settings, seed=0), fit_default(ROWS.take(order), settings, seed=0), 1e-6)


def test_fits_that_really_differ_are_told_apart(usual):
    moved = ROWS.time.clone()
    moved[int(ROWS.event.nonzero()[0])] *= 0.9
    other = fit_default(replace(ROWS, time=moved), QUICK, seed=0)
    assert float((moments(other)[0] - moments(usual)[0]).abs().max()) > 1e-3


# ------------------------------------------------------------------------------------------------------ a threshold


def log_hazard_along(found: DefaultFit, grid: Tensor) -> Tensor:
    """The posterior mean of g, averaged over times, from its own average along the grid."""
    time = torch.linspace(0.05, 0.5, 4, dtype=torch.float64)
    mean, _ = g_moments(posterior(found), time.repeat(len(grid)), grid.repeat_interleave(4, 0))
    along = mean.reshape(len(grid), 4).mean(1)
    return along - along.mean()


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_step_is_recovered_better_than_by_a_line(seed):
    rows: Cohort = cohort(500, covariates=4, seed=seed, effect=1.8)
    settings = DefaultSettings(neighbourhoods=0, average=False)
    curved, line = (
        fit_default(rows, each, seed=0) for each in (settings, changed(settings, curves=False, pairs=False))
    )
    grid = torch.zeros(81, 4, dtype=torch.float64)
    grid[:, 0] = torch.linspace(-2, 2, 81, dtype=torch.float64)
    truth = 1.8 * (grid[:, 0] > 0.3).double()
    truth -= truth.mean()
    misses = [float((log_hazard_along(each, grid) - truth).square().mean().sqrt()) for each in (curved, line)]
    assert misses[0] < 0.65 * misses[1]
    assert curved.top.score > line.top.score + 10


def test_effects_that_fade_are_told_from_effects_that_last():
    """One covariate matters until a fixed time and not after it, the other throughout."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(1500, 2, generator=generator, dtype=torch.float64)
    draws = -torch.log(torch.rand(1500, generator=generator, dtype=torch.float64))
    until = 0.15
    first, later = torch.exp(1.2 * x[:, 0] + 0.8 * x[:, 1]), torch.exp(0.8 * x[:, 1])
    time = torch.where(draws < until * first, draws / first, until + (draws - until * first) / later)
    rows = Cohort.of(time.clamp_max(1.0), time < 1, torch.zeros(1500), torch.ones(1500), x)
    found = fit_default(rows, DefaultSettings(neighbourhoods=0, average=False), seed=0)
    ends = torch.tensor([[1.0, 0], [-1, 0], [0, 1], [0, -1]], dtype=torch.float64)
    at = torch.tensor([0.03, 0.7], dtype=torch.float64)
    mean = g_moments(posterior(found), at.repeat(4), ends.repeat_interleave(2, 0))[0].reshape(4, 2)
    (early, late), (always, still) = ((mean[0] - mean[1]) / 2).tolist(), ((mean[2] - mean[3]) / 2).tolist()
    assert early > 0.9
    assert abs(late) < 0.3
    assert always == pytest.approx(0.8, abs=0.35)
    assert still == pytest.approx(0.8, abs=0.35)


def test_a_single_cause_is_the_fit_without_causes():
    rng = np.random.default_rng(5)
    time, event, x = rng.exponential(size=60), rng.random(60) < 0.7, rng.normal(size=(60, 2))
    plain = Cohort.of(time / time.max(), event, np.zeros(60), np.ones(60), x)
    fits = [
        fit_default(cohort, DefaultSettings(average=False), seed=0)
        for cohort in (plain, replace(plain, cause=torch.zeros(60, dtype=torch.long)))
    ]
    assert fits[0].trace == fits[1].trace
    assert torch.equal(fits[0].best_theta.mean, fits[1].best_theta.mean)
