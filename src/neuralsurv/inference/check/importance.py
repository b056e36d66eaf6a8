r"""Importance weights against the exact posterior of the linearised model: a check of q(theta), and a correction.

The *check* weighs draws of q. The *correction* of the paper's posterior draws theta from a better proposal
(:mod:`neuralsurv.inference.check.marginal`), weighs these draws, and draws phi given each theta that is kept.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.check.marginal import NODES, Target, fit_proposal, log_density_of, target_of
from neuralsurv.inference.check.pareto import smooth_weights
from neuralsurv.inference.default.fit import AdditiveFit
from neuralsurv.inference.exact.directions import Cohort, find_directions, times_basis
from neuralsurv.inference.paper.fit import Fit
from neuralsurv.inference.threads import threads_for
from neuralsurv.solvers.interface import Gaussian
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.rows import BLOCK_NUMBERS
from neuralsurv.solvers.subspace import SubspaceGaussian

# Draws that q is checked with; with more rows than this the check would take a noticeable part of the fit.
_CHECKS = 1000
_MOST_ROWS = 1000
# A file holds finite numbers only; a tail that cannot be fitted is as bad as any.
WORST_K_HAT = 99.0
# Draws that are weighed for each that is kept, and the fewest.
_SURPLUS = 10
_FEWEST = 4000


def check_posterior(fit: Fit | AdditiveFit, cohort: Cohort, seed: int) -> dict[str, float]:
    """Weigh draws of q against the exact posterior of the linearised model.

    Parameters
    ----------
    fit : Fit or AdditiveFit
        What was fitted; the default preset is checked at its best scales.
    cohort : tuple of Tensor
        Its time, event, entry, weight (N,) and x (N, d), in scaled time.
    seed : int
        Seed of the draws.

    Returns
    -------
    dict
        ``k_hat``, the shape of the tail of the weights, and ``effective``, the share of the draws that they are worth;
        empty where that would be slow: for more than 1,000 rows, and for very large networks.
    """
    theta: Gaussian = fit.top.state.theta if isinstance(fit, AdditiveFit) else fit.theta
    rows = len(cohort[0])
    slow = rows > _MOST_ROWS or rows * NODES * len(theta.mean) > BLOCK_NUMBERS
    if slow or not isinstance(theta, PrimalGaussian | SubspaceGaussian):
        return {}
    with threads_for(_CHECKS * rows * NODES):
        if isinstance(theta, SubspaceGaussian):
            # Across the subspace q is the prior, and weighs nothing.
            basis = theta.basis / theta.precision.sqrt()[:, None]
            target = target_of(fit, cohort, lambda rows: times_basis(rows, basis), torch.ones_like(theta.inner_mean))
            inner = PrimalGaussian(theta.inner_mean, theta.inner_factor)
        else:
            assert isinstance(fit, Fit)
            target, inner = target_of(fit, cohort, lambda rows: rows.dense(), fit.problem.weight_prior.precision), theta
        generator = torch.Generator().manual_seed(seed)
        z = inner.draw(_CHECKS, generator)
        log_target, rate = target.log_density(z)
        log_weights = log_target - log_density_of(inner, z)
        if isinstance(fit, Fit):
            # q(phi) against the Gamma that phi has given theta.
            phi = fit.phi.draw(_CHECKS, generator)
            log_weights += target.shape * torch.log(rate) + (target.shape - fit.phi.shape) * torch.log(phi)
            log_weights += (fit.phi.rate - rate) * phi
    smoothed = smooth_weights(log_weights.numpy())
    return {"k_hat": min(smoothed.k_hat, WORST_K_HAT), "effective": smoothed.effective / _CHECKS}


@dataclass(frozen=True)
class WeighedDraws:
    """Draws that importance weights have chosen.

    Attributes
    ----------
    theta, phi : Tensor of shape (S, m), (S,)
        The draws.
    k_hat : float
        Shape of the tail of the weights.
    effective : float
        Share of the weighed draws that they are worth.
    """

    theta: Tensor
    phi: Tensor
    k_hat: float
    effective: float

    def flat(self) -> tuple[Tensor, Tensor]:
        """Return the draws of theta and of phi."""
        return self.theta, self.phi


def draw_weighed(target: Target, start: Tensor, *, draws: int, seed: int) -> WeighedDraws:
    """Draw from a proposal for a target whose phi is unknown, and let the weights choose.

    Parameters
    ----------
    target : Target
        The posterior with phi integrated out.
    start : Tensor of shape (r,)
        Where the fit of the proposal begins.
    draws : int
        Draws to keep.
    seed : int
        Seed; the same seed gives the same draws.

    Returns
    -------
    WeighedDraws
        With the target's coordinates as ``theta``.
    """
    rng = np.random.default_rng(seed)
    z, log_proposal = fit_proposal(target, start).draw(max(_FEWEST, _SURPLUS * draws), rng)
    log_target, rate = target.log_density(z)
    smoothed = smooth_weights((log_target - log_proposal).numpy())
    chosen = torch.from_numpy(_systematic(smoothed.weights, draws, rng))
    phi = torch.from_numpy(rng.gamma(target.shape, size=draws)) / rate[chosen]
    return WeighedDraws(z[chosen], phi, min(smoothed.k_hat, WORST_K_HAT), smoothed.effective / len(z))


def weigh_draws(fit: Fit, cohort: Cohort, *, draws: int, seed: int) -> WeighedDraws:
    """Correct the posterior of the paper's preset at the cost of a few matrix products.

    Parameters
    ----------
    fit : Fit
        What was fitted; it says where the network is linearised.
    cohort : tuple of Tensor
        Its time, event, entry, weight (N,) and x (N, d), in scaled time.
    draws, seed : int
        Draws to keep, and their seed.
    """
    directions = find_directions(fit, cohort)
    with threads_for(_SURPLUS * draws * len(cohort[0]) * NODES):
        target = target_of(fit, cohort, directions.project, torch.ones(directions.rank, dtype=torch.float64))
        drawn = draw_weighed(target, directions.coordinates(fit.theta.mean), draws=draws, seed=seed)
        known = drawn.theta.new_zeros(draws, 0)
        weights = directions.weights(drawn.theta, known, torch.Generator().manual_seed(seed))
    return replace(drawn, theta=weights)


def _systematic(weights: np.ndarray, count: int, rng: np.random.Generator) -> np.ndarray:
    """Return `count` indices, each as often as its weight says up to rounding, in random order."""
    places = (rng.random() + np.arange(count)) / count
    chosen = np.searchsorted(np.cumsum(weights), places)
    return rng.permutation(np.minimum(chosen, len(weights) - 1))
