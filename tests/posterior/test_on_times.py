"""Draws on times: the same curves as from the hazard at every node, for any people and any subset of the draws."""

import numpy as np
import pytest
import torch

from neuralsurv import NeuralSurv
from neuralsurv.model.quadrature import GaussLegendre
from neuralsurv.posterior.on_times import TimeNodes
from posteriors import small_posterior
from small_cohort import small_cohort

TIMES = torch.tensor([0.0, 0.003, 0.2, 0.2001, 0.7, 1.0, 1.9], dtype=torch.float64)


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    cohort = small_cohort(60)
    return NeuralSurv(draws=30, random_state=0, verbose=False).fit(cohort.x, cohort.y)


def slow(posterior, draws, times, x):
    """Cumulative hazards from the hazard at nodes of every panel, by products with whole Jacobian rows."""
    edges, which = posterior.network.panels(times)
    rule = GaussLegendre(2).nodes(edges[:-1], edges[1:], 1.0)
    curves = []
    for row in x:
        rates = posterior.hazard_draws(draws, rule.time, row.expand(len(rule.time), -1)) * rule.weight
        steps = rates.reshape(len(draws), -1, 2).sum(2)
        curves.append(torch.nn.functional.pad(steps.cumsum(1), (1, 0))[:, which])
    return torch.stack(curves, 1)


def test_curves_are_those_of_the_slow_path(fitted):
    posterior, x = fitted.posterior_, torch.from_numpy(fitted.encoding_.transform(small_cohort(5, seed=8).x))
    draws = posterior.draw(30, seed=2)
    shared = posterior.on_times(draws, TIMES)
    found = shared.cumulative_hazard(shared.of_people(draws.theta, x))
    torch.testing.assert_close(found, slow(posterior, draws, TIMES, x), rtol=3e-6, atol=1e-12)
    torch.testing.assert_close(found, posterior.cumulative_hazard_draws(draws, TIMES, x), rtol=0, atol=0)
    assert bool((found[:, :, 0] == 0).all())
    assert bool((found.diff(dim=2) >= 0).all())


def test_time_0_alone(fitted):
    posterior, x = fitted.posterior_, torch.zeros(2, 2, dtype=torch.float64)
    draws = posterior.draw(3, seed=2)
    shared = posterior.on_times(draws, TIMES[:1])
    assert shared.cumulative_hazard(shared.of_people(draws.theta, x)).tolist() == [[[0.0], [0.0]]] * 3


def test_missing_values_are_filled_in_as_on_the_slow_path(fitted, monkeypatch):
    people = small_cohort(4, seed=9).x
    people.iloc[1, 0] = np.nan
    people.iloc[2, :] = np.nan
    times = [0.1, 1.0]
    found = fitted.predict_survival(people, times).draws
    monkeypatch.setattr(type(fitted.posterior_), "on_times", lambda *_: None)
    np.testing.assert_allclose(found, fitted.predict_survival(people, times).draws, rtol=0, atol=1e-6)


def test_a_network_has_nothing_to_share():
    posterior = small_posterior()
    assert posterior.on_times(posterior.draw(3, seed=1), TIMES) is None


def test_integrals_of_a_line():
    posterior = small_posterior()
    nodes = TimeNodes.up_to(TIMES, posterior.network, 1.0)
    found = nodes.integrals((nodes.weight * 2 * nodes.time)[None, :, None].clone())
    torch.testing.assert_close(found[0, :, 0], TIMES**2)
