"""The exact sampler against independent computations, and by the joint-distribution test."""

import builtins
import math
from dataclasses import replace

import arviz
import numpy as np
import pytest
import torch
from scipy import stats
from scipy.integrate import quad

from false_alarm import FALSE_ALARM, z_bound
from inference.problems import Tilted, double, simulated
from neuralsurv.errors import InputError, NotFiniteError
from neuralsurv.inference.gibbs import LinearModel, sample
from neuralsurv.inference.gibbs_slide import Slider
from neuralsurv.inference.gibbs_sweep import Sweeper, draw_marks
from neuralsurv.inference.gibbs_thinning import GibbsState, Thinning
from neuralsurv.model.hazard import Half
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, WeightPrior
from neuralsurv.sampled_posterior import DrawnWeights, choose_draws, sampled_posterior
from neuralsurv.solvers.primal import PrimalGaussian, PrimalSolver

RHO = 1.4
PRECISION = double([0.7, 2.0])
PRIOR = Gamma(3.0, 2.5)


def z_at(time, x):
    """A normaliser that varies over time and between rows."""
    return torch.sigmoid(0.4 - time + 0.3 * x)


def two_weights(time, event, entry, weight, x, *, phi_prior=PRIOR, rho=RHO, precision=PRECISION, wave=0.0):
    """g = 0.3 x − t + wave · sin(20t) + θ0 (1 + x) + θ1 sin(3t): with an offset, and no direction that is constant."""

    def linear(at, row):
        jacobian = torch.stack([1 + x[row], torch.sin(3 * at)], dim=1)
        return 0.3 * x[row] - at + wave * torch.sin(20 * at), jacobian[:, : len(precision)]

    return LinearModel(time, event, entry, weight, linear, lambda at, row: z_at(at, x[row]), precision, phi_prior, rho)


def network_model(rows, *, hidden=(3,), activation="tanh", rho=1.0, phi_prior=PRIOR, normaliser=None):
    network = MLP(rows.x.shape[1], hidden, activation)
    star = network.initial(torch.Generator().manual_seed(0))
    model = LinearModel.from_network(
        *rows.arguments,
        network=network,
        theta_star=star,
        weight_prior=WeightPrior.isotropic(network.size),
        phi_prior=phi_prior,
        normaliser=normaliser or Half(),
        rho=rho,
    )
    return model, network, star


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
        return two_weights(self.TIME, event, self.ENTRY, self.WEIGHT, self.X)

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


class GridPosterior:
    """The posterior of one or two weights by brute force; phi is integrated out in closed form, then put back."""

    def __init__(self, model, x, points=181, reach=6.0, wave=0.0):
        self.size = len(model.precision)
        axis = np.linspace(-reach, reach, points)
        mesh = np.stack(np.meshgrid(*[axis] * self.size, indexing="ij"), -1).reshape(-1, self.size)
        theta = mesh / np.sqrt(model.precision.numpy())
        position, weight = np.polynomial.legendre.leggauss(24)
        log_posterior = -0.5 * (mesh**2).sum(1)
        exposure = np.zeros(len(mesh))
        events = 0.0
        for i in range(len(x)):
            xi, w = float(x[i]), float(model.weight[i])

            def g(t, xi=xi):
                columns = np.array([1 + xi, math.sin(3 * t)])[: self.size]
                return 0.3 * xi - t + wave * math.sin(20 * t) + theta @ columns

            low, high = float(model.entry[i]) ** model.rho, float(model.time[i]) ** model.rho
            for node, share in zip(low + (high - low) * (1 + position) / 2, weight, strict=True):
                t = node ** (1 / model.rho)
                z = float(z_at(double(t), double(xi)))
                exposure += w * share * (high - low) / 2 / model.rho / z / (1 + np.exp(-g(t)))
            if bool(model.event[i]):
                events += w
                log_posterior -= w * np.log1p(np.exp(-g(float(model.time[i]))))
        if isinstance(model.phi_prior, Gamma):
            self.shape, rate = model.phi_prior.shape + events, model.phi_prior.rate + exposure
            log_posterior -= self.shape * np.log(rate)
            self.phi_mean, self.log_phi_mean = self.shape / rate, stats.gamma(self.shape).expect(np.log) - np.log(rate)
            self.rate = rate
        else:
            log_posterior -= model.phi_prior * exposure
        mass = np.exp(log_posterior - log_posterior.max())
        self.mass, self.theta = mass / mass.sum(), theta

    def mean(self, values):
        return float(self.mass @ values)

    def draw(self, count, rng):
        """Independent draws of one weight and phi: the weight by its distribution function, phi given it."""
        theta = np.interp(rng.random(count), np.cumsum(self.mass) - self.mass / 2, self.theta[:, 0])
        rate = np.interp(theta, self.theta[:, 0], self.rate)
        return GibbsState(torch.from_numpy(theta)[:, None], torch.from_numpy(rng.gamma(self.shape, size=count) / rate))


