"""Simulation-based calibration: models that can be drawn from, and their posteriors, exact and approximate.

Both models are linearised at a place that does not depend on the data, so that data can be drawn from the very model
that is fitted: what is tested is the inference alone, neither the linearisation nor the choice of scales.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.expectations import Ascent
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.exact.sampler import LinearModel, sample
from neuralsurv.inference.paper import cavi
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.hazard import Constant, Normaliser
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise, linearise_network
from neuralsurv.model.network import MLP, Network
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, PointMass, WeightPrior
from neuralsurv.model.quadrature import GaussLegendre, ShiftedLog
from neuralsurv.posterior.gaussian import Draws, Posterior
from neuralsurv.posterior.samples import DrawnWeights
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalSolver

ROWS = 20
# A cohort with fewer events is drawn again. That is a condition on the data, which leaves ranks uniform.
LEAST_EVENTS = 5
DRAWS = 99
CHAINS, WARMUP, THIN = 4, 80, 8
# Whose survival is ranked, and when.
PEOPLE = torch.tensor([[-1.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
TIMES = torch.tensor([0.25, 0.75], dtype=torch.float64)
# Nodes of a row, enough that no error of the quadrature is seen.
_NODES = 24


@dataclass(frozen=True)
class DrawnModel:
    """A linearised model with its prior.

    Attributes
    ----------
    network, theta_star
        The network, and where it is linearised.
    precision : Tensor of shape (m,)
        Diagonal of the prior precision.
    phi_prior : Gamma or PointMass
        Prior of phi.
    normaliser : Constant
        Z, the same everywhere.
    """

    network: Network
    theta_star: Tensor
    precision: Tensor
    phi_prior: Gamma | PointMass
    normaliser: Normaliser

    @cached_property
    def ceiling(self) -> float:
        """1/Z."""
        one = torch.ones(1, dtype=torch.float64)
        return 1 / float(self.normaliser(one, one[:, None]))

    def draw_prior(self, rng: np.random.Generator) -> Draws:
        """Return one draw of (theta, phi)."""
        theta = torch.from_numpy(rng.standard_normal(len(self.precision))) / self.precision.sqrt()
        prior = self.phi_prior
        phi = rng.gamma(prior.shape) / prior.rate if isinstance(prior, Gamma) else prior.mean
        return Draws(theta[None], torch.tensor([phi], dtype=torch.float64))

    def draw_cohort(self, truth: Draws, rng: np.random.Generator) -> Cohort:
        """Draw times from the hazard by thinning, and cut them at the end of each row's follow-up."""
        x = torch.from_numpy(rng.standard_normal((ROWS, PEOPLE.shape[1])))
        limit = rng.uniform(0.3, 1.0, ROWS)
        row = np.repeat(np.arange(ROWS), rng.poisson(float(truth.phi) * self.ceiling * limit))
        at = limit[row] * rng.random(len(row))
        linear = linearise_network(self.network, self.theta_star, torch.from_numpy(at), x[torch.from_numpy(row)])
        share = torch.sigmoid(linear.offset + linear.rows.times(truth.theta[0])).numpy()
        kept = rng.random(len(row)) < share
        first = np.full(ROWS, np.inf)
        np.minimum.at(first, row[kept], at[kept])
        return Cohort.of(np.minimum(first, limit), first < limit, np.zeros(ROWS), np.ones(ROWS), x)

    def quantities(self, draws: Draws) -> dict[str, np.ndarray]:
        """Return what is ranked, each of shape (S,): survival of some people, and phi where it is unknown."""
        # Only its curves are used; its weights are those of the given draws.
        weights = DrawnWeights(draws.theta)
        posterior = Posterior(self.phi_prior, weights, self.theta_star, self.network, self.normaliser, 1.0)
        survival = torch.exp(-posterior.cumulative_hazard_draws(draws, TIMES, PEOPLE)).numpy()
        found = {
            f"S({time:g} | person {person + 1})": survival[:, person, place]
            for person in range(len(PEOPLE))
            for place, time in enumerate(TIMES.tolist())
        }
        return ({"phi": draws.phi.numpy()} if isinstance(self.phi_prior, Gamma) else {}) | found


def paper_model() -> DrawnModel:
    """Return the paper's priors over a small network, linearised at one draw."""
    network = MLP(PEOPLE.shape[1], (4,), "tanh")
    star = network.initial(torch.Generator().manual_seed(0))
    return DrawnModel(network, star, WeightPrior.isotropic(network.size).precision, Gamma(1.0, 1.0), Constant(0.5))


