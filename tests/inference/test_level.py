"""The level against a plain twin: its score, its derivatives and its top; and what it does to a wide posterior."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize

from inference.problems import Rows, simulated
from inference.streamed_problems import COHORT, held_terms, pack
from neuralsurv.data.outcome import Outcome
from neuralsurv.inference import level
from neuralsurv.inference.distributed import Alone
from neuralsurv.inference.level import LevelProblem, set_level
from neuralsurv.inference.packed import RowBatch
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.model.prior import Held
from neuralsurv.posterior import Posterior
from neuralsurv.solvers.subspace import SubspaceGaussian


def level_problem(rows: Rows, width: float = 1.0) -> LevelProblem:
    """A posterior that knows the leading weights to a tenth of their prior, and of the others nothing."""
    terms, mode = held_terms(rows, hidden=(6,), star=0.3)
    linear = terms.linear
    prior = linear.directions.prior
    precision = prior.at(prior.medians).precision
    units = precision.clone()
    lead = linear.network.linear_size
    units[lead:] /= width**2
    basis = torch.eye(len(units), dtype=torch.float64)[:, : lead + 2]
    generator = torch.Generator().manual_seed(4)
    inner = 0.3 * torch.randn(lead + 2, generator=generator, dtype=torch.float64)
    theta = SubspaceGaussian(units, basis, inner, 10 * torch.eye(lead + 2, dtype=torch.float64))
    return LevelProblem(linear.network, linear.normaliser, linear.rule, mode, theta, terms.phi, precision)


def batch_of(rows: Rows) -> RowBatch:
    return RowBatch(rows.time, rows.event, rows.entry, rows.weight, rows.x)


def plain_score(problem: LevelProblem, rows: Rows, draws: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """The same score, row by row, with the whole Jacobian and the weights themselves moved."""
    moved = torch.zeros_like(problem.precision).index_put((problem.places,), shift)
    total = shift.new_zeros(())
    for i in range(len(rows.time)):
        nodes = problem.rule.nodes(rows.entry[i : i + 1], rows.time[i : i + 1], 1.0)
        time = torch.cat([rows.time[i : i + 1], nodes.time])
        x = rows.x[i].expand(len(time), -1)
        jacobian = problem.network.jacobian(problem.theta_star, time, x)
        offset = problem.network.value(problem.theta_star, time, x) - jacobian @ problem.theta_star
        share = torch.sigmoid(offset + (draws + moved) @ jacobian.T)
        found = -problem.phi * share[:, 1:] @ (nodes.weight / problem.normaliser(nodes.time, x[1:]))
        if rows.event[i]:
            found = found + torch.log(share[:, 0])
        total = total + rows.weight[i] * torch.log(torch.exp(found).mean())
    return total


@pytest.mark.parametrize("which", [slice(0, 25), slice(40, 41)])
def test_score_and_derivatives_are_those_of_the_plain_twin(which):
    some = COHORT.take(torch.arange(len(COHORT.time))[which])
    problem = level_problem(COHORT)
    draws = problem.theta.draw(30, torch.Generator().manual_seed(1))
    k = len(problem.places)
    shift = 0.4 * torch.randn(k, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    sums = problem.batch(batch_of(some), draws).sums(shift)

    def score(at):
        return plain_score(problem, some, draws, at)

    torch.testing.assert_close(sums[0], score(shift), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(sums[1 : 1 + k], torch.autograd.functional.jacobian(score, shift), rtol=1e-8, atol=1e-9)
    hessian = torch.autograd.functional.hessian(score, shift)
    torch.testing.assert_close(sums[1 + k :].reshape(k, k), -hessian, rtol=1e-7, atol=1e-8)


def test_the_level_is_the_top_of_the_score_and_nothing_else_moves(monkeypatch):
    monkeypatch.setattr(level, "_DRAWS", 25)
    problem, rows = level_problem(COHORT), pack(COHORT)
    found = set_level(problem, rows, Alone(), 7)
    rows.close()
    seed = int(np.random.SeedSequence([7, level._PURPOSE]).generate_state(1)[0])
    draws = problem.theta.draw(25, torch.Generator().manual_seed(seed))
    batch = problem.batch(batch_of(COHORT), draws)
    precision, weights = problem.precision[problem.places], problem.theta.mean[problem.places]

    def loss(shift):
        at = torch.from_numpy(shift)
        sums = batch.sums(at)
        value = sums[0] - 0.5 * precision @ (weights + at) ** 2
        return -float(value), -(sums[1 : 1 + len(at)] - precision * (weights + at)).numpy()

    best = minimize(loss, np.zeros(len(weights)), jac=True, method="BFGS", options={"gtol": 1e-7}).x
    moved = found.mean - problem.theta.mean
    np.testing.assert_allclose(moved[problem.places], best, atol=1e-4)
    others = torch.ones(len(moved), dtype=torch.bool)
    others[problem.places] = False
    torch.testing.assert_close(moved[others], torch.zeros_like(moved[others]), rtol=0, atol=1e-12)
    assert torch.equal(found.inner_factor, problem.theta.inner_factor)


def test_one_step_on_many_rows_comes_close_to_settling_on_them(monkeypatch):
    cohort = simulated(4000, covariates=3, seed=8)
    problem, rows = level_problem(cohort), pack(cohort, chunk=256)
    whole = set_level(problem, rows, Alone(), 3).mean[problem.places]
    monkeypatch.setattr(level, "_BLOCKS_TO_SETTLE", 4)
    stepped = set_level(problem, rows, Alone(), 3).mean[problem.places]
    monkeypatch.setattr(level, "_BLOCKS_TO_FINISH", 4)
    few = set_level(problem, rows, Alone(), 3).mean[problem.places]
    rows.close()
    times = torch.linspace(0.02, 0.9, 30, dtype=torch.float64)
    columns = problem.columns(times)
    away_few, away = ((columns @ (end - whole)).abs().mean() for end in (few, stepped))
    assert float(away) < 0.3 * float(away_few)


def test_a_row_of_weight_two_is_two_rows():
    one = replace(COHORT, weight=torch.full_like(COHORT.weight, 2.0)).take(torch.arange(200))
    twice = replace(one, weight=torch.ones(200, dtype=torch.float64)).take(torch.arange(200).repeat(2))
    problem = level_problem(COHORT)
    found = []
    for cohort in (one, twice):
        rows = pack(cohort)
        found.append(set_level(problem, rows, Alone(), 0).mean)
        rows.close()
    torch.testing.assert_close(*found, rtol=0, atol=1e-5)


def test_mean_curves_of_a_wide_posterior_meet_kaplan_meier():
    cohort = simulated(3000, covariates=2, censoring=0.3, seed=9)
    problem, rows = level_problem(cohort, width=3.0), pack(cohort)
    # The effect of the first covariate is known; the network is not, and much wider than what it stands for.
    known = torch.zeros_like(problem.theta.inner_mean)
    known[0] = problem.theta.precision[0].sqrt()
    problem = replace(problem, theta=replace(problem.theta, inner_mean=known))
    set_right = set_level(problem, rows, Alone(), 1)
    rows.close()
    times = torch.linspace(0.01, 0.25, 8, dtype=torch.float64)
    table = pd.DataFrame({"time": cohort.time, "event": cohort.event})
    observed = survival_curve(Outcome.from_frame(table, "time", "event")).after(times.numpy())

    def gap(theta):
        posterior = Posterior(Held(problem.phi), theta, problem.theta_star, problem.network, problem.normaliser, 1.0)
        draws = posterior.draw(200, 5)
        curves = torch.exp(-posterior.cumulative_hazard_draws(draws, times, cohort.x[:300])).mean((0, 1))
        return float(np.abs(curves.numpy() - observed).max())

    assert gap(problem.theta) > 0.1
    assert gap(set_right) < 0.04
