"""Exact draws for a fit: the coordinates that are sampled, and what they mean for the weights."""

import math

import pytest
import torch

from false_alarm import z_bound
from inference.problems import simulated
from neuralsurv.inference.default.fit import fit_default
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.exact import directions as room
from neuralsurv.inference.exact.fit import linear_model, sample_fit
from neuralsurv.inference.paper.fit import fit_paper
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.model.linearise import linearise_network

COHORT = simulated(16, entry=True, seed=1)


def fitted(preset, **options):
    if preset == "paper":
        return fit_paper(COHORT, PaperSettings(hidden=(4,), **options), seed=0)
    return fit_default(COHORT, DefaultSettings(hidden=(4,), **options), seed=0)


@pytest.fixture(scope="module")
def fits():
    return {"paper": fitted("paper"), "default": fitted("default")}


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("reduced", [False, True])
def test_coordinates_are_those_of_the_network(fits, monkeypatch, preset, reduced):
    if reduced:
        monkeypatch.setattr(room, "_MOST_WEIGHTS", 5)
    fit = fits[preset]
    model, directions = linear_model(fit, COHORT)
    assert (directions.solver is None) != reduced
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(50, directions.rank, generator=generator, dtype=torch.float64)
    log_scales = torch.zeros(50, len(directions.prior.groups), dtype=torch.float64)
    theta = directions.weights(z, log_scales, generator)
    row = torch.tensor([0, 7, 3])
    # Where people were at risk: the data do not speak of other times.
    at = COHORT.entry[row] + (COHORT.time - COHORT.entry)[row] * torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
    offset, rows = model.linear(at, row)
    linearised = linearise_network(fit.likelihood.network, fit.theta_star, at, COHORT.x[row])
    g = linearised.offset + theta @ linearised.rows.dense().T
    # What lies across the directions is the prior's, and next to nothing at the points.
    assert float((g - (offset + z @ rows.T)).abs().max()) < (0.1 if reduced else 1e-9)


def test_weights_across_the_directions_have_their_prior(fits, monkeypatch):
    monkeypatch.setattr(room, "_MOST_WEIGHTS", 5)
    monkeypatch.setattr(room, "_TOLERANCE", 1.0)
    _, directions = linear_model(fits["default"], COHORT)
    count, size = 4000, len(directions.prior.unit)
    assert directions.rank < size
    log_scales = torch.linspace(-1, 1, len(directions.prior.groups), dtype=torch.float64)
    generator = torch.Generator().manual_seed(1)
    z = torch.randn(count, directions.rank, generator=generator, dtype=torch.float64)
    for group, log_scale in zip(directions.groups, log_scales, strict=True):
        z[:, group.start : group.stop] *= math.exp(log_scale)
    theta = directions.weights(z, log_scales.expand(count, -1), generator)
    whitened = theta * directions.prior.at(log_scales).precision.sqrt()
    assert float(whitened.mean(0).abs().max()) * math.sqrt(count) < z_bound(2 * size)
    assert float((whitened.square().mean(0) - 1).abs().max()) * math.sqrt(count / 2) < z_bound(2 * size)


def test_scales_are_held_where_the_fit_does_not_average(fits):
    free, _ = linear_model(fits["default"], COHORT)
    assert [group.name for group in free.groups] == [group.name for group in fits["default"].prior.groups]
    held = fitted("default", average=False)
    model, directions = linear_model(held, COHORT)
    assert model.groups == ()
    expected = held.prior.at(held.top.log_scales).precision / held.prior.unit
    torch.testing.assert_close(model.precision, expected)
    assert model.phi_prior == held.phi
    assert directions.rank == held.likelihood.network.size


@pytest.mark.parametrize("preset", ["paper", "default"])
def test_draws_are_weights_of_the_network(fits, preset):
    fit = fits[preset]
    first, again = (sample_fit(fit, COHORT, chains=2, draws=6, warmup=5, thin=1, seed=seed) for seed in (3, 3))
    assert first.theta.shape == (2, 6, fit.likelihood.network.size)
    assert torch.equal(first.theta, again.theta)
    assert (first.phi == fit.phi.mean).all() == (preset == "default")


@pytest.mark.slow
def test_the_default_gaussian_is_close_to_exact_draws():
    held = fitted("default", average=False)
    drawn = sample_fit(held, COHORT, chains=4, draws=250, warmup=200, thin=4, seed=0)
    theta = drawn.theta.flatten(0, 1)
    at, row = torch.tensor([0.2, 0.5, 0.8], dtype=torch.float64), torch.tensor([0, 7, 3])
    linearised = linearise_network(held.likelihood.network, held.theta_star, at, COHORT.x[row])
    g = linearised.offset + theta @ linearised.rows.dense().T
    mean = linearised.offset + linearised.rows.dense() @ held.theta.mean
    sd = held.theta.variance(linearised.rows.dense()).sqrt()
    # k-hat is about 0.4 here: the Gaussian is good to a fifth of a standard deviation, not more.
    assert float(((g.mean(0) - mean) / sd).abs().max()) < 0.35
    assert float((g.std(0) / sd - 1).abs().max()) < 0.25
