"""The setting in which no covariate matters: what it is, and the share of the posterior that it gets."""

import math
from dataclasses import replace

import pytest
import torch

from inference.problems import simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.fit import DefaultFit, fit_default
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.model.additive import TIME_GROUPS
from neuralsurv.solvers.gaussian_mixture import MixtureGaussian

PLACED = DefaultSettings()


def fit(rows: Cohort, settings: DefaultSettings = PLACED) -> DefaultFit:
    return fit_default(rows, settings, seed=0)


def unrelated(rows: Cohort, seed: int) -> Cohort:
    """Return the rows with covariates in an order that has nothing to do with the outcome."""
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    return replace(rows, x=rows.x[order])


def related(rows: Cohort) -> Cohort:
    """Return the rows with times that a covariate shortens or lengthens five times."""
    time = rows.time * torch.exp(-1.6 * rows.x[:, 0])
    return replace(rows, time=time / time.max(), entry=torch.zeros_like(time))


ROWS = simulated(120, covariates=3, seed=4)


@pytest.mark.parametrize(
    "settings", [PLACED, DefaultSettings(hidden=(8,), random_network=True)], ids=["placed", "hidden"]
)
def test_where_nothing_predicts_it_has_most_of_the_posterior_and_where_something_does_nothing(settings):
    shares = [fit(unrelated(ROWS, seed), settings).null_share for seed in range(4)]
    assert sorted(shares)[1] > 0.5
    assert fit(related(ROWS), settings).null_share < 0.01


def test_its_curves_are_those_of_a_fit_without_covariates():
    found = fit(unrelated(ROWS, 0))
    alone = fit(replace(ROWS, x=ROWS.x[:, :0]), replace(PLACED, average=False))
    assert isinstance(found.theta, MixtureGaussian)
    null = found.theta.parts[-1]
    time = torch.linspace(0.02, 1, 9, dtype=torch.float64)
    network, other = found.likelihood.network, alone.likelihood.network
    # The same mean and variance of g for everybody.
    for x in (ROWS.x[:1], 3 * ROWS.x[5:6]):
        rows = network.value_and_rows(found.theta_star, time, x.expand(len(time), -1))[1].dense()
        lone = other.value_and_rows(alone.theta_star, time, x[:, :0].expand(len(time), -1))[1].dense()
        torch.testing.assert_close(rows @ null.mean, lone @ alone.theta.mean, rtol=0, atol=0.02)
        torch.testing.assert_close(null.variance(rows).sqrt(), alone.theta.variance(lone).sqrt(), rtol=0.02, atol=0.01)


def test_the_share_agrees_with_the_evidence_of_the_two_models():
    found = fit(unrelated(ROWS, 1))
    # By hand: the ratio of its share to that of all others, over the ratio of their prior shares.
    factor = found.null_share / (1 - found.null_share) / (0.2 / 0.8)
    whole = fit(unrelated(ROWS, 1), replace(PLACED, average=False))
    alone = fit(replace(ROWS, x=ROWS.x[:, :0]), replace(PLACED, average=False))
    # Scores at the tops leave out how narrow they are: the ratio is within a few nats of the difference.
    assert math.log(factor) == pytest.approx(alone.top.score - whole.top.score, abs=4)


def test_the_scales_that_are_reported_are_those_of_the_model_with_covariates():
    found = fit(unrelated(ROWS, 0))
    assert min(found.scales.values()) > 0.005
    assert found.settings == len(found.theta.parts)
    assert found.diagnose().null_share == found.null_share


@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        (replace(ROWS, x=ROWS.x[:, :0]), PLACED),
        (ROWS, replace(PLACED, average=False)),
        (ROWS, replace(PLACED, ablation=replace(PLACED.ablation, hyper_priors=False))),
    ],
    ids=["no covariates", "no average", "no hyper-priors"],
)
def test_where_there_is_nothing_to_compare_there_is_none(rows, settings):
    assert fit(rows, settings).null_share == 0


def test_only_time_is_left_of_the_model():
    network = fit(ROWS, replace(PLACED, average=False)).likelihood.network
    left = network.without_covariates()
    assert tuple(left.groups) == TIME_GROUPS[:2] == ("trend", "bumps")
    assert left.basis is network.basis
    assert left.offset == network.offset


def test_with_several_causes_their_levels_and_times_are_left():
    network = replace(fit(ROWS, replace(PLACED, average=False)).likelihood.network, levels=(-4.0, -5.0))
    left = network.without_covariates()
    assert left.levels == network.levels
    assert tuple(left.groups) == TIME_GROUPS
