"""Conditionals of a sweep: marks, points by thinning, the Gaussian of the weights."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from false_alarm import z_bound
from inference.gibbs_models import RHO, network_model, two_weights
from inference.problems import Tilted, double, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.exact.sweep import Sweeper, draw_marks
from neuralsurv.inference.exact.thinning import GibbsState, Thinning
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
