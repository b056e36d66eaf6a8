"""The evidence of the scales: its gradient, its top against a grid, the design of the average, and interrupts."""

import math
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from inference.exact_bound import additive_likelihood, dense_ascent, usual_rows
from neuralsurv.inference.default.scales import (
    Evidence,
    Search,
    Setting,
    average_over,
    axis_design,
    find_top,
    settings_around,
)
from neuralsurv.model.additive import Additive
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.solvers.grouped import grouped_solver
from neuralsurv.solvers.rows import DenseRows, LayeredRows, Rows


def evidence_of(hidden: tuple[int, ...] | None = None, n: int = 25, **options: object) -> Evidence:
    """Two covariates, a trend, one bump that is in no group, a bias; and a network where one is asked for."""
    likelihood, phi = additive_likelihood(usual_rows(n), hidden=hidden, headroom=100.0)
    network = likelihood.network
    assert isinstance(network, Additive)
    linearised = linearise_network(
        network, torch.zeros(network.size).double(), likelihood.points.time, likelihood.point_x
    )
    linear = network.linear_size
    groups = [Group("covariates", 0, 2, 0.8, 0.6), Group("trend", 2, 3, 0.5, 0.7)]
    parts: list[tuple[Rows, bool]] = [(DenseRows(linearised.rows.dense()[:, :linear]), True)]
    if hidden is not None:
        groups.append(Group("network", linear, network.size, 0.4, 0.8))
        parts.append((LayeredRows(linearised.rows.layers[1:]), False))
    unit = torch.linspace(1, 4, network.size, dtype=torch.float64)
    importance = torch.ones(len(likelihood.points), dtype=torch.float64)
    solver = grouped_solver(parts, unit, importance, tolerance=1e-9, most=1000)
    settings = {"tolerance": 1e-11, "most": 500} | options
    return Evidence(likelihood, phi, linearised.offset, solver, GroupedPrior(unit, tuple(groups)), **settings)


# ---------------------------------------------------------------------------------------------------- evidence


@pytest.mark.parametrize("hidden", [None, (3,)], ids=["linear", "with network"])
def test_the_score_is_the_elbo_of_the_scaled_prior_and_the_log_hyper_prior(hidden):
    evidence = evidence_of(hidden)
    log_scales = torch.linspace(-0.7, 0.4, len(evidence.prior.groups), dtype=torch.float64)
    setting = evidence.at(log_scales)
    precision = evidence.prior.at(log_scales).precision
    ascent, _ = dense_ascent(evidence.likelihood, evidence.phi, precision)
    dense, _ = ascent.climb(ascent.start(), tolerance=1e-11, most=500)
    hyper = sum(
        -0.5 * ((float(s) - math.log(group.median)) / group.spread) ** 2
        for s, group in zip(log_scales, evidence.prior.groups, strict=True)
    )
    assert setting.score == pytest.approx(dense.elbo + hyper, abs=1e-6)
    torch.testing.assert_close(setting.state.theta.mean, dense.theta.mean, rtol=1e-4, atol=1e-5)
    bare = replace(evidence, hyper_priors=False).at(log_scales)
    assert bare.score == pytest.approx(dense.elbo, abs=1e-6)
    assert setting.info.converged
    assert torch.equal(setting.log_scales, log_scales)


@pytest.mark.parametrize(("hidden", "hyper_priors"), [(None, True), ((3,), True), ((3,), False)])
def test_the_gradient_is_that_of_finite_differences(hidden, hyper_priors):
    evidence = evidence_of(hidden, n=12, hyper_priors=hyper_priors, tolerance=1e-9)
    at = torch.linspace(-0.5, 0.3, len(evidence.prior.groups), dtype=torch.float64)
    found = evidence.gradient(evidence.at(at))
    assert found.shape == at.shape
    assert float(found.abs().max()) > 0.1, "there is something to compare"
    for place, shift in enumerate(1e-3 * torch.eye(len(at), dtype=torch.float64)):
        difference = (evidence.at(at + shift).score - evidence.at(at - shift).score) / 2e-3
        assert float(found[place]) == pytest.approx(difference, abs=2e-4)


def test_the_start_of_a_climb_does_not_change_its_end():
    evidence = evidence_of((3,))
    at = evidence.prior.medians
    cold, warm = evidence.at(at), evidence.at(at, evidence.at(at + 0.3).state)
    assert warm.score == pytest.approx(cold.score, abs=1e-8)


# ------------------------------------------------------------------------------------------------------ search