def z_scores(draws, exact):
    """Score of every posterior mean against its exact value; the Monte Carlo error comes from ArviZ's ESS."""
    errors = [np.std(d) / math.sqrt(float(arviz.ess(d, method="mean"))) for d in draws]
    return [(np.mean(d) - e) / error for d, e, error in zip(draws, exact, errors, strict=True)]


class TestAgainstBruteForce:
    CASES = (
        ("plain", 1, False, 1.0, PRIOR),
        ("entry, weights and rho", 2, True, RHO, PRIOR),
        ("phi known", 2, True, 0.7, 1.8),
        ("small sigmoid", 1, False, 1.0, Gamma(40.0, 1.0)),
    )

    @pytest.mark.parametrize(("name", "size", "dressed", "rho", "prior"), CASES, ids=[case[0] for case in CASES])
    def test_moments(self, name, size, dressed, rho, prior):
        rows = simulated(12, covariates=1, entry=dressed, seed=4)
        # Whole, fractional and (at censored rows) small weights.
        weights = torch.where(rows.event, double([1, 2.5, 2, 1.2] * 3), double([0.3, 1, 2, 3] * 3))
        x = rows.x[:, 0] / 2
        model = two_weights(
            rows.time,
            rows.event,
            rows.entry,
            weights if dressed else rows.weight,
            x,
            phi_prior=prior,
            rho=rho,
            precision=PRECISION[:size],
        )
        grid = GridPosterior(model, x.numpy())
        result = sample(model, chains=16, draws=200, warmup=50, slides=2, seed=5)
        theta, phi = result.theta.numpy(), result.phi.numpy()
        draws, exact = [], []
        for k in range(size):
            for power in (1, 2, 3):
                draws.append(theta[:, :, k] ** power)
                exact.append(grid.mean(grid.theta[:, k] ** power))
        if isinstance(prior, Gamma):
            draws += [phi, np.log(phi), phi * theta[:, :, 0]]
            products = grid.phi_mean * grid.theta[:, 0]
            exact += [grid.mean(grid.phi_mean), grid.mean(grid.log_phi_mean), grid.mean(products)]
        else:
            assert (phi == prior).all()
        scores = z_scores(draws, exact)
        assert max(map(abs, scores)) < z_bound(len(self.CASES) * len(scores)), scores


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
            thinning = Thinning(two_weights(time, event, self.ENTRY, weight, self.X))
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
        model = two_weights(*rows.arguments[:4], x, precision=PRECISION[:1], wave=wave)
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
        monkeypatch.setattr("neuralsurv.inference.gibbs_slide._CELLS", 1)
        assert self.alarms(slides=4, wave=4.0) == []

    def test_sweeps(self):
        assert self.alarms(sweeps=2) == []

    @pytest.mark.parametrize("broken", [JacobianForgotten, ExposureForgotten])
    def test_a_wrong_slide_is_noticed(self, broken):
        assert self.alarms(slider_class=broken, slides=4) != []

    def test_the_poisson_factor_of_a_slide_is_needed(self, monkeypatch):
        monkeypatch.setattr("neuralsurv.inference.gibbs_slide._CELLS", 1)
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


