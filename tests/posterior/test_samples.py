"""Draws as a posterior: moments and curves."""

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from inference.gibbs_models import RHO, network_model
from inference.problems import double, simulated
from neuralsurv.errors import InputError
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.model.hazard import Constant
from neuralsurv.model.network import MLP
from neuralsurv.posterior.samples import DrawnWeights, choose_draws, sampled_posterior
from neuralsurv.solvers.primal import PrimalGaussian
from posteriors import g_moments


class TestPosterior:
    def posterior(self):
        model, network, star = network_model(simulated(10, seed=0), rho=RHO)
        result = sample(model, chains=2, draws=40, warmup=10, seed=1)
        about = {"theta_star": star, "network": network, "normaliser": Constant(0.5), "rho": RHO}
        return result, sampled_posterior(*result.flat(), **about)

    def test_curves_of_a_draw_are_those_of_its_weights(self):
        _, posterior = self.posterior()
        draws = posterior.draw(5, seed=0)
        x, times = double([[0.3, -0.5]]), double([0.2, 0.7])
        cumulative = posterior.cumulative_hazard_draws(draws, times, x)
        network, star = posterior.network, posterior.theta_star
        for s in range(5):

            def hazard(t, s=s):
                at = double([t])
                g = network.value(star, at, x) + network.jacobian(star, at, x) @ (draws.theta[s] - star)
                return float(draws.phi[s] * t ** (RHO - 1) * 2 * torch.sigmoid(g))

            for k, t in enumerate(times.tolist()):
                assert float(cumulative[s, 0, k]) == pytest.approx(quad(hazard, 0, t)[0], rel=1e-4)

    def test_theta_and_phi_of_a_draw_belong_together(self):
        result, posterior = self.posterior()
        theta, phi = result.flat()
        draws = posterior.draw(200, seed=3)
        for one in range(200):
            where = torch.nonzero(phi == draws.phi[one]).squeeze(1)
            assert torch.equal(theta[where[0]], draws.theta[one])
        # 80 draws, asked for 200: each is used twice or three times.
        assert set(torch.unique(draws.phi, return_counts=True)[1].tolist()) == {2, 3}
        assert torch.equal(
            choose_draws(80, 30, torch.Generator().manual_seed(1)).unique(),
            torch.sort(choose_draws(80, 30, torch.Generator().manual_seed(1))).values,
        )

    def test_moments(self):
        result, posterior = self.posterior()
        theta, phi = result.flat()
        time, x = double([0.2, 0.5]), double([[0.1, 1.0], [-1.0, 0.4]])
        g = posterior.g_draws(posterior.draw(80, seed=1), time, x)
        mean, variance = g_moments(posterior, time, x)
        np.testing.assert_allclose(mean, g.mean(0), rtol=1e-10)
        np.testing.assert_allclose(variance, g.var(0), rtol=1e-10)
        assert posterior.phi.mean == pytest.approx(float(phi.mean()))
        assert posterior.phi.shape / posterior.phi.rate**2 == pytest.approx(float(phi.var()))
        drawn = posterior.theta.draw(80, torch.Generator().manual_seed(0))
        np.testing.assert_allclose(drawn.sort(0).values, theta.sort(0).values)

    def test_divergence_is_that_of_the_gaussian_with_the_same_moments(self):
        weights = DrawnWeights(torch.randn(50, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
        covariance = np.cov(weights.draws.numpy().T)
        precision = double([1.0, 2.0, 0.5])
        factor = torch.linalg.cholesky(torch.from_numpy(np.linalg.inv(covariance)))
        expected = PrimalGaussian(weights.mean, factor).divergence(precision)
        assert weights.divergence(precision) == pytest.approx(expected, rel=1e-9)

    def test_phi_that_was_held(self):
        model, network, star = network_model(simulated(10, seed=0), phi_prior=1.5)
        result = sample(model, chains=2, draws=10, warmup=0, seed=1)
        posterior = sampled_posterior(
            *result.flat(), theta_star=star, network=network, normaliser=Constant(0.5), rho=1.0
        )
        assert posterior.phi.mean == pytest.approx(1.5)
        assert (posterior.draw(4, 0).phi == 1.5).all()

    def test_another_network_is_refused(self):
        result, _ = self.posterior()
        network = MLP(2, (4,), "tanh")
        with pytest.raises(InputError, match=r"the draws have 16 weights and theta_star 21, but the network has 21"):
            sampled_posterior(
                *result.flat(), theta_star=torch.zeros(21).double(), network=network, normaliser=Constant(0.5), rho=1.0
            )
