"""Unknown scales of the prior in the Gibbs sampler: their density against integrals, their law against brute force."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from false_alarm import z_bound
from inference.gibbs_models import PRECISION, GridPosterior, two_weights
from inference.problems import double, simulated
from neuralsurv.errors import NotPositiveDefiniteError
from neuralsurv.inference.exact import scale_steps
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.exact.sweep import Sweeper
from neuralsurv.inference.exact.thinning import GibbsState, Thinning
from neuralsurv.model.prior import Group

MEDIAN, SPREAD = 0.8, 0.5


def model_with_scale(size=1, phi=1.5):
    rows = simulated(10, covariates=1, seed=4)
    groups = tuple(Group(f"weight {k}", k, k + 1, MEDIAN, SPREAD) for k in range(size))
    model = two_weights(rows, rows.x[:, 0] / 2, phi_prior=phi, precision=PRECISION[:size])
    return replace(model, groups=groups), rows.x[:, 0] / 2


def test_density_is_the_integral_over_theta():
    model, _ = model_with_scale(size=2)
    information, slope = double([[[2.0, 0.7], [0.7, 1.5]]]), double([[1.3, -0.4]])
    axis = np.linspace(-12, 12, 801)
    theta = np.stack(np.meshgrid(axis, axis, indexing="ij"), -1).reshape(-1, 2)
    likelihood = theta @ slope[0].numpy() - 0.5 * np.einsum("si,ij,sj->s", theta, information[0].numpy(), theta)

    def by_brute_force(log_scales):
        deviation = np.exp(log_scales) / np.sqrt(PRECISION.numpy())
        prior = -0.5 * ((theta / deviation) ** 2).sum(1) - np.log(deviation).sum()
        hyper = -0.5 * (((np.array(log_scales) - math.log(MEDIAN)) / SPREAD) ** 2).sum()
        return hyper + np.log(np.exp(likelihood + prior).sum())

    settings = [[-0.4, 0.3], [0.5, 0.1], [0.9, -1.2]]
    found = scale_steps.log_density(model, double(settings), information.expand(3, 2, 2), slope.expand(3, 2)).numpy()
    exact = np.array([by_brute_force(one) for one in settings])
    np.testing.assert_allclose(found - found[0], exact - exact[0], atol=1e-8)


class TestLaw:
    """Independent exact draws of (theta, log scale) keep their law under sweeps."""

    CHAINS = 1500

    def alarms(self):
        model, x = model_with_scale()
        grid = GridPosterior(replace(model, groups=()), x.numpy(), points=1601, reach=10.0)
        # The likelihood alone: the grid's mass without the prior that it was made with.
        theta = grid.theta[:, 0]
        log_likelihood = np.log(np.maximum(grid.mass, 1e-300)) + 0.5 * theta**2 * float(PRECISION[0])
        log_scale = math.log(MEDIAN) + SPREAD * np.linspace(-5, 5, 201)
        deviation = np.exp(log_scale) / math.sqrt(float(PRECISION[0]))
        joint = log_likelihood - 0.5 * (theta / deviation[:, None]) ** 2 - np.log(deviation)[:, None]
        joint = np.exp(joint - 0.5 * np.linspace(-5, 5, 201)[:, None] ** 2 - joint.max())
        rng = np.random.default_rng(3)
        chosen = rng.choice(joint.size, self.CHAINS, p=(joint / joint.sum()).reshape(-1))
        first = GibbsState(
            torch.from_numpy(theta[chosen % len(theta)])[:, None],
            torch.full((self.CHAINS,), model.phi_prior.mean, dtype=torch.float64),
            torch.from_numpy(log_scale[chosen // len(theta)])[:, None],
        )
        sweeper, state = Sweeper(Thinning(model)), first
        for _ in range(4):
            state, _ = sweeper.sweep(state, rng)
        assert float((state.log_scales != first.log_scales).double().mean()) > 0.5
        one, two = (np.stack([s.theta[:, 0].numpy(), s.log_scales[:, 0].numpy()]) for s in (first, state))
        functions = (lambda v: v[0], lambda v: v[1], lambda v: v[0] ** 2, lambda v: v[1] ** 2, lambda v: v[0] * v[1])
        changes = [function(two) - function(one) for function in functions]
        scores = [change.mean() / change.std() * math.sqrt(self.CHAINS) for change in changes]
        return [score for score in scores if abs(score) > z_bound(len(functions))]

    def test_sweeps_keep_it(self):
        assert self.alarms() == []

    def test_a_forgotten_determinant_is_noticed(self, monkeypatch):
        right = scale_steps.log_density

        def wrong(model, log_scales, information, slope):
            return right(model, log_scales, information, slope) + log_scales.sum(1)

        monkeypatch.setattr(scale_steps, "log_density", wrong)
        assert self.alarms() != []


def test_draws_of_scales_are_kept():
    model, _ = model_with_scale(size=2)
    result = sample(model, chains=2, draws=12, warmup=4, seed=1)
    assert result.log_scales.shape == (2, 12, 2)
    assert not torch.equal(result.log_scales[0], result.log_scales[1])
    assert sample(replace(model, groups=()), chains=2, draws=12, warmup=4).log_scales.shape == (2, 12, 0)


def test_a_matrix_that_cannot_be_factorised():
    model, _ = model_with_scale()
    information = double([[[-9.0]], [[1.0]]])
    with pytest.raises(NotPositiveDefiniteError, match=r"could not be factorised in 1 of 2 chains"):
        scale_steps.log_density(model, double([[0.0], [0.0]]), information, double([[0.0], [0.0]]))
