import math
from itertools import product

import pytest
import torch
from scipy.special import digamma

from inference.augmented_bound import Factors, omega_mean, slopes
from inference.problems import (
    baseline_exposure,
    constant,
    double,
    event_weight,
    fitted,
    intricate,
    problem_of,
    setting,
    simulated,
)
from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper import cavi, mode
from neuralsurv.model.augmentation import latent_intensity
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.primal import PrimalSolver

ZERO = torch.zeros(1, dtype=torch.float64)


class TestClosedForms:
    """g frozen at a constant: the model is exponential (rho = 1) or Weibull, and its posterior is a Gamma."""

    @pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
    @pytest.mark.parametrize("dressed", [False, True], ids=["plain", "entry and weights"])
    @pytest.mark.parametrize("spread", ["mode", "prior"])
    def test_conjugate_posterior_where_nothing_is_latent(self, rho, dressed, spread):
        rows = simulated(25, entry=dressed, weight=dressed, seed=2)
        problem = constant(rows, 40.0, rho=rho, phi_prior=(1.3, 0.8))
        _, state, info = fitted(problem, double([0.7]), spread=spread)
        assert state.phi.shape == pytest.approx(1.3 + event_weight(rows), rel=1e-14)
        assert state.phi.rate == pytest.approx(0.8 + baseline_exposure(rows, rho), rel=1e-14)
        assert info.latent_points == pytest.approx(0, abs=1e-12)
        # Data that say nothing of theta leave its prior as it is.
        assert float(state.theta.mean) == 0
        assert float(state.theta.covariance_matrix) == 1

    @pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
    @pytest.mark.parametrize("dressed", [False, True], ids=["plain", "entry and weights"])
    def test_mean_field_posterior_where_half_the_points_are_latent(self, rho, dressed):
        # The model is the same as with g = 40, so the exact posterior is Gamma(A, β0 + E). Mean field gives a Gamma
        # with the larger rate β0 + 2E, and the shape that solves α = A + (B/β) exp ψ(α), B = 2E·σ(0) = E.
        rows = simulated(60, entry=dressed, weight=dressed, seed=2)
        exposure, shape = baseline_exposure(rows, rho), 1.3 + event_weight(rows)
        exact = Gamma(shape, 0.8 + exposure)
        phi = fitted(constant(rows, 0.0, rho=rho, phi_prior=(1.3, 0.8)), ZERO)[1].phi
        assert phi.rate == pytest.approx(0.8 + 2 * exposure, rel=1e-14)
        assert phi.shape == pytest.approx(shape + exposure / phi.rate * math.exp(digamma(phi.shape)), rel=1e-13)
        # exp ψ(α) = α − 1/2 + 1/(24α) − …, so the mean is low by E/2β of an event, up to terms of order 1/α …
        low = exposure / (2 * phi.rate)
        assert (exact.mean - phi.mean) * exact.rate == pytest.approx(low, rel=1 / phi.shape)
        # … and the variance α/β² is too small by the ratio of the rates.
        variance, right = phi.shape / phi.rate**2, exact.shape / exact.rate**2
        assert variance / right == pytest.approx(exact.rate / phi.rate, rel=1 / shape)
        assert variance < 0.7 * right


class TestUpdatesAreStationary:
    """After each update the bound, with every parameter free, has slope zero in the block that was updated."""

    CASES = tuple(product(["relu", "tanh"], ["mode", "prior"]))

    def before(self, activation, spread):
        """A state after some sweeps, far from the end, with its problem."""
        problem = intricate(activation)
        theta = mode.random_starts(problem, 1, 0)[0]
        linearised, solver, state = setting(problem, theta, spread=spread)
        for _ in range(2):
            state = cavi.sweep(problem, linearised, solver, state)
        return problem, linearised, solver, state

    def factors(self, problem, state, phi, latent, theta):
        s = torch.sqrt(state.m**2 + state.v)
        events = problem.points.events
        return Factors(
            s[:events], s[events:], latent, double(phi.shape), double(phi.rate), theta.mean, theta.covariance_matrix
        )

    @pytest.mark.parametrize(("activation", "spread"), CASES)
    def test_latent_factors(self, activation, spread):
        problem, linearised, _, state = self.before(activation, spread)
        events = problem.points.events
        curvature, slope = cavi.curvature_and_slope(problem, state.m, state.v, state.phi)
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
        phi = cavi.update_phi(problem, state.m, state.v)
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
        after = cavi.sweep(problem, linearised, solver, state)
        assert (after.theta.mean - state.theta.mean).norm() > 1e-6
        _, slope = cavi.curvature_and_slope(problem, state.m, state.v, after.phi)
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
        _, slope = cavi.curvature_and_slope(problem, state.m, state.v, state.phi)
        q = self.factors(problem, state, state.phi, -2 * slope[problem.points.events :], state.theta)
        for gradient in slopes(problem, linearised, q, *vars(q)):
            # The distance to the end is that of a linear convergence: the last change times a factor of about 100.
            assert float(gradient.abs().max()) < 1e-9


