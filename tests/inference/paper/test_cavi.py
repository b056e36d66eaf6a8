import math
from itertools import product

import pytest
import torch
from scipy.special import digamma

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
from neuralsurv.inference.paper import cavi, mode, updates
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
        assert float(state.theta.factor) == 1

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
        dense = linearised.rows.dense() @ torch.diag(1 / problem.weight_prior.precision) @ linearised.rows.dense().T
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
        state, _ = cavi.sweep_until_converged(problem, linearised, solver, state, tolerance=1e-12)
        moved = Gamma(state.phi.shape * 1.01, state.phi.rate) if block == "phi" else 1.01 * getattr(state, block)
        other = updates.CaviState(**{**vars(state), block: moved})
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

            def coordinates(self, gaussian):
                return solver.coordinates(gaussian)

        return cavi.sweep_until_converged(problem, linearised, Interrupted(), state)

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
                return linearised.rows.dense() @ gaussian.mean, gaussian.variance(linearised.rows.dense())

        def far(self, precision):
            return math.inf

        with pytest.raises(NotFiniteError, match="the ELBO became -inf in sweep 1; look for extreme covariates"):
            cavi.sweep_until_converged(problem, linearised, Boundless(), state)