class TestResult:
    def model(self):
        return network_model(simulated(10, seed=0))

    def test_same_seed_same_draws(self):
        model, _, _ = self.model()
        first, again, other = (sample(model, chains=2, draws=20, warmup=10, seed=seed) for seed in (1, 1, 2))
        assert torch.equal(first.theta, again.theta)
        assert torch.equal(first.phi, again.phi)
        assert not torch.equal(first.theta, other.theta)
        assert not torch.equal(first.theta[0], first.theta[1])

    def test_shapes_and_thinning(self):
        model, network, _ = self.model()
        result = sample(model, chains=3, draws=7, warmup=2, thin=2, seed=1)
        every = sample(model, chains=3, draws=14, warmup=2, thin=1, seed=1)
        assert result.theta.shape == (3, 7, network.size)
        assert result.phi.shape == (3, 7)
        assert torch.equal(result.theta, every.theta[:, 1::2])
        theta, phi = result.flat()
        assert torch.equal(theta[7:14], result.theta[1])
        assert torch.equal(phi[7:14], result.phi[1])

    def test_diagnostics_are_those_of_arviz(self):
        model, _, _ = self.model()
        result = sample(model, chains=4, draws=100, warmup=20, seed=3)
        diagnostics = result.diagnostics
        log_phi = result.phi.log().numpy()
        assert diagnostics.r_hat >= float(arviz.rhat(log_phi))
        assert diagnostics.ess_bulk <= float(arviz.ess(log_phi, method="bulk"))
        assert diagnostics.ess_tail <= float(arviz.ess(log_phi, method="tail"))
        name, number = diagnostics.worst.rsplit(" ", 1)
        if name == "theta":
            assert diagnostics.r_hat == pytest.approx(float(arviz.rhat(result.theta[:, :, int(number)].numpy())))
        assert diagnostics.latent_points > 0

    def test_short_chains_are_reported(self):
        model, _, _ = self.model()
        messages = sample(model, chains=2, draws=8, warmup=0, seed=3).diagnostics.messages
        assert any("the chains disagree: R-hat of" in message for message in messages)
        assert any("effective ones where 200 are wanted" in message for message in messages)

    def test_interrupt_keeps_what_there_is(self, monkeypatch):
        model, _, _ = self.model()
        count = 0
        original = Sweeper.sweep

        def stopping(self, state, rng):
            nonlocal count
            count += 1
            if count > 9:
                raise KeyboardInterrupt
            return original(self, state, rng)

        monkeypatch.setattr(Sweeper, "sweep", stopping)
        result = sample(model, chains=2, draws=50, warmup=3, seed=3)
        assert result.phi.shape == (2, 6)
        assert result.diagnostics.interrupted
        assert "stopped early; 6 draws a chain were kept" in result.diagnostics.messages[-1]
        count = 6
        with pytest.raises(KeyboardInterrupt):
            sample(model, chains=2, draws=50, warmup=3, seed=3)


class TestPosterior:
    def posterior(self):
        model, network, star = network_model(simulated(10, seed=0), rho=RHO)
        result = sample(model, chains=2, draws=40, warmup=10, seed=1)
        return result, sampled_posterior(result, theta_star=star, network=network, normaliser=Half(), rho=RHO)

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
        mean, variance = posterior.g_moments(time, x)
        np.testing.assert_allclose(mean, g.mean(0), rtol=1e-10)
        np.testing.assert_allclose(variance, g.var(0), rtol=1e-10)
        np.testing.assert_allclose(posterior.g_covariance(time, x), np.cov(g.numpy().T), rtol=1e-10)
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
        posterior = sampled_posterior(result, theta_star=star, network=network, normaliser=Half(), rho=1.0)
        assert posterior.phi.mean == pytest.approx(1.5)
        assert (posterior.draw(4, 0).phi == 1.5).all()

    def test_another_network_is_refused(self):
        result, _ = self.posterior()
        network = MLP(2, (4,), "tanh")
        with pytest.raises(InputError, match=r"the draws have 16 weights and theta_star 21, but the network has 21"):
            sampled_posterior(result, theta_star=torch.zeros(21).double(), network=network, normaliser=Half(), rho=1.0)