NETWORKS = [((), "relu"), ((4,), "relu"), ((4,), "tanh"), ((5, 3), "relu"), ((5, 3), "tanh")]


@pytest.mark.parametrize("spread", ["mode", "prior"])
@pytest.mark.parametrize(("hidden", "activation"), NETWORKS)
@pytest.mark.parametrize("rho", [0.6, 1.0, 1.5])
def test_elbo_never_falls(spread, hidden, activation, rho):
    for seed, (censoring, dressed) in enumerate(product([0.0, 0.4, 0.8, 0.95], [False, True])):
        rows = simulated(20, censoring=censoring, entry=dressed, weight=dressed, seed=seed)
        problem = problem_of(rows, hidden=hidden, activation=activation, rho=rho)
        found = mode.direct(problem, mode.random_starts(problem, 1, seed)[0], max_iterations=60)
        for accelerate in (False, True):
            _, _, info = fitted(problem, found.theta, found.phi, spread, max_sweeps=30, accelerate=accelerate)
            trace = double(info.elbo)
            assert len(trace) > 2
            falls = (trace[:-1] - trace[1:]) / trace[1:].abs()
            assert float(falls.max()) < 1e-9, f"censoring {censoring}, entry and weights {dressed}, {accelerate=}"


class TestShapeOfPhi:
    @pytest.mark.parametrize("shape", [0.01, 0.5, 1.0, 30.0, 1e4, 1e8])
    @pytest.mark.parametrize("rate", [1e-3, 1.0, 1e6])
    @pytest.mark.parametrize("ratio", [0.0, 1e-12, 0.01, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-9])
    def test_solves_its_equation(self, shape, rate, ratio):
        alpha = cavi.phi_shape(shape, ratio * rate, rate)
        assert alpha == pytest.approx(shape + ratio * math.exp(digamma(alpha)), rel=1e-12)

    def test_nothing_latent_leaves_the_known_shape(self):
        assert cavi.phi_shape(17.0, 0.0, 3.0) == 17.0

    def test_is_the_limit_of_alternating_updates(self):
        # Twenty rounds at a ratio of 0.1 leave 1e-20 of the first error.
        alpha = 12.0
        for _ in range(20):
            alpha = 12.0 + 0.1 * math.exp(digamma(alpha))
        assert cavi.phi_shape(12.0, 0.3, 3.0) == pytest.approx(alpha, rel=1e-14)

    @pytest.mark.parametrize("arguments", [(math.nan, 1.0, 2.0), (1.0, math.nan, 2.0), (1.0, math.inf, 2.0)])
    def test_not_finite_is_an_error(self, arguments):
        with pytest.raises(NotFiniteError, match=r"the shape of q\(phi\) became nan; the baseline exposure is 2\."):
            cavi.phi_shape(*arguments)


class TestStart:
    def test_all_mass_at_the_mode(self):
        problem = intricate()
        theta = mode.random_starts(problem, 1, 0)[0]
        _, _, state = setting(problem, theta, phi=2.5)
        assert torch.allclose(state.m, problem.network.value(theta, problem.points.time, problem.point_x), rtol=1e-12)
        assert bool((state.v == 0).all())
        assert state.phi.mean == pytest.approx(2.5)

    def test_covariance_of_the_prior(self):
        problem = intricate()
        theta = mode.random_starts(problem, 1, 0)[0]
        linearised, _, state = setting(problem, theta, spread="prior")
        dense = linearised.jacobian @ torch.diag(1 / problem.weight_prior.precision) @ linearised.jacobian.T
        assert torch.allclose(state.v, dense.diagonal(), rtol=1e-12)
        assert torch.allclose(state.m, problem.network.value(theta, problem.points.time, problem.point_x), rtol=1e-12)

    def test_first_phi_has_no_influence(self):
        problem = intricate()
        theta = mode.random_starts(problem, 1, 0)[0]
        one, other = (fitted(problem, theta, phi, max_sweeps=1)[1] for phi in (0.1, 10.0))
        assert one.phi == other.phi
        assert torch.equal(one.theta.mean, other.theta.mean)


