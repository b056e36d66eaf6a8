"""Importance weights of q(theta) against the exact posterior of the linearised model: how far to trust the bands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.check.pareto import smooth_weights
from neuralsurv.inference.linearised_fit import LinearisedFit
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Gamma, PointMass
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.rows import BLOCK_NUMBERS, DenseRows, Products, Rows

# Nodes of a row of the likelihood.
NODES = 16
_DRAWS_AT_ONCE = 500
# Draws that q is checked with; with more rows than this the check would take a noticeable part of the fit.
_CHECKS = 1000
_MOST_ROWS = 1000
# A file holds finite numbers only; a tail that cannot be fitted is as bad as any.
WORST_K_HAT = 99.0


@dataclass(frozen=True)
class Target:
    r"""The exact posterior of the linearised model in coordinates z of the weights, with phi integrated out.

    The log posterior of theta is known up to a constant,

    .. math:: \ell(\theta) = \sum_\text{events} w\log\sigma(g) - a\,\log B(\theta) - \tfrac12\theta^\top T\theta,
              \qquad a = \alpha_0 + D,\quad B = \beta_0 + \sum_\text{nodes} c\,\sigma(g),

    and phi given theta is Gamma(a, B). Where phi is known, φ·B takes the place of a log B.
    """

    likelihood: Likelihood  # events and nodes
    # g = offset + rows z, for rows (P, r).
    offset: Tensor
    rows: Products
    precision: Tensor  # prior precision of z, shape (r,)
    phi_prior: Gamma | PointMass

    @property
    def shape(self) -> float:
        """a, the shape of phi given theta."""
        prior = self.phi_prior.inferred
        return 0.0 if prior is None else prior.shape + self.likelihood.event_count

    def log_density(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Return ℓ and B for coordinates (S, r), each of shape (S,)."""
        events = self.likelihood.points.events
        values, exposures = [], []
        for part in torch.split(z, _DRAWS_AT_ONCE):
            g = self.rows.times_each(part.T).add_(self.offset[:, None])
            log_share = self.likelihood.event_weight @ logsigmoid(g[:events])
            exposures.append(self.likelihood.baseline @ g[events:].sigmoid_())
            values.append(log_share - 0.5 * part.square() @ self.precision)
        value, exposure = torch.cat(values), torch.cat(exposures)
        prior = self.phi_prior.inferred
        if prior is None:
            return value - self.phi_prior.mean * exposure, exposure
        rate = prior.rate + exposure
        return value - self.shape * torch.log(rate), rate

    def log_phi_weights(self, phi: Gamma | PointMass, rate: Tensor, generator: torch.Generator) -> Tensor:
        """Draw from q(phi) and weigh it against the Gamma(a, B) that phi has given theta; 0 where phi is known."""
        q = phi.inferred
        if q is None:
            return torch.zeros_like(rate)
        drawn = q.draw(len(rate), generator)
        weights = self.shape * torch.log(rate) + (self.shape - q.shape) * torch.log(drawn)
        return weights + (q.rate - rate) * drawn


def target_of(fit: LinearisedFit, cohort: Cohort, project: Callable[[Rows], Tensor], precision: Tensor) -> Target:
    """Return the target in coordinates z of this prior precision; `project` turns rows of the network into theirs."""
    likelihood = _finer_likelihood(fit, cohort)
    linearised = linearise(likelihood, fit.theta_star)
    return Target(likelihood, linearised.offset, DenseRows(project(linearised.rows)), precision, fit.phi_prior)


def _finer_likelihood(fit: LinearisedFit, cohort: Cohort) -> Likelihood:
    model = fit.likelihood
    points = build_points(cohort, fit.rule(NODES), model.rho, model.network.causes)
    return replace(model, points=points, x=cohort.x)


def best_target(fit: LinearisedFit, cohort: Cohort, basis: Tensor) -> Target:
    """Return the target in the coordinates of the fit's best Gaussian, in a basis (m, r)."""
    ones = torch.ones(basis.shape[1], dtype=basis.dtype)
    likelihood = _finer_likelihood(fit, cohort)
    separate = fit.separate(likelihood)
    if separate is not None:
        return Target(likelihood, *separate, ones, fit.phi_prior)
    return target_of(fit, cohort, lambda rows: rows.times_basis(basis), ones)


def check_posterior(fit: LinearisedFit, cohort: Cohort, seed: int) -> dict[str, float]:
    """Weigh draws of q, for the default model at its best scales, against the exact posterior of the linearised model.

    Returns ``k_hat``, the shape of the tail of the weights, and ``effective``, the share of the draws that they are
    worth; nothing where that would be slow: for more than 1,000 rows, and for very large networks.
    """
    # Rows of several causes have as many nodes for each.
    theta, rows = fit.best_theta, len(cohort) * fit.likelihood.network.causes
    if rows > _MOST_ROWS or rows * NODES * len(theta.mean) > BLOCK_NUMBERS:
        return {}
    form = theta.dense_form()
    if form is None:
        return {}
    basis, mean, factor = form
    with threads_for(_CHECKS * rows * NODES):
        if basis is None:
            target = target_of(fit, cohort, lambda rows: rows.dense(), fit.prior.unit)
        else:
            # Across the basis q is the prior, and does not change the weights.
            target = best_target(fit, cohort, basis)
        generator = torch.Generator().manual_seed(seed)
        z = PrimalGaussian(mean, factor).draw(_CHECKS, generator)
        log_target, rate = target.log_density(z)
        # Up to the constant of the dimension.
        log_q = factor.diagonal().log().sum() - 0.5 * ((z - mean) @ factor).square().sum(1)
        log_weights = log_target - log_q + target.log_phi_weights(fit.phi, rate, generator)
    smoothed = smooth_weights(log_weights.numpy())
    return {"k_hat": min(smoothed.k_hat, WORST_K_HAT), "effective": smoothed.effective / _CHECKS}
