"""Natural-gradient steps: unbiased estimates, the end of the sweeps, step sizes, and runs that resume."""

import numpy as np
import pytest
import torch

from inference.streamed_problems import ROWS, Kept, KilledError, batch_terms, streamed_problem
from neuralsurv.inference.stream import natural_gradient
from neuralsurv.inference.stream import streamed_problem as problems
from neuralsurv.inference.stream.exact_sweeps import sweep_all_rows
from neuralsurv.inference.stream.natural_gradient import take_steps
from neuralsurv.inference.stream.packed_rows import block_order, minibatches


@pytest.fixture
def held(monkeypatch):
    """Scales of the prior stay where they start."""
    monkeypatch.setattr(problems, "learn_scales", lambda directions, information, log_scales: log_scales)


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
    run = natural_gradient._Steps(streamed_problem(terms), blocks=1, passes=2, seed=0)
    rates = np.array([run.rate(step) for step in range(100_000)])
    assert rates[0] == 1
    assert (np.diff(rates[run.hold :]) < 0).all()
    # Like 2/t: the sum grows without end, that of the squares does not.
    assert rates[99_999] == pytest.approx(2 / 100_000, rel=1e-3)


def run_of(checkpoint):
    return take_steps(streamed_problem(batch_terms(star=0.1), checkpoint=checkpoint), blocks=2, passes=2, seed=1)


@pytest.mark.parametrize("dies_after", [1, 5])
def test_a_run_that_is_killed_and_resumed_ends_with_the_same_bits(dies_after):
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
