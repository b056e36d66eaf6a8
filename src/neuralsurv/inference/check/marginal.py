r"""The exact posterior of the linearised model with phi integrated out, and a proposal that comes close to it.

With phi integrated out the log posterior of theta is known up to a constant,

.. math:: \ell(\theta) = \sum_\text{events} w\log\sigma(g) - a\,\log B(\theta) - \tfrac12\theta^\top T\theta,
          \qquad a = \alpha_0 + D,\quad B = \beta_0 + \sum_\text{nodes} c\,\sigma(g),

and phi given theta is Gamma(a, B). Where phi is held, φ·B takes the place of a log B.

The proposal is a Gaussian that is fitted to ℓ itself in place of the Pólya–Gamma bound. With φ̂ = a/E B, κ the expected
curvatures and v the expected slopes of the nodes (:mod:`neuralsurv.inference.default.expectations`), its precision is

.. math:: T + J^\top\mathrm{diag}(\kappa)J - \tfrac{1}{a}\,J^\top vv^\top J :

the last term is what not knowing phi takes away, and what mean field forgets. Along the ridge of that term, where phi
and the level of g make up for each other, ℓ is skewed and its tail long: there the proposal has that of Student's t.
In the other directions some draws are wider, since far out, where the sigmoid is flat, ℓ is the prior's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import logsumexp
from scipy.stats import t as student
from torch import Tensor
from torch.nn.functional import logsigmoid

from neuralsurv.errors import NotPositiveDefiniteError
from neuralsurv.inference.default.expectations import expectations
from neuralsurv.inference.default.fit import AdditiveFit
from neuralsurv.inference.exact.directions import Cohort, node_points
from neuralsurv.inference.paper.fit import Fit
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.primal import PrimalGaussian, cholesky
from neuralsurv.solvers.rows import Rows

# Nodes of a row of the likelihood.
NODES = 16
# Steps of the fit of the Gaussian, how they are shortened, and when they are over.
_STEPS = 200
_SHORTER = 0.5
_STILL = 1e-6
# Degrees of freedom and stretch of the proposal along the ridge.
_DEGREES = 5.0
_STRETCH = 1.3
# Widths of the proposal in the other directions, and the shares of draws that have them.
_WIDTHS = np.array([1.0, 1.15, 1.5])
_SHARES = np.array([0.7, 0.2, 0.1])
_DRAWS_AT_ONCE = 500


@dataclass(frozen=True)
class Target:
    """The exact posterior of the linearised model in coordinates z of the weights.

    Attributes
    ----------
    likelihood : Likelihood
        Events and nodes.
    offset, rows : Tensor of shape (P,), (P, r)
        g = offset + rows z.
    precision : Tensor of shape (r,)
        Prior precision of z.
    phi_prior : Gamma or float
        Prior of phi, or the value at which it is held.
    """

    likelihood: Likelihood
    offset: Tensor
    rows: Tensor
    precision: Tensor
    phi_prior: Gamma | float

    @property
    def shape(self) -> float:
        """a, the shape of phi given theta."""
        assert isinstance(self.phi_prior, Gamma)
        return self.phi_prior.shape + self.likelihood.event_count

    def log_density(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ℓ and B for coordinates (S, r), each of shape (S,)."""
        events = self.likelihood.points.events
        found, rates = [], []
        for part in torch.split(z, _DRAWS_AT_ONCE):
            g = torch.addmm(self.offset, part, self.rows.T)
            exposure = torch.sigmoid(g[:, events:]) @ self.likelihood.baseline
            value = logsigmoid(g[:, :events]) @ self.likelihood.event_weight - 0.5 * part.square() @ self.precision
            if isinstance(self.phi_prior, Gamma):
                rate = self.phi_prior.rate + exposure
                found.append(value - self.shape * torch.log(rate))
            else:
                rate = exposure
                found.append(value - self.phi_prior * rate)
            rates.append(rate)
        return torch.cat(found), torch.cat(rates)


