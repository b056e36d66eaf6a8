"""Means of curves against the means of very many draws, for every kind of posterior that has them."""

from functools import cache

import numpy as np
import pytest
import torch

from neuralsurv import NeuralSurv
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.posterior import mean_curves as module
from neuralsurv.posterior.mean_curves import centred, coefficients_of, mean_curves
from neuralsurv.posterior.mixture import MixedPosterior
from neuralsurv.prediction.predictor import Predictor
from posteriors import g_moments
from small_cohort import quick_default, small_cohort

TIMES = torch.linspace(0.02, 1.0, 25, dtype=torch.float64)
NAMES = {"time": "years", "event": "died"}


def averaged(rows):
    people = small_cohort(rows)
    return NeuralSurv(verbose=False, random_state=0).fit(people.x, people.y)


def streamed():
    table = small_cohort(300).frame()
    model = NeuralSurv(hidden=(), verbose=False, random_state=0)
    return model.fit_stream([table.iloc[:150], table.iloc[150:]], **NAMES)


def sampled():
    people = small_cohort(40)
    model = NeuralSurv(hidden=(), average=False, headroom=30.0, verbose=False, random_state=0)
    return model.fit_exact(people.x, people.y, warmup=200, chains=2)


FITS = {
    "many settings, 30 rows": lambda: averaged(30),
    "many settings, 150 rows": lambda: averaged(150),
    "streamed": streamed,
    "exact draws": sampled,
}


@cache
def fitted(kind):
    return FITS[kind]().fitted_


@cache
def people(kind):
    x = Predictor.from_fitted(fitted(kind)).encode(small_cohort(20, seed=8).x)
    # One far outside the training range, where little is known.
    return torch.cat([x, 4 * x[:1]])


@cache
def over_draws(kind, blocks):
    """Mean survival and cumulative hazard over blocks of 10,000 draws."""
    total = torch.zeros(2, len(people(kind)), len(TIMES), dtype=torch.float64)
    for seed in range(10 * blocks):
        draws = fitted(kind).posterior.draw(1000, 100 + seed)
        cumulative = fitted(kind).posterior.cumulative_hazard_draws(draws, TIMES, people(kind))
        total += torch.stack([torch.exp(-cumulative).mean(0), cumulative.mean(0)])
    return total / (10 * blocks)


def error(found, expected):
    return float((found - expected).square().mean().sqrt())


@pytest.mark.parametrize("kind", FITS)
def test_the_error_is_below_a_thousandth(kind):
    # Of 30 rows, 10,000 draws are off by more than that themselves; with four times as many less is left of it.
    found, expected = fitted(kind).mean_curves.survival(TIMES, people(kind)), over_draws(kind, 4)[0]
    assert float((found - expected).abs().mean()) < 0.001
    assert error(found, expected) < 0.0015
    assert float((found - expected).abs().max()) < 0.008


@pytest.mark.parametrize("kind", ["many settings, 30 rows", "many settings, 150 rows"])
def test_it_is_closer_than_the_mean_of_as_many_draws(kind):
    posterior, expected = fitted(kind).posterior, over_draws(kind, 4)[0]
    draws = posterior.draw(module._DRAWS, 5)
    plain = torch.exp(-posterior.cumulative_hazard_draws(draws, TIMES, people(kind))).mean(0)
    found = fitted(kind).mean_curves.survival(TIMES, people(kind))
    assert error(found, expected) < 0.7 * error(plain, expected)


def test_mean_cumulative_hazard(monkeypatch):
    kind = "many settings, 150 rows"
    found = torch.zeros(len(people(kind)), len(TIMES), dtype=torch.float64)
    # Where log hazards are uncertain, the mean has a heavy tail: four samples in place of one.
    for seed in range(4):
        monkeypatch.setattr(module, "_SEED", seed)
        found += mean_curves(fitted(kind).posterior).cumulative_hazard(TIMES, people(kind)) / 4
    expected = over_draws(kind, 4)[1]
    assert float(((found - expected).abs() / (0.02 + expected)).mean()) < 0.01


def test_panels_and_single_precision_cost_less_than_a_ten_thousandth(monkeypatch):
    kind = "many settings, 150 rows"
    curves = fitted(kind).mean_curves
    few = curves.survival(TIMES, people(kind))
    monkeypatch.setattr(module, "_PANELS", 400)
    assert float((few - curves.survival(TIMES, people(kind))).abs().max()) < 2e-4
    # The same draws in double precision, not interpolated.
    posterior = fitted(kind).posterior
    monkeypatch.setattr(
        module, "_stretch", lambda exact, _: torch.eye(exact.shape[1], dtype=exact.dtype).expand_as(exact)
    )
    drawn = posterior.draw(module._DRAWS, module._SEED)
    moved = module.replace(drawn, theta=drawn.theta - drawn.theta.mean(0) + posterior.theta.mean)
    expected = torch.exp(-posterior.cumulative_hazard_draws(moved, TIMES, people(kind))).mean(0)
    assert float((curves.survival(TIMES, people(kind)) - expected).abs().max()) < 1e-4