def test_the_top_is_that_of_a_grid():
    evidence = evidence_of(tolerance=1e-6)
    search = find_top(evidence, evidence.prior.medians)
    steps = torch.linspace(-1.4, 1.0, 7, dtype=torch.float64)
    grid = evidence.prior.medians + torch.cartesian_prod(steps, steps)
    scores = torch.tensor([evidence.at(place, search.top.state).score for place in grid], dtype=torch.float64)
    best = grid[int(scores.argmax())]
    assert float(scores.max()) < search.top.score + 0.02
    assert float((search.top.log_scales - best).abs().max()) < 0.4
    # The grid holds places that are much worse, and its edge is none of the best.
    assert float(scores.min()) < search.top.score - 1
    assert not bool(torch.isclose((best - evidence.prior.medians).abs(), steps[[0, -1]].abs()).any())
    assert not search.interrupted


@pytest.mark.parametrize("start", [-2.0, 0.0, 1.5])
def test_the_search_ends_at_one_top_from_wherever_it_starts(start):
    evidence = evidence_of((3,), tolerance=1e-6)
    usual = find_top(evidence, evidence.prior.medians).top
    search = find_top(evidence, evidence.prior.medians + start)
    assert search.top.score == pytest.approx(usual.score, abs=0.05)
    assert list(search.scores) == sorted(search.scores), "the best so far never falls"
    assert search.scores[-1] == search.top.score


@pytest.mark.parametrize("hyper_priors", [True, False])
@pytest.mark.parametrize("hidden", [None, (3,)], ids=["linear", "with network"])
def test_the_information_is_that_of_the_quadratic_likelihood(hidden, hyper_priors):
    """Differences of the gradient, with the curvatures and slopes of the points held."""
    evidence = evidence_of(hidden, hyper_priors=hyper_priors)
    log_scales = torch.linspace(-0.7, 0.4, len(evidence.prior.groups), dtype=torch.float64)
    setting = evidence.at(log_scales)

    def gradient(place: Tensor) -> Tensor:
        solver = evidence.solver.at(evidence.prior.multipliers(place))
        theta = solver.solve(setting.state.curvature, setting.state.slope)
        excess = theta.inner_mean.square() + theta.inner_covariance.diagonal() - 1
        places = [evidence.solver.directions(group.start, group.stop) for group in evidence.prior.groups]
        found = torch.stack([excess[place].sum() for place in places])
        return found - hyper_priors * (place - evidence.prior.medians) / evidence.prior.spreads**2

    steps = 1e-5 * torch.eye(len(log_scales), dtype=torch.float64)
    expected = torch.stack([(gradient(log_scales - s) - gradient(log_scales + s)) / 2e-5 for s in steps])
    torch.testing.assert_close(evidence.information(setting), expected, rtol=1e-6, atol=1e-8)


def test_every_setting_that_is_tried_is_reported():
    evidence = evidence_of(tolerance=1e-6)
    seen: list[tuple[int, float]] = []
    search = find_top(evidence, evidence.prior.medians + 1, lambda step, score: seen.append((step, score)))
    assert [score for _, score in seen] == list(search.scores[1:])
    assert [step for step, _ in seen] == list(range(2, len(search.scores) + 1))


def test_without_groups_there_is_nothing_to_search_for():
    evidence = evidence_of()
    evidence = replace(evidence, prior=GroupedPrior(evidence.prior.unit, ()))
    search = find_top(evidence, torch.zeros(0, dtype=torch.float64))
    assert search.scores == (search.top.score,)


# -------------------------------------------------------------------------------------------------- interrupts