class TestStoppingRule:
    def test_stops_at_the_tolerance_and_says_so(self):
        problem = intricate()
        theta = mode.random_starts(problem, 1, 0)[0]
        _, state, info = fitted(problem, theta, tolerance=1e-4, accelerate=False)
        assert info.converged
        assert info.change[-1] < 1e-4
        assert min(info.change[:-1]) >= 1e-4
        assert info.sweeps == len(info.elbo) == len(info.change)
        assert info.latent_points == pytest.approx(state.phi.shape - 1.7 - problem.event_count)

    def test_stops_at_the_limit_and_says_so(self):
        problem = intricate()
        _, _, info = fitted(problem, mode.random_starts(problem, 1, 0)[0], tolerance=1e-10, max_sweeps=3)
        assert not info.converged
        assert info.sweeps == 3

    @pytest.mark.parametrize("block", ["phi", "theta_mean", "v"])
    def test_every_block_of_parameters_counts(self, block):
        problem = intricate()
        linearised, solver, state = setting(problem, mode.random_starts(problem, 1, 0)[0])
        state, _ = cavi.fit(problem, linearised, solver, state, tolerance=1e-12)
        moved = Gamma(state.phi.shape * 1.01, state.phi.rate) if block == "phi" else 1.01 * getattr(state, block)
        other = cavi.CaviState(**{**vars(state), block: moved})
        assert cavi._relative_change(other, state, problem.points.weight) == pytest.approx(0.01)
        assert cavi._relative_change(state, state, problem.points.weight) == 0

    def test_reports_every_sweep(self):
        problem = intricate()
        seen = []
        _, _, info = fitted(
            problem, mode.random_starts(problem, 1, 0)[0], max_sweeps=4, report=lambda *words: seen.append(words)
        )
        assert seen == [(k + 1, info.elbo[k], info.change[k]) for k in range(4)]

    def interrupted(self, finished):
        """Sweep with a solver that is interrupted after it has solved `finished` times."""
        problem = intricate()
        linearised, solver, state = setting(problem, mode.random_starts(problem, 1, 0)[0])
        solved = []

        class Interrupted:
            def solve(self, curvature, slope):
                if len(solved) == finished:
                    raise KeyboardInterrupt
                solved.append(None)
                return solver.solve(curvature, slope)

            def moments(self, gaussian):
                return solver.moments(gaussian)

            def chart(self, gaussian):
                return solver.chart(gaussian)

        return cavi.fit(problem, linearised, Interrupted(), state)

    @pytest.mark.parametrize(("solved", "sweeps"), [(1, 1), (2, 2)])
    def test_an_interrupt_leaves_the_last_finished_sweep(self, solved, sweeps):
        state, info = self.interrupted(solved)
        problem = intricate()
        _, same, uninterrupted = fitted(problem, mode.random_starts(problem, 1, 0)[0], max_sweeps=sweeps)
        assert info.interrupted
        assert not info.converged
        assert not uninterrupted.interrupted
        assert info.elbo == uninterrupted.elbo
        assert state.phi == same.phi
        assert torch.equal(state.theta.mean, same.theta.mean)

    def test_an_interrupt_of_the_first_sweep_is_passed_on(self):
        with pytest.raises(KeyboardInterrupt):
            self.interrupted(0)

    def test_same_end_from_both_spreads_where_the_bound_has_one_top(self):
        problem = problem_of(simulated(30, seed=1), hidden=())
        found = mode.direct(problem, mode.random_starts(problem, 1, 0)[0])
        one, other = (
            fitted(problem, found.theta, found.phi, spread, tolerance=1e-11)[1] for spread in ("mode", "prior")
        )
        assert one.phi.shape == pytest.approx(other.phi.shape, rel=1e-8)
        assert torch.allclose(one.theta.mean, other.theta.mean, rtol=1e-7, atol=1e-9)

    def test_elbo_that_is_not_finite_is_an_error(self):
        problem = problem_of(simulated(10), hidden=())
        linearised, _, state = setting(problem, torch.zeros(problem.network.size, dtype=torch.float64))

        class Boundless:
            """A solver whose Gaussian is infinitely far from the prior."""

            def solve(self, curvature, slope):
                gaussian = PrimalSolver(linearised.rows, problem.weight_prior.precision).solve(curvature, slope)
                return type("Far", (), {"mean": gaussian.mean, "variance": gaussian.variance, "divergence": far})()

            def moments(self, gaussian):
                return linearised.jacobian @ gaussian.mean, gaussian.variance(linearised.jacobian)

        def far(self, precision):
            return math.inf

        with pytest.raises(NotFiniteError, match="the ELBO became -inf in sweep 1; look for extreme covariates"):
            cavi.fit(problem, linearised, Boundless(), state)