def test_draws_of_every_person_have_the_exact_moments():
    kind = "many settings, 30 rows"
    curves, x = fitted(kind).mean_curves, people(kind)
    features = curves.network.features(x)
    designs = [each.design(features) for each in curves.coefficients]
    stretch = module._stretch(curves._covariance(designs, curves.exact), curves._covariance(designs, curves.sampled))
    drawn = torch.stack([d @ v.double() for d, v in zip(designs, curves.deviations, strict=True)], 2) @ stretch.mT
    time = torch.tensor([0.05, 0.4, 1.0], dtype=torch.float64)
    g = drawn @ curves._functions(time)
    for place, row in enumerate(x):
        _, variance = g_moments(fitted(kind).posterior, time, row.expand(3, -1))
        np.testing.assert_allclose(g[place].square().mean(0), variance, rtol=1e-3)
    np.testing.assert_allclose(g.mean(1), 0, atol=1e-4)


def test_coefficients_and_functions_are_those_of_the_network():
    network = fitted("many settings, 150 rows").posterior.network
    curves, x = fitted("many settings, 150 rows").mean_curves, people("many settings, 150 rows")
    assert sorted(torch.cat([each.weights for each in coefficients_of(network)]).tolist()) == list(range(network.size))
    theta = torch.randn(network.size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    time = GaussLegendre(3).nodes(torch.zeros(1), torch.ones(1), 1.0).time.double()
    features = network.features(x)
    values = torch.stack([each.design(features) @ theta[each.weights] for each in curves.coefficients], 1)
    expected = torch.stack([network.value(theta, time, row.expand(len(time), -1)) for row in x])
    np.testing.assert_allclose(values @ curves._functions(time) + network.offset, expected, rtol=1e-10)


def test_people_and_times_do_not_influence_each_other():
    kind = "many settings, 30 rows"
    curves, x = fitted(kind).mean_curves, people(kind)
    every = curves.survival(TIMES, x)
    np.testing.assert_allclose(curves.survival(TIMES[3:5], x[7:8]), every[7:8, 3:5], atol=1e-6)
    assert bool((every.diff(dim=1) <= 0).all())
    beyond = curves.survival(torch.tensor([0.5, 1.0, 3.0], dtype=torch.float64), x)
    np.testing.assert_allclose(beyond[:, 1], every[:, -1], atol=1e-4)
    assert bool((beyond[:, 2] <= beyond[:, 1]).all())


def test_survival_at_zero_is_one():
    kind = "many settings, 30 rows"
    assert bool((fitted(kind).mean_curves.survival(torch.zeros(1, dtype=torch.float64), people(kind)) == 1).all())


@pytest.mark.parametrize("kind", ["network", "streamed network"])
def test_a_network_has_centred_draws(kind):
    table = small_cohort(300).frame()
    if kind == "network":
        model = quick_default().fit(table, **NAMES)
    else:
        model = NeuralSurv(verbose=False, random_state=0).fit_stream([table.iloc[:150], table.iloc[150:]], **NAMES)
    posterior, x = model.posterior_, people("many settings, 150 rows")
    assert mean_curves(posterior) is None
    plain = [posterior.draw(1000, seed) for seed in range(20)]
    curves = [torch.exp(-posterior.cumulative_hazard_draws(draws, TIMES, x)).mean(0) for draws in plain]
    expected = torch.stack(curves[10:]).mean(0)
    found = [
        torch.exp(-posterior.cumulative_hazard_draws(centred(posterior, draws), TIMES, x)).mean(0) for draws in plain
    ]
    assert sum(error(each, expected) for each in found[:10]) < 0.7 * sum(error(each, expected) for each in curves[:10])
    assert error(found[0], expected) < 0.0015
    assert float((found[0] - expected).abs().mean()) < 0.001


def test_draws_around_several_modes_stay():
    first = averaged(30).posterior_
    mixed = MixedPosterior.of((first, first))
    draws = mixed.draw(10, 0)
    assert centred(mixed, draws) is draws
    assert mean_curves(mixed) is None


def test_nor_have_too_many_weights(monkeypatch):
    monkeypatch.setattr(module, "_MOST_WEIGHTS", 3)
    assert mean_curves(fitted("streamed").posterior) is None


def test_extreme_covariates_leave_the_draws_as_they_are():
    kind = "many settings, 30 rows"
    found = fitted(kind).mean_curves.survival(TIMES, torch.full((1, 2), 1e15, dtype=torch.float64))
    assert bool(((found >= 0) & (found <= 1)).all())