class Stop:
    """Presses Ctrl-C at the n-th report."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, step: int, score: float) -> None:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt


@pytest.mark.parametrize("at", [1, 3])
def test_an_interrupted_search_leaves_the_best_of_the_settings_before_it(at):
    evidence = evidence_of(tolerance=1e-6)
    start = evidence.prior.medians + 1.5
    whole = find_top(evidence, start)
    search = find_top(evidence, start, Stop(at))
    assert search.interrupted
    assert len(search.scores) == at + 1
    assert search.scores == whole.scores[: at + 1]
    assert search.top.score in whole.scores
    assert search.top.score < whole.top.score


def test_before_the_first_setting_there_is_nothing_to_keep(monkeypatch):
    def stop(*_: object, **__: object) -> Setting:
        raise KeyboardInterrupt

    monkeypatch.setattr(Evidence, "at", stop)
    evidence = evidence_of()
    with pytest.raises(KeyboardInterrupt):
        find_top(evidence, evidence.prior.medians)


# ----------------------------------------------------------------------------------------------------- average


@pytest.mark.parametrize("count", range(1, 7))
def test_the_design_has_the_moments_of_a_standard_gaussian(count):
    points, weights = axis_design(count)
    assert points.shape == (len(weights), count)
    assert bool((weights > 0).all())
    assert float(weights.sum()) == pytest.approx(1, rel=1e-14)
    torch.testing.assert_close(weights @ points, torch.zeros(count).double(), rtol=0, atol=1e-14)
    torch.testing.assert_close(points.T * weights @ points, torch.eye(count).double(), rtol=1e-13, atol=1e-14)
    # Third moments too: they are zero by symmetry.
    third = torch.einsum("p,pi,pj,pk->ijk", weights, points, points, points)
    assert float(third.abs().max()) < 1e-13
    assert not bool(points[0].any()), "the first is the centre"
    assert len(torch.unique(points, dim=0)) == len(points) == 2 * count + 1


@dataclass(frozen=True)
class Stub:
    """An evidence whose log posterior is given."""

    precision: Tensor
    center: Tensor
    prior: GroupedPrior
    skew: float = 0.0

    def beside(self, log_scales: Tensor, warm: object, least: float = 0.0) -> Setting:
        return self.at(log_scales)

    def finished(self, setting: Setting) -> Setting:
        return setting

    def at(self, log_scales: Tensor, warm: object = None, *, enough: float = 0.0) -> Setting:
        away = log_scales - self.center
        score = 3.0 - 0.5 * float(away @ self.precision @ away) + self.skew * float((away**3).sum())
        return Setting(log_scales, score, None, None)  # type: ignore[arg-type]

    def gradient(self, setting: Setting) -> Tensor:
        away = setting.log_scales - self.center
        return -self.precision @ away + 3 * self.skew * away**2

    def information(self, setting: Setting) -> Tensor:
        return self.precision


def stub(precision: Tensor, spread: float = 2.0, skew: float = 0.0) -> Stub:
    count = len(precision)
    groups = tuple(Group(str(k), k, k + 1, 1.0, spread) for k in range(count))
    center = torch.linspace(-1, 0.5, count, dtype=torch.float64)
    return Stub(precision, center, GroupedPrior(torch.ones(count).double(), groups), skew)


def averaged(evidence: Stub) -> tuple[Tensor, Tensor, list[float]]:
    """Return mean and covariance of the log scales over the settings, and the shares."""
    average = settings_around(evidence, evidence.at(evidence.center))  # type: ignore[arg-type]
    places = torch.stack([setting.log_scales for setting in average.settings])
    weights = torch.tensor(average.shares, dtype=torch.float64)
    mean = weights @ places
    return mean, (places - mean).T * weights @ (places - mean), list(average.shares)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_gaussian_log_posterior_is_integrated_exactly(count):
    noise = torch.randn(count, count, generator=torch.Generator().manual_seed(count), dtype=torch.float64)
    precision = noise @ noise.T + torch.eye(count, dtype=torch.float64)
    evidence = stub(precision)
    mean, covariance, shares = averaged(evidence)
    torch.testing.assert_close(mean, evidence.center, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(covariance, torch.linalg.inv(precision), rtol=1e-7, atol=1e-9)
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    torch.testing.assert_close(torch.tensor(shares, dtype=torch.float64), axis_design(count)[1], rtol=1e-6, atol=1e-12)


def test_a_direction_flatter_than_the_widest_hyper_prior_is_taken_as_wide_as_that():
    precision = torch.diag(torch.tensor([4.0, 0.01], dtype=torch.float64))
    average = settings_around(stub(precision, spread=0.7), stub(precision).at(stub(precision).center))
    places = torch.stack([setting.log_scales for setting in average.settings]) - stub(precision).center
    radius = 1 / axis_design(2)[0][1:].norm(dim=1)[0]
    assert float(places[:, 0].abs().max() * radius) == pytest.approx(0.5, rel=1e-6)
    assert float(places[:, 1].abs().max() * radius) == pytest.approx(0.7, rel=1e-6)
    # The posterior is flatter than the design takes it to be, so the points away from the top count for more.
    assert average.shares[0] < float(axis_design(2)[1][0])


def test_where_the_posterior_is_skewed_the_shares_lean_to_its_heavier_side():
    precision = torch.tensor([[4.0]], dtype=torch.float64)
    mean, _, shares = averaged(stub(precision, skew=0.2))
    assert float(mean) > float(stub(precision).center)
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    average = settings_around(stub(precision, skew=0.2), stub(precision).at(stub(precision).center))
    scores = torch.tensor([setting.score for setting in average.settings], dtype=torch.float64)
    # By hand: the design's weight times the ratio of the posterior to the Gaussian that the design is for.
    points, weights = axis_design(1)
    log = weights.log() + scores + 0.5 * points.squeeze(1) ** 2
    torch.testing.assert_close(torch.tensor(shares, dtype=torch.float64), torch.softmax(log, 0), rtol=1e-9, atol=0)


@dataclass(frozen=True)
class TwoTops(Stub):
    """Two tops of unit width, the one that is not at the center four away and higher by ten."""

    def at(self, log_scales: Tensor, warm: object = None, *, enough: float = 0.0) -> Setting:
        return Setting(log_scales, float(torch.logsumexp(self.both(log_scales), 0)), None, None)  # type: ignore[arg-type]

    def both(self, log_scales: Tensor) -> Tensor:
        away = log_scales - self.center
        return torch.stack([-0.5 * away @ away, 10 - 0.5 * (away - 4.0) @ (away - 4.0)])

    def gradient(self, setting: Setting) -> Tensor:
        away = setting.log_scales - self.center
        shares = torch.softmax(self.both(setting.log_scales), 0)
        return -shares[0] * away - shares[1] * (away - 4.0)


def test_a_higher_top_that_the_design_meets_is_climbed():
    one = stub(torch.ones(1, 1, dtype=torch.float64))
    evidence = TwoTops(one.precision, one.center, one.prior)
    first = evidence.at(evidence.center)
    search = Search(first, (first.score,), interrupted=False)
    alone = settings_around(evidence, first)  # type: ignore[arg-type]
    assert max(alone.shares) > 0.7, "one point of the design has most of the weight"
    found, average = average_over(evidence, search)  # type: ignore[arg-type]
    assert float(found.top.log_scales - evidence.center) == pytest.approx(4, abs=0.2)
    assert found.top.score == pytest.approx(10, abs=0.05)
    assert max(setting.score for setting in average.settings) <= found.top.score + 0.02
    assert list(found.scores) == sorted(found.scores)
    torch.testing.assert_close(torch.tensor(average.shares).double(), axis_design(1)[1], rtol=0.1, atol=0.02)


def test_where_no_setting_is_better_the_search_is_kept():
    evidence = stub(torch.eye(2, dtype=torch.float64))
    top = evidence.at(evidence.center)
    search = Search(top, (top.score,), interrupted=False)
    found, average = average_over(evidence, search)  # type: ignore[arg-type]
    assert found is search
    assert (len(average.settings), sum(average.shares)) == (5, pytest.approx(1))


def test_settings_around_a_real_top():
    evidence = evidence_of((3,), tolerance=1e-6)
    top = find_top(evidence, evidence.prior.medians).top
    seen: list[int] = []
    average = settings_around(evidence, top, lambda step, score: seen.append(step))
    settings, shares = average.settings, average.shares
    assert settings[0] is top
    assert len(settings) == len(axis_design(3)[1]) == len(shares)
    assert seen == list(range(1, len(settings)))
    assert sum(shares) == pytest.approx(1, rel=1e-12)
    assert min(shares) > 0
    assert max(shares) < 0.5
    for setting in settings[1:]:
        assert setting.score < top.score + 0.02
        assert setting.score > top.score - 10


@pytest.mark.parametrize("skew", [0.0, 0.05])
def test_the_evidence_is_the_integral_over_the_scales(skew):
    precision = torch.tensor([[3.0, 0.8], [0.8, 2.0]], dtype=torch.float64)
    evidence = stub(precision, spread=1.5, skew=skew)
    average = settings_around(evidence, evidence.at(evidence.center))  # type: ignore[arg-type]
    steps = torch.linspace(-6, 6, 241, dtype=torch.float64)
    grid = torch.cartesian_prod(steps, steps)
    scores = torch.tensor([evidence.at(evidence.center + place).score for place in grid]).double()
    # The score has the density of the hyper-prior relative to that at its median.
    integral = float(torch.logsumexp(scores, 0)) + 2 * math.log(0.05) - 2 * math.log(1.5 * math.sqrt(2 * math.pi))
    assert average.log_evidence == pytest.approx(integral, abs=1e-6 if skew == 0 else 0.02)


def test_the_null_setting_has_its_share_by_the_rule_of_bayes():
    evidence = stub(torch.eye(2, dtype=torch.float64))
    top = evidence.at(evidence.center)
    average = settings_around(evidence, top)  # type: ignore[arg-type]
    both = average.with_null(top, average.log_evidence + math.log(3), prior_share=0.2)
    assert both.null_share == pytest.approx(3 * 0.2 / (3 * 0.2 + 0.8), rel=1e-12)
    assert both.shares[-1] == both.null_share
    assert sum(both.shares) == pytest.approx(1, rel=1e-12)
    assert both.shares[0] / both.shares[1] == pytest.approx(average.shares[0] / average.shares[1], rel=1e-12)
    assert both.settings == (*average.settings, top)


def test_a_null_setting_of_next_to_no_share_is_left_out():
    evidence = stub(torch.eye(2, dtype=torch.float64))
    average = settings_around(evidence, evidence.at(evidence.center))  # type: ignore[arg-type]
    assert average.with_null(average.settings[0], average.log_evidence - 10, prior_share=0.2) is average