def default_model() -> DrawnModel:
    """Return the default model at the medians of its scales, its clock set by evenly spread events."""
    settings = DefaultSettings(hidden=(8,))
    times = torch.linspace(0.05, 0.95, 19, dtype=torch.float64)
    network = build_network(times, torch.ones_like(times), PEOPLE.shape[1], settings, 0)
    prior = build_prior(network, settings)
    star = torch.zeros(network.size, dtype=torch.float64)
    return DrawnModel(network, star, prior.at(prior.medians).precision, PointMass(1.0), Constant(1 / settings.headroom))


def cavi_draws(model: DrawnModel, cohort: Cohort, seed: int) -> Draws:
    """Return draws of the paper's variational posterior of the same linearised model."""
    assert isinstance(model.phi_prior, Gamma)
    problem = PaperProblem(
        points=build_points(cohort, GaussLegendre(_NODES), 1.0),
        x=cohort.x,
        network=model.network,
        weight_prior=WeightPrior(model.precision),
        phi_prior=model.phi_prior,
        normaliser=model.normaliser,
        rho=1.0,
    )
    linearised = linearise(problem, model.theta_star)
    solver = PrimalSolver(linearised.rows, model.precision)
    state = cavi.start(problem, linearised, torch.zeros_like(model.precision), model.phi_prior.mean)
    state, _ = cavi.sweep_until_converged(problem, linearised, solver, state)
    assert state.theta is not None
    return _drawn(model, state.phi, state.theta, seed)


def gaussian_draws(model: DrawnModel, cohort: Cohort, seed: int) -> Draws:
    """Return draws of the default model's Gaussian posterior at its scales."""
    rule = ShiftedLog(_NODES, model.network.basis.shift)
    likelihood = Likelihood(build_points(cohort, rule, 1.0), cohort.x, model.network, model.normaliser, 1.0)
    points = likelihood.points
    linearised = linearise_network(model.network, model.theta_star, points.time, likelihood.point_x)
    solver = PrimalSolver(linearised.rows, model.precision)
    ascent = Ascent(likelihood, model.phi_prior.mean, linearised.offset, solver, model.precision)
    state, _ = ascent.climb(ascent.start(), tolerance=DefaultSettings.tolerance, most=DefaultSettings.max_sweeps)
    return _drawn(model, model.phi_prior, state.theta, seed)


def _drawn(model: DrawnModel, phi: Gamma | PointMass, theta: Gaussian, seed: int) -> Draws:
    return Posterior(phi, theta, model.theta_star, model.network, model.normaliser, 1.0).draw(DRAWS, seed)


def exact_draws(model: DrawnModel, cohort: Cohort, seed: int) -> Draws:
    """Return draws of the exact posterior."""
    linear = LinearModel.from_network(
        cohort,
        network=model.network,
        theta_star=model.theta_star,
        weight_prior=WeightPrior(model.precision),
        phi_prior=model.phi_prior,
        normaliser=model.normaliser,
        rho=1.0,
    )
    each = -(-DRAWS // CHAINS)
    return Draws(*sample(linear, chains=CHAINS, draws=each, warmup=WARMUP, thin=THIN, seed=seed).flat())


MODELS = {"paper": paper_model, "default": default_model}
METHODS: dict[str, dict[str, Callable[[DrawnModel, Cohort, int], Draws]]] = {
    "paper": {"exact": exact_draws, "CAVI": cavi_draws},
    "default": {"exact": exact_draws, "Gaussian": gaussian_draws},
}
# A posterior whose draws are pulled to their mean by this factor must be found out.
SHRUNK = 0.6


def shrunk(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return draws of quantities (S,) pulled to their means."""
    return {name: draws.mean() + SHRUNK * (draws - draws.mean()) for name, draws in values.items()}


def ranks(truth: Mapping[str, np.ndarray], drawn: Mapping[str, np.ndarray]) -> dict[str, int]:
    """Return how many of the draws lie below the truth, for each quantity."""
    return {name: int((values[:DRAWS] < truth[name][0]).sum()) for name, values in drawn.items()}


def replicate(name: str, method: str, number: int) -> dict[str, object]:
    """Draw a truth and a cohort, find a posterior, and return the ranks of the truth among its draws.

    The cohort depends on the model and the number alone, so that all methods see the same ones.
    """
    model = MODELS[name]()
    rng = np.random.default_rng((number, sorted(MODELS).index(name)))
    while True:
        truth = model.draw_prior(rng)
        cohort = model.draw_cohort(truth, rng)
        if int(cohort.event.sum()) >= LEAST_EVENTS:
            break
    true, drawn = model.quantities(truth), model.quantities(METHODS[name][method](model, cohort, number))
    found = {method: ranks(true, drawn)}
    if method == "exact":
        found["exact, shrunk"] = ranks(true, shrunk(drawn))
    return {"events": int(cohort.event.sum()), "ranks": found}
