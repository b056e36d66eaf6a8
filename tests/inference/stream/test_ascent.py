"""Streamed sweeps against the ascent in memory; steps against sweeps; runs that resume."""

import numpy as np
import pytest
import torch

from inference.streamed_problems import COHORT, ROWS, Kept, KilledError, batch_terms, streamed_problem
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.default.expectations import Ascent
from neuralsurv.inference.stream import ascent as streamed_ascent
from neuralsurv.inference.stream import streamed_problem as problems
from neuralsurv.inference.stream.ascent import sweep_all_rows, take_steps
from neuralsurv.inference.stream.packed_rows import block_order, minibatches
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.points import build_points
from neuralsurv.solvers.primal import PrimalSolver


@pytest.fixture
def held(monkeypatch):
    """Scales of the prior stay where they start."""
    hold_scales(monkeypatch)


def hold_scales(monkeypatch):
    monkeypatch.setattr(problems, "learn_scales", lambda directions, information, log_scales: log_scales)


def whole_likelihood(terms):
    points = build_points(COHORT, terms.rule, 1.0)
    return Likelihood(points, COHORT.x, terms.network, terms.normaliser, 1.0)


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(("star", "most", "close"), [(0.0, 3, 1e-9), (0.2, 60, 1e-4)])
def test_sweeps_are_the_steps_of_the_ascent_in_memory(star, most, close):
    # From the middle of the prior both take the same steps; from elsewhere they only end at the same place.
    terms = batch_terms(star=star)
    mode = terms.theta_star
    found = sweep_all_rows(streamed_problem(terms), tolerance=1e-9, most=most)
    likelihood = whole_likelihood(terms)
    precision = terms.directions.prior.at(terms.directions.prior.medians).precision
    value, rows = likelihood.network.value_and_rows(mode, likelihood.points.time, likelihood.point_x)
    ascent = Ascent(likelihood, terms.phi, value - rows.times(mode), PrimalSolver(rows, precision), precision)
    state, _ = ascent.climb(ascent.start(), tolerance=1e-9, most=most - 1)
    ours = terms.directions.weight_posterior(terms.information(found.sums), found.log_scales)
    torch.testing.assert_close(ours.mean, state.theta.mean, rtol=close, atol=close)
    some = rows.dense()[::97]
    torch.testing.assert_close(ours.variance(some), state.theta.variance(some), rtol=close, atol=0)
    # At the medians the log hyper-prior is 0.
    assert found.elbo[-1] == pytest.approx(state.elbo, abs=1e-7)


def test_the_score_never_falls_while_scales_are_learned_and_ends_at_a_stationary_point(monkeypatch):
    terms = batch_terms()
    found = sweep_all_rows(streamed_problem(terms), tolerance=1e-9, most=60)
    assert found.converged
    assert (np.diff(found.elbo) >= -1e-9).all()

    def score(log_scales):
        return sweep_all_rows(streamed_problem(terms, log_scales=log_scales), tolerance=1e-4, most=60).elbo[-1]

    hold_scales(monkeypatch)
    # Trend and network; a search on all scales would take as many fits again.
    shift = 0.05 * torch.eye(len(found.log_scales), dtype=torch.float64)[[1, -1]]
    around = [score(found.log_scales + sign * step) for step in shift for sign in (1, -1)]
    assert max(around) <= found.elbo[-1] + 1e-4


def test_a_score_that_is_not_a_number_is_named(monkeypatch):
    terms = batch_terms()
    monkeypatch.setattr(type(terms), "elbo", lambda *_: float("nan"))
    with pytest.raises(NotFiniteError, match="the ELBO became nan"):
        sweep_all_rows(streamed_problem(terms), tolerance=1e-3, most=3)


def test_a_step_that_lowers_the_score_is_halved_and_the_sweeps_end(monkeypatch):
    terms = batch_terms()
    given = iter([1.0] + [0.0] * 100)
    monkeypatch.setattr(type(terms), "elbo", lambda *_: next(given))
    found = sweep_all_rows(streamed_problem(terms), tolerance=1e-3, most=50)
    assert found.converged
    assert found.elbo == (1.0,)


def test_estimates_from_samples_are_unbiased():
    terms = batch_terms(star=0.2)
    problem = streamed_problem(terms)
    q = problem.start()
    total = problem.sums(np.arange(ROWS.blocks), q)
    parts = minibatches(block_order(ROWS.blocks, 7, 0), 1)
    estimates = [problem.sums(part, q) * (ROWS.blocks / len(part)) for part in parts]
    assert len({len(part) for part in parts}) == 1
    torch.testing.assert_close(sum(estimates) / len(parts), total, rtol=1e-10, atol=1e-9)


@pytest.mark.usefixtures("held")
def test_steps_on_samples_agree_with_sweeps():
    # Stated tolerance: means within 0.1 posterior standard deviations (root mean square), variances within 2 %.
    terms = batch_terms(star=0.1)
    exact = sweep_all_rows(streamed_problem(terms), tolerance=1e-8, most=60)
    steps = take_steps(streamed_problem(terms), blocks=2, passes=24, seed=1)
    assert_close_posteriors(terms, exact, steps, mean=0.1, variance=0.02)
    assert steps.converged
    assert steps.moved < 1


def assert_close_posteriors(terms, exact, steps, *, mean, variance):
    one, other = (terms.directions.posterior(terms.information(s.sums), s.log_scales) for s in (exact, steps))
    gap = torch.linalg.solve_triangular(one.inverse_factor.T, (other.mean - one.mean)[:, None], upper=True)
    assert float(gap.square().mean().sqrt()) < mean
    variances = [q.inverse_factor.square().sum(0) for q in (one, other)]
    assert float((variances[1] / variances[0] - 1).abs().max()) < variance


def test_steps_shrink_as_they_must():
    terms = batch_terms()
    run = streamed_ascent._Steps(streamed_problem(terms), blocks=1, passes=2, seed=0)
    rates = np.array([run.rate(step) for step in range(100_000)])
    assert rates[0] == 1
    assert (np.diff(rates[run.hold :]) < 0).all()
    # Like 2/t: the sum grows without end, that of the squares does not.
    assert rates[99_999] == pytest.approx(2 / 100_000, rel=1e-3)


def sweeps_of(checkpoint):
    return sweep_all_rows(streamed_problem(batch_terms(star=0.1), checkpoint=checkpoint), tolerance=1e-6, most=20)


def steps_of(checkpoint):
    return take_steps(streamed_problem(batch_terms(star=0.1), checkpoint=checkpoint), blocks=2, passes=2, seed=1)


@pytest.mark.parametrize("dies_after", [1, 5])
@pytest.mark.parametrize("run_of", [sweeps_of, steps_of])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(run_of, dies_after, monkeypatch):
    monkeypatch.setattr(streamed_ascent, "_PORTION", 3)
    whole = Kept()
    expected = run_of(whole)
    dying = Kept(dies_after=dies_after)
    with pytest.raises(KilledError):
        run_of(dying)
    found = run_of(Kept(dying.snapshots[-1]))
    assert torch.equal(found.sums, expected.sums)
    assert torch.equal(found.log_scales, expected.log_scales)
    assert found.elbo == expected.elbo
    # A finished run that is started again is finished at once, and the same.
    again = Kept(whole.snapshots[-1])
    finished = run_of(again)
    assert torch.equal(finished.sums, expected.sums)
    assert torch.equal(finished.log_scales, expected.log_scales)
    assert len(again.snapshots) == 1
