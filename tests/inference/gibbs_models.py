"""Small linear models for the tests of the Gibbs sampler, and their posteriors by brute force."""

import math

import numpy as np
import torch
from arviz_stats.base import array_stats
from scipy import stats

from inference.problems import double
from neuralsurv.inference.exact.sampler import LinearModel
from neuralsurv.inference.exact.thinning import GibbsState
from neuralsurv.model.hazard import Constant
from neuralsurv.model.network import MLP
from neuralsurv.model.prior import Gamma, PointMass, WeightPrior

RHO = 1.4
PRECISION = double([0.7, 2.0])
PRIOR = Gamma(3.0, 2.5)


def z_at(time, x):
    """A normaliser that varies over time and between rows."""
    return torch.sigmoid(0.4 - time + 0.3 * x)


def known(phi):
    """A number stands for a phi that is known."""
    return PointMass(phi) if isinstance(phi, float) else phi


def two_weights(cohort, x, *, phi_prior=PRIOR, rho=RHO, precision=PRECISION, wave=0.0):
    """g = 0.3 x − t + wave · sin(20t) + θ0 (1 + x) + θ1 sin(3t): with an offset, and no direction that is constant."""

    def linear(at, row):
        jacobian = torch.stack([1 + x[row], torch.sin(3 * at)], dim=1)
        return 0.3 * x[row] - at + wave * torch.sin(20 * at), jacobian[:, : len(precision)]

    return LinearModel(cohort, linear, lambda at, row: z_at(at, x[row]), precision, known(phi_prior), rho)


def network_model(rows, *, hidden=(3,), activation="tanh", rho=1.0, phi_prior=PRIOR, normaliser=None):
    network = MLP(rows.x.shape[1], hidden, activation)
    star = network.initial(torch.Generator().manual_seed(0))
    model = LinearModel.from_network(
        rows,
        network=network,
        theta_star=star,
        weight_prior=WeightPrior.isotropic(network.size),
        phi_prior=known(phi_prior),
        normaliser=normaliser or Constant(0.5),
        rho=rho,
    )
    return model, network, star


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
            xi, w = float(x[i]), float(model.cohort.weight[i])

            def g(t, xi=xi):
                columns = np.array([1 + xi, math.sin(3 * t)])[: self.size]
                return 0.3 * xi - t + wave * math.sin(20 * t) + theta @ columns

            low, high = float(model.cohort.entry[i]) ** model.rho, float(model.cohort.time[i]) ** model.rho
            for node, share in zip(low + (high - low) * (1 + position) / 2, weight, strict=True):
                t = node ** (1 / model.rho)
                z = float(z_at(double(t), double(xi)))
                exposure += w * share * (high - low) / 2 / model.rho / z / (1 + np.exp(-g(t)))
            if bool(model.cohort.event[i]):
                events += w
                log_posterior -= w * np.log1p(np.exp(-g(float(model.cohort.time[i]))))
        if isinstance(model.phi_prior, Gamma):
            self.shape, rate = model.phi_prior.shape + events, model.phi_prior.rate + exposure
            log_posterior -= self.shape * np.log(rate)
            self.phi_mean, self.log_phi_mean = self.shape / rate, stats.gamma(self.shape).expect(np.log) - np.log(rate)
            self.rate = rate
        else:
            log_posterior -= model.phi_prior.mean * exposure
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
    """Score of every posterior mean against its exact value; the Monte Carlo error comes from the ESS."""
    errors = [np.std(d) / math.sqrt(float(array_stats.ess(d, method="mean"))) for d in draws]
    return [(np.mean(d) - e) / error for d, e, error in zip(draws, exact, errors, strict=True)]
