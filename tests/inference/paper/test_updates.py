import math
from itertools import product

import pytest
import torch
from scipy.special import digamma

from inference.augmented_bound import Factors, omega_mean, slopes
from inference.problems import (
    double,
    intricate,
    setting,
)
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper import cavi, mode, updates
from neuralsurv.model.augmentation import latent_intensity

ZERO = torch.zeros(1, dtype=torch.float64)


class TestUpdatesAreStationary:
    """After each update the bound, with every parameter free, has slope zero in the block that was updated."""

    CASES = tuple(product(["relu", "tanh"], ["mode", "prior"]))

    def before(self, activation, spread):
        """A state after some sweeps, far from the end, with its problem."""
        problem = intricate(activation)
        theta = mode.random_starts(problem, 1, 0)[0]
        linearised, solver, state = setting(problem, theta, spread=spread)
        for _ in range(2):
            state = updates.sweep(problem, linearised, solver, state)
        return problem, linearised, solver, state

    def factors(self, problem, state, phi, latent, theta):
        s = torch.sqrt(state.m**2 + state.v)
        events = problem.points.events
        covariance = torch.cholesky_inverse(theta.factor)
        return Factors(s[:events], s[events:], latent, double(phi.shape), double(phi.rate), theta.mean, covariance)

    @pytest.mark.parametrize(("activation", "spread"), CASES)
    def test_latent_factors(self, activation, spread):
        problem, linearised, _, state = self.before(activation, spread)
        events = problem.points.events
        curvature, slope = updates.curvature_and_slope(problem, state.m, state.v, state.phi)
        # What the update hands on is κ = mass · E[omega] and the slope w/2 at events, −mass/2 at nodes.
        q = self.factors(problem, state, state.phi, -2 * slope[events:], state.theta)
        for gradient in slopes(problem, linearised, q, "event_tilt", "node_tilt", "latent"):
            assert float(gradient.abs().max()) < 1e-12
        assert torch.equal(2 * slope[:events], problem.event_weight)
        assert torch.allclose(curvature[:events], problem.event_weight * omega_mean(q.event_tilt), rtol=1e-13)
        assert torch.allclose(curvature[events:], q.latent * omega_mean(q.node_tilt), rtol=1e-13)

    @pytest.mark.parametrize(("activation", "spread"), CASES)
    def test_phi_together_with_the_latent_points(self, activation, spread):
        problem, linearised, _, state = self.before(activation, spread)
        phi = updates.update_phi(problem, state.m, state.v)
        assert phi.shape != pytest.approx(state.phi.shape, rel=1e-6)
        s = torch.sqrt(state.m**2 + state.v)
        events = problem.points.events
        latent = latent_intensity(problem.baseline, state.m[events:], s[events:], phi.mean_log)
        q = self.factors(problem, state, phi, latent, state.theta)
        for gradient in slopes(problem, linearised, q, "shape", "rate", "latent"):
            assert float(gradient.abs().max()) < 1e-11
        assert phi.shape == pytest.approx(1.7 + problem.event_count + float(latent.sum()), rel=1e-13)

    @pytest.mark.parametrize(("activation", "spread"), CASES)
    def test_theta(self, activation, spread):
        problem, linearised, solver, state = self.before(activation, spread)
        after = updates.sweep(problem, linearised, solver, state)
        assert (after.theta.mean - state.theta.mean).norm() > 1e-6
        _, slope = updates.curvature_and_slope(problem, state.m, state.v, after.phi)
        # The latent factors are those of the moments before the sweep, phi and theta those after it.
        q = self.factors(problem, state, after.phi, -2 * slope[problem.points.events :], after.theta)
        mean, covariance = slopes(problem, linearised, q, "mean", "covariance")
        # Each is a difference of terms as large as the precision matrix and as J'a.
        precision = torch.linalg.inv(q.covariance)
        assert float(mean.abs().max()) < 1e-12 * float((linearised.jacobian.T @ slope).abs().max() + 1)
        assert float(covariance.abs().max()) < 1e-11 * float(precision.abs().max())

    @pytest.mark.parametrize("activation", ["relu", "tanh"])
    def test_all_at_once_where_the_sweeps_end(self, activation):
        problem = intricate(activation)
        theta = mode.random_starts(problem, 1, 0)[0]
        linearised, solver, state = setting(problem, theta)
        state, info = cavi.fit(problem, linearised, solver, state, tolerance=1e-13)
        assert info.converged
        _, slope = updates.curvature_and_slope(problem, state.m, state.v, state.phi)
        q = self.factors(problem, state, state.phi, -2 * slope[problem.points.events :], state.theta)
        for gradient in slopes(problem, linearised, q, *vars(q)):
            # The distance to the end is that of a linear convergence: the last change times a factor of about 100.
            assert float(gradient.abs().max()) < 1e-9


class TestShapeOfPhi:
    @pytest.mark.parametrize("shape", [0.01, 0.5, 1.0, 30.0, 1e4, 1e8])
    @pytest.mark.parametrize("rate", [1e-3, 1.0, 1e6])
    @pytest.mark.parametrize("ratio", [0.0, 1e-12, 0.01, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9])
    def test_solves_its_equation(self, shape, rate, ratio):
        alpha = updates.phi_shape(shape, ratio * rate, rate)
        assert alpha == pytest.approx(shape + ratio * math.exp(digamma(alpha)), rel=1e-12)

    def test_nothing_latent_leaves_the_known_shape(self):
        assert updates.phi_shape(17.0, 0.0, 3.0) == 17.0

    def test_is_the_limit_of_alternating_updates(self):
        # Twenty rounds at a ratio of 0.1 leave 1e-20 of the first error.
        alpha = 12.0
        for _ in range(20):
            alpha = 12.0 + 0.1 * math.exp(digamma(alpha))
        assert updates.phi_shape(12.0, 0.3, 3.0) == pytest.approx(alpha, rel=1e-14)

    @pytest.mark.parametrize("arguments", [(math.nan, 1.0, 2.0), (1.0, math.nan, 2.0), (1.0, math.inf, 2.0)])
    def test_not_finite_is_an_error(self, arguments):
        with pytest.raises(NotFiniteError, match=r"the shape of q\(phi\) became nan; the baseline exposure is 2\."):
            updates.phi_shape(*arguments)
