"""The sampler leaves the posterior as it is: the joint-distribution test, and each kind of step by itself."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from false_alarm import FALSE_ALARM, z_bound
from inference.gibbs_models import PRECISION, PRIOR, RHO, GridPosterior, network_model, two_weights
from inference.problems import double, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.exact.slide import Slider
from neuralsurv.inference.exact.sweep import Sweeper
from neuralsurv.inference.exact.thinning import GibbsState, Thinning
from neuralsurv.model.prior import Gamma


class JointTest:
    """The joint-distribution test, as independent replications.

    Draw (θ, φ) from the prior and data given them; then (θ, φ) is an exact draw from its posterior, and stays one
    under any number of steps of a right sampler. Over replications it must therefore keep the law of the prior.
    Replications are independent, so the scores are standard normal up to the central limit theorem, and a
    Kolmogorov–Smirnov test is exact.
    """

    REPLICATIONS, SWEEPS, ROWS = 300, 3, 12
    ENTRY, LIMIT = double([0.0, 0.3, 0.0, 0.1] * 3), double([1.0, 0.9, 0.5, 1.0] * 3)
    X = double([0.5, -1.2, 0.0, 1.0] * 3)

    def data(self, theta, phi, rng):
        """Times from the hazard by thinning, cut at fixed limits."""
        time, event = self.LIMIT.clone(), torch.zeros(self.ROWS, dtype=torch.bool)
        for row in range(self.ROWS):
            x, t = float(self.X[row]), float(self.ENTRY[row])
            while True:
                # φ t^(ρ−1) times this ceiling bounds the hazard: Z is at least σ(0.4 − 1 − 0.36).
                ceiling = phi / 0.27
                t = (t**RHO + RHO * rng.exponential() / ceiling) ** (1 / RHO)
                if t >= float(self.LIMIT[row]):
                    break
                g = 0.3 * x - t + theta[0] * (1 + x) + theta[1] * math.sin(3 * t)
                z = 1 / (1 + math.exp(-(0.4 - t + 0.3 * x)))
                if rng.random() * ceiling < phi / z / (1 + math.exp(-g)):
                    time[row], event[row] = t, True
                    break
        return time, event

    def run(self, sweeper_class=Sweeper, slider_class=Slider):
        """Return prior draws and what the sampler makes of them, each of shape (R, 3): θ and log φ."""
        rng = np.random.default_rng(11)
        before, after = [], []
        for _ in range(self.REPLICATIONS):
            theta = rng.standard_normal(2) / np.sqrt(PRECISION.numpy())
            phi = rng.gamma(PRIOR.shape) / PRIOR.rate
            time, event = self.data(theta, phi, rng)
            weight = torch.ones(self.ROWS, dtype=torch.float64)
            thinning = Thinning(two_weights(Cohort(time, event, self.ENTRY, weight, self.X[:, None]), self.X))
            sweeper, slider = sweeper_class(thinning), slider_class(thinning)
            direction = double([0.8, 0.1])
            state = GibbsState(double(theta)[None], double([phi]))
            for _ in range(self.SWEEPS):
                state, _ = slider.slide(state, direction, rng)
                state, _ = sweeper.sweep(state, rng)
            before.append([*theta, math.log(phi)])
            after.append([*state.theta[0].tolist(), math.log(float(state.phi[0]))])
        return np.array(before), np.array(after)

    def alarms(self, before, after):
        """Return the tests that fail at the false-alarm rate, shared out over all of them."""
        functions = {
            "theta0": lambda v: v[:, 0],
            "theta1": lambda v: v[:, 1],
            "log phi": lambda v: v[:, 2],
            "theta0 squared": lambda v: v[:, 0] ** 2,
            "theta1 squared": lambda v: v[:, 1] ** 2,
            "log phi squared": lambda v: v[:, 2] ** 2,
            "theta0 phi": lambda v: v[:, 0] * v[:, 2],
        }
        laws = (
            stats.norm(scale=1 / math.sqrt(0.7)).cdf,
            stats.norm(scale=1 / math.sqrt(2.0)).cdf,
            lambda v: stats.gamma(PRIOR.shape, scale=1 / PRIOR.rate).cdf(np.exp(v)),
        )
        comparisons = len(functions) + len(laws)
        failed = []
        for name, function in functions.items():
            change = function(after) - function(before)
            if abs(change.mean()) > z_bound(comparisons) * change.std() / math.sqrt(len(change)):
                failed.append(name)
        for column, law in enumerate(laws):
            if stats.kstest(after[:, column], law).pvalue < FALSE_ALARM / comparisons:
                failed.append(f"law {column}")
        return failed


class WrongSideKept(Sweeper):
    """Thins with σ(g) where σ(−g) is right."""

    def draw_latent(self, state, rng):
        flipped = replace(
            self.thinning.model, linear=lambda at, row: tuple(-v for v in self.thinning.model.linear(at, row))
        )
        latent = Sweeper(Thinning(flipped)).draw_latent(state, rng)
        points = replace(latent.points, offset=-latent.points.offset, jacobian=-latent.points.jacobian)
        return replace(latent, points=points)


class VoidForgotten(Sweeper):
    """Leaves the void points out of the count that phi depends on."""

    def draw_phi(self, state, latent, rng):
        return super().draw_phi(state, replace(latent, void=torch.zeros_like(latent.void)), rng)


class LatentForgotten(Sweeper):
    """Draws theta without the latent points."""

    def draw_weights(self, state, latent, rng):
        return super().draw_weights(
            state, replace(latent, points=latent.points.take(torch.tensor([], dtype=torch.long))), rng
        )


class JacobianForgotten(Slider):
    """Treats the slide as symmetric in phi, not in log phi."""

    def log_ratio(self, state, new):
        return super().log_ratio(state, new) - torch.log(new.phi / state.phi)


class ExposureForgotten(Slider):
    """Accepts by priors and events alone, as far as the nodes can tell."""

    def integrate(self, values):
        return torch.zeros(len(values), dtype=torch.float64)


class PoissonFactorForgotten(Slider):
    """Trusts the nodes: the interpolant is taken as the change of the hazard itself."""

    def interpolate(self, values, points):
        return torch.full_like(points.time, torch.inf)


class TestJointDistribution(JointTest):
    def test_the_sampler_keeps_the_joint_law(self):
        assert self.alarms(*self.run()) == []

    def test_a_wrong_conditional_is_noticed(self):
        assert self.alarms(*self.run(sweeper_class=WrongSideKept)) != []


class TestStationarity:
    """For one set of data, independent exact draws of the posterior keep their law under each kind of step."""

    CHAINS = 2000

    def alarms(self, sweeper_class=Sweeper, slider_class=Slider, *, sweeps=0, slides=0, wave=0.0):
        rows = simulated(10, covariates=1, entry=True, seed=4)
        x = rows.x[:, 0] / 2
        model = two_weights(rows, x, precision=PRECISION[:1], wave=wave)
        thinning = Thinning(model)
        rng = np.random.default_rng(8)
        first = state = GridPosterior(model, x.numpy(), points=2001, reach=8.0, wave=wave).draw(self.CHAINS, rng)
        sweeper, slider = sweeper_class(thinning), slider_class(thinning)
        direction = slider.direction(first.theta.mean(0), float(first.phi.mean()))
        for _ in range(slides):
            state, _ = slider.slide(state, direction, rng)
        for _ in range(sweeps):
            state, _ = sweeper.sweep(state, rng)
        assert not torch.equal(first.phi, state.phi)
        one, two = (np.stack([s.theta[:, 0].numpy(), s.phi.log().numpy()]) for s in (first, state))
        functions = (lambda v: v[0], lambda v: v[1], lambda v: v[0] ** 2, lambda v: v[1] ** 2, lambda v: v[0] * v[1])
        changes = [function(two) - function(one) for function in functions]
        scores = [change.mean() / change.std() * math.sqrt(self.CHAINS) for change in changes]
        return [score for score in scores if abs(score) > z_bound(4 * len(functions))]

    def test_slides(self):
        assert self.alarms(slides=4) == []

    def test_slides_with_one_cell_a_row(self, monkeypatch):
        # The interpolant is poor then, and the Poisson factor has to make up for it.
        monkeypatch.setattr("neuralsurv.inference.exact.slide._CELLS", 1)
        assert self.alarms(slides=4, wave=4.0) == []

    def test_sweeps(self):
        assert self.alarms(sweeps=2) == []

    @pytest.mark.parametrize("broken", [JacobianForgotten, ExposureForgotten])
    def test_a_wrong_slide_is_noticed(self, broken):
        assert self.alarms(slider_class=broken, slides=4) != []

    def test_the_poisson_factor_of_a_slide_is_needed(self, monkeypatch):
        monkeypatch.setattr("neuralsurv.inference.exact.slide._CELLS", 1)
        assert self.alarms(slider_class=PoissonFactorForgotten, slides=4, wave=4.0) != []

    @pytest.mark.parametrize("broken", [WrongSideKept, VoidForgotten, LatentForgotten])
    def test_a_wrong_conditional_is_noticed(self, broken):
        assert self.alarms(sweeper_class=broken, sweeps=2) != []


class TestSlides:
    def test_they_mix_where_phi_and_the_level_are_coupled(self):
        # A vague prior of a large phi: only the product of phi and the sigmoid is known.
        rows = simulated(10, covariates=1, seed=1)
        model, _, _ = network_model(rows, hidden=(), phi_prior=Gamma(2.0, 0.02))
        with_slides, without = (sample(model, chains=8, draws=150, warmup=60, slides=k, seed=2) for k in (3, 0))
        assert with_slides.diagnostics.ess_bulk > 4 * without.diagnostics.ess_bulk
        assert 0.2 < with_slides.diagnostics.slide_acceptance < 0.9
        assert math.isnan(without.diagnostics.slide_acceptance)