class TestGaussianConditional:
    def test_theta_given_marks_is_the_solver_s_gaussian(self, monkeypatch):
        # With the marks held at a constant, the draws of theta must have the moments of the primal solver's Gaussian.
        chains = 600
        rows = simulated(6, entry=True, seed=2)
        model, network, _ = network_model(rows, hidden=())
        monkeypatch.setattr(
            "neuralsurv.inference.gibbs_sweep.draw_marks", lambda weight, g, rng: torch.full_like(g, 0.2) * weight
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
        from neuralsurv.model.rows import DenseRows

        solver = PrimalSolver(DenseRows(every), model.precision)
        exact = solver.solve(torch.full((events + others,), 0.2).double(), slope - 0.2 * shift)
        rng = np.random.default_rng(1)
        draws = torch.cat([sweeper.draw_weights(state, latent, rng).theta for _ in range(chains)])
        whitened = (draws - exact.mean) @ exact.factor
        assert float(whitened.mean(0).abs().max()) * math.sqrt(chains) < z_bound(2 * network.size)
        excess = (whitened.square().mean(0) - 1).abs().max() * math.sqrt(chains / 2)
        assert float(excess) < z_bound(2 * network.size)


class TestRefusals:
    ROWS = simulated(4, seed=0)

    @pytest.mark.parametrize(
        ("name", "value", "least"),
        [("chains", 1, 2), ("draws", 3, 4), ("warmup", -1, 0), ("thin", 0, 1), ("slides", -1, 0), ("chains", True, 2)],
    )
    def test_numbers(self, name, value, least):
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=f"{name}={value!r} must be a whole number of at least {least}"):
            sample(model, **{name: value})

    def test_margin(self):
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=r"ceiling_margin=0.5 must be a number of at least 1"):
            sample(model, ceiling_margin=0.5)

    def test_rows(self):
        with pytest.raises(InputError, match=r"1 of 4 rows have an entry that is not before their time"):
            network_model(replace(self.ROWS, entry=double([0, 0, 5, 0])))
        with pytest.raises(InputError, match=r"2 of 4 rows have a weight that is not positive"):
            network_model(replace(self.ROWS, weight=double([1, 0, -1, 1])))
        with pytest.raises(InputError, match=r"of \d events have a weight below 1, for which there is no exact"):
            network_model(replace(self.ROWS, weight=double([0.5, 0.5, 0.5, 0.5])))
        with pytest.raises(InputError, match=r"phi is known to be -1.0, but it must be a positive number"):
            network_model(self.ROWS, phi_prior=-1.0)

    def test_ceiling_that_is_too_low(self):
        spike = two_weights(*self.ROWS.arguments[:4], self.ROWS.x[:, 0])
        seen = Thinning(spike).ceiling

        def normaliser(at, row):
            return torch.where(
                (at / self.ROWS.time[row] * 64 - (at / self.ROWS.time[row] * 64).round()).abs() < 1e-6, 0.5, 0.1
            )

        low = replace(spike, normaliser=normaliser, rho=1.0)
        assert (Thinning(low).ceiling < seen).any()
        with pytest.raises(
            InputError,
            match=r"1/Z exceeds its ceiling by a factor of 5 .* set ceiling_margin, now not given, to more than",
        ):
            sample(low, chains=2, draws=20, warmup=20)
        assert sample(replace(low), chains=2, draws=4, warmup=0, ceiling_margin=8.0).phi.shape == (2, 4)

    def test_too_many_points(self):
        model, _, _ = network_model(self.ROWS, phi_prior=1e9)
        with pytest.raises(NotFiniteError, match=r"a sweep would draw .* latent points \(phi is up to 1e\+09\)"):
            sample(model, chains=2, draws=4)

    @pytest.mark.parametrize(("package", "name"), [("polyagamma", "polyagamma"), ("arviz", "ArviZ")])
    def test_missing_package(self, monkeypatch, package, name):
        original = builtins.__import__

        def missing(module, *arguments, **options):
            if module == package:
                raise ImportError(module)
            return original(module, *arguments, **options)

        monkeypatch.setattr(builtins, "__import__", missing)
        model, _, _ = network_model(self.ROWS)
        with pytest.raises(InputError, match=rf"the Gibbs sampler needs {name}: pip install 'neuralsurv\[gibbs\]'"):
            sample(model)


def test_importing_the_sampler_needs_neither_package():
    import subprocess
    import sys

    code = (
        "import sys; sys.modules['arviz'] = None; sys.modules['polyagamma'] = None; "
        "import neuralsurv.inference.gibbs, neuralsurv.sampled_posterior"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_normaliser_of_a_network_is_taken_at_the_rows():
    rows = simulated(5, seed=3)
    model, _, _ = network_model(rows, normaliser=Tilted())
    row = torch.tensor([3, 0])
    at = double([0.2, 0.9])
    assert torch.equal(model.normaliser(at, row), Tilted()(at, rows.x[row]))