def target_of(fit: Fit | AdditiveFit, cohort: Cohort, project: Callable[[Rows], Tensor], precision: Tensor) -> Target:
    """Return the target in coordinates z of this prior precision; `project` turns rows of the network into theirs."""
    model = fit.likelihood
    points = node_points(fit, cohort, NODES)
    likelihood = Likelihood(points, cohort[4], model.network, model.normaliser, model.rho)
    linearised = linearise_network(model.network, fit.theta_star, points.time, likelihood.point_x)
    phi_prior = fit.phi.mean if isinstance(fit, AdditiveFit) else fit.problem.phi_prior
    return Target(likelihood, linearised.offset, project(linearised.rows), precision, phi_prior)


def log_density_of(gaussian: PrimalGaussian, draws: Tensor) -> Tensor:
    """Return the log density of draws (S, r), up to the constant of the dimension, shape (S,)."""
    return gaussian.factor.diagonal().log().sum() - 0.5 * ((draws - gaussian.mean) @ gaussian.factor).square().sum(1)


@dataclass(frozen=True)
class Proposal:
    """A Gaussian with the tail of Student's t in one direction, and a mixture of widths in the others.

    Attributes
    ----------
    gaussian : PrimalGaussian
        The Gaussian.
    ridge : Tensor of shape (r,)
        The direction, of length 1, in the coordinates in which the Gaussian is standard.
    """

    gaussian: PrimalGaussian
    ridge: Tensor

    def draw(self, count: int, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Return draws (count, r) and their log densities (count,) up to a constant."""
        ridge = self.ridge.numpy()
        noise = rng.standard_normal((count, len(ridge))) * rng.choice(_WIDTHS, count, p=_SHARES)[:, None]
        across = noise - np.outer(noise @ ridge, ridge)
        along = rng.standard_t(_DEGREES, count)
        noise = torch.from_numpy(across + np.outer(_STRETCH * along, ridge))
        draws = self.gaussian.mean + torch.linalg.solve_triangular(self.gaussian.factor.T, noise.T, upper=True).T
        of_width = -0.5 * np.square(across).sum(1)[:, None] / _WIDTHS**2 - (len(ridge) - 1) * np.log(_WIDTHS)
        density = logsumexp(of_width, axis=1, b=_SHARES) + student.logpdf(along, _DEGREES)
        return draws, torch.from_numpy(density)


def fit_proposal(target: Target, start: Tensor) -> Proposal:
    """Fit the proposal to the posterior with phi integrated out, by damped fixed-point steps from `start` (r,).

    It only has to be close: what it misses, the weights make up for.
    """
    likelihood, events = target.likelihood, target.likelihood.points.events
    assert isinstance(target.phi_prior, Gamma)
    nodes = target.rows[events:]
    mean = start
    variance = torch.zeros_like(target.offset)
    for _ in range(_STEPS):
        g = target.offset + target.rows @ mean
        exposure = expectations(likelihood, 1.0, g, variance, fisher=False).exposure
        phi = target.shape / (target.phi_prior.rate + exposure)
        expected = expectations(likelihood, phi, g, variance, fisher=False)
        pull = nodes.T @ expected.slope[events:]
        precision = torch.diag(target.precision) - torch.outer(pull, pull) / target.shape
        precision += target.rows.T @ (expected.curvature[:, None] * target.rows)
        try:
            factor = cholesky(precision)
        except NotPositiveDefiniteError:
            fisher = expectations(likelihood, phi, g, variance, fisher=True)
            # Of the Fisher information alone the last term never takes more than there is.
            precision += target.rows.T @ ((fisher.curvature - expected.curvature)[:, None] * target.rows)
            factor = cholesky(precision)
        gaussian = PrimalGaussian(mean, factor)
        gradient = target.rows.T @ expected.slope - target.precision * mean
        step = torch.cholesky_solve(gradient[:, None], factor).squeeze(1)
        mean = mean + _SHORTER * step
        variance = torch.lerp(variance, gaussian.variance(target.rows), _SHORTER)
        if float(step.abs().max()) < _STILL:
            break
    ridge = torch.linalg.solve_triangular(factor, pull[:, None], upper=False).squeeze(1)
    return Proposal(PrimalGaussian(mean, factor), ridge / ridge.norm())
