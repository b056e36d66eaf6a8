"""Conditionals of a sweep: marks, points by thinning, the Gaussian of the weights."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from false_alarm import z_bound
from inference.gibbs_models import PRECISION, RHO, GridPosterior, network_model, two_weights
from inference.problems import Tilted, double, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.errors import NotPositiveDefiniteError
from neuralsurv.inference.exact import sweep
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.exact.sweep import Sweeper, draw_marks
from neuralsurv.inference.exact.thinning import GibbsState, Thinning
from neuralsurv.model.prior import Group
from neuralsurv.solvers.primal import PrimalSolver


class TestMarks:
    """Pólya–Gamma draws have the mean and the variance of PG(b, c)."""

    @pytest.mark.parametrize("shape", [1.0, 3.0, 1.3, 2.6])
    @pytest.mark.parametrize("tilt", [0.0, 1.5, -6.0])
    def test_moments(self, shape, tilt):
        size = 20_000
        draws = draw_marks(
            torch.full((size,), shape, dtype=torch.float64),
            torch.full((size,), tilt, dtype=torch.float64),
            np.random.default_rng(3),
        ).numpy()
        # The moments from the series of Gamma variables that defines PG(b, c), 200,000 terms of it.
        rates = 2 * math.pi**2 * (np.arange(1, 200_001) - 0.5) ** 2 + tilt**2 / 2
        mean, variance = shape * (1 / rates).sum(), shape * (1 / rates**2).sum()
        bound = z_bound(24)
        assert abs(draws.mean() - mean) < bound * math.sqrt(variance / size) + 1e-6
        squares = (draws - mean) ** 2
        assert abs(squares.mean() - variance) < bound * squares.std() / math.sqrt(size) + 1e-6

    def test_whole_and_other_weights_together(self):
        weight = double([1, 2.5, 3, 1.2]).repeat(5000)
        draws = draw_marks(weight, torch.zeros_like(weight), np.random.default_rng(0)).reshape(-1, 4)
        error = (draws.mean(0) - weight[:4] / 4) / (draws.std(0) / math.sqrt(len(draws)))
        assert float(error.abs().max()) < z_bound(4)


class TestThinning:
    """Numbers of points against integrals by adaptive quadrature."""

    THETA = double([0.4, -0.8])
    ENTRY, TIME = double([0.0, 0.2, 0.1]), double([0.6, 1.0, 0.3])
    WEIGHT, X = double([1.0, 2.5, 0.4]), double([0.5, -1.0, 0.0])

    def model(self):
        event = torch.tensor([True, True, False])
        return two_weights(Cohort(self.TIME, event, self.ENTRY, self.WEIGHT, self.X[:, None]), self.X)

    def g(self, t, row):
        x = float(self.X[row])
        return 0.3 * x - t + float(self.THETA[0]) * (1 + x) + float(self.THETA[1]) * math.sin(3 * t)

    def z(self, t, row):
        return 1 / (1 + math.exp(-(0.4 - t + 0.3 * float(self.X[row]))))

    def test_latent_and_void_points(self):
        chains, phi = 4000, 1.7
        sweeper = Sweeper(Thinning(self.model()))
        state = GibbsState(self.THETA.repeat(chains, 1), torch.full((chains,), phi, dtype=torch.float64))
        latent = sweeper.draw_latent(state, np.random.default_rng(1))
        halves, total_void, comparisons = 0, 0.0, 7
        for row in range(3):
            low, high, w = float(self.ENTRY[row]), float(self.TIME[row]), float(self.WEIGHT[row])
            middle = (low + high) / 2
            for start, stop in ((low, middle), (middle, high)):
                rate = lambda t, r=row, w=w: w * phi * t ** (RHO - 1) / self.z(t, r) / (1 + math.exp(self.g(t, r)))  # noqa: E731
                mean = chains * quad(rate, start, stop, epsabs=1e-12)[0]
                points = latent.points
                inside = (points.row == row) & (points.time >= start) & (points.time < stop)
                assert abs(int(inside.sum()) - mean) < z_bound(comparisons) * math.sqrt(mean)
                halves += int(inside.sum())
            all_points = phi * sweeper.thinning.mass[row]
            baseline = lambda t, r=row, w=w: w * phi * t ** (RHO - 1) / self.z(t, r)  # noqa: E731
            total_void += chains * (all_points - quad(baseline, low, high, epsabs=1e-12)[0])
        assert halves == len(latent.points.time)
        assert abs(int(latent.void.sum()) - total_void) < z_bound(comparisons) * math.sqrt(total_void)

    def test_constant_normaliser_needs_no_void_points(self):
        model = replace(self.model(), normaliser=lambda at, row: torch.full_like(at, 0.5))
        thinning = Thinning(model)
        assert (thinning.ceiling == 2).all()
        state = GibbsState(self.THETA.repeat(50, 1), torch.ones(50, dtype=torch.float64))
        assert int(Sweeper(thinning).draw_latent(state, np.random.default_rng(0)).void.sum()) == 0


class TestGaussianConditional:
    def test_theta_given_marks_is_the_solver_s_gaussian(self, monkeypatch):
        # With the marks held at a constant, the draws of theta must have the moments of the primal solver's Gaussian.
        chains = 600
        rows = simulated(6, entry=True, seed=2)
        model, network, _ = network_model(rows, hidden=())
        monkeypatch.setattr(
            "neuralsurv.inference.exact.sweep.draw_marks", lambda weight, g, rng: torch.full_like(g, 0.2) * weight
        )
        sweeper = Sweeper(Thinning(model))
        state = GibbsState(torch.zeros(1, network.size).double(), torch.ones(1).double() * 2)
        latent = sweeper.draw_latent(state, np.random.default_rng(0))
        offset, jacobian = sweeper.thinning.at_events
        every = torch.cat([jacobian, latent.points.jacobian])
        shift = torch.cat([offset, latent.points.offset])
        events, others = len(offset), len(latent.points.time)
        assert others > 0
        slope = torch.cat([torch.full((events,), 0.5), torch.full((others,), -0.5)]).double()
        from neuralsurv.solvers.rows import DenseRows

        solver = PrimalSolver(DenseRows(every), model.precision)
        exact = solver.solve(torch.full((events + others,), 0.2).double(), slope - 0.2 * shift)
        rng = np.random.default_rng(1)
        draws = torch.cat([sweeper.draw_weights(state, latent, rng).theta for _ in range(chains)])
        whitened = (draws - exact.mean) @ exact.factor
        assert float(whitened.mean(0).abs().max()) * math.sqrt(chains) < z_bound(2 * network.size)
        excess = (whitened.square().mean(0) - 1).abs().max() * math.sqrt(chains / 2)
        assert float(excess) < z_bound(2 * network.size)


def test_normaliser_of_a_network_is_taken_at_the_rows():
    rows = simulated(5, seed=3)
    model, _, _ = network_model(rows, normaliser=Tilted())
    row = torch.tensor([3, 0])
    at = double([0.2, 0.9])
    assert torch.equal(model.normaliser(at, row), Tilted()(at, rows.x[row]))


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
    found = sweep.log_density(model, double(settings), information.expand(3, 2, 2), slope.expand(3, 2)).numpy()
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
        right = sweep.log_density

        def wrong(model, log_scales, information, slope):
            return right(model, log_scales, information, slope) + log_scales.sum(1)

        monkeypatch.setattr(sweep, "log_density", wrong)
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
        sweep.log_density(model, double([[0.0], [0.0]]), information, double([[0.0], [0.0]]))
