"""Streamed sweeps: against the in-memory ascent, at the end of the search for scales, and resumed."""

import numpy as np
import pytest
import torch

from inference.streamed_problems import COHORT, Kept, KilledError, batch_terms, streamed_problem
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.default.expectations import Ascent
from neuralsurv.inference.stream import exact_sweeps
from neuralsurv.inference.stream import streamed_problem as problems
from neuralsurv.inference.stream.exact_sweeps import sweep_all_rows
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


def run_of(checkpoint):
    return sweep_all_rows(streamed_problem(batch_terms(star=0.1), checkpoint=checkpoint), tolerance=1e-6, most=20)


@pytest.mark.parametrize("dies_after", [1, 5])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(dies_after, monkeypatch):
    monkeypatch.setattr(exact_sweeps, "_PORTION", 3)
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
