"""Importance weights of q(theta) against the exact posterior of the linearised model: how far to trust the bands."""

from __future__ import annotations

import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.check.marginal import NODES, log_density_of, target_of
from neuralsurv.inference.check.pareto import smooth_weights
from neuralsurv.inference.exact.directions import times_basis
from neuralsurv.inference.linearised_fit import LinearisedFit
from neuralsurv.inference.threads import threads_for
from neuralsurv.solvers.primal import PrimalGaussian
from neuralsurv.solvers.rows import BLOCK_NUMBERS

# Draws that q is checked with; with more rows than this the check would take a noticeable part of the fit.
_CHECKS = 1000
_MOST_ROWS = 1000
# A file holds finite numbers only; a tail that cannot be fitted is as bad as any.
WORST_K_HAT = 99.0


def check_posterior(fit: LinearisedFit, cohort: Cohort, seed: int) -> dict[str, float]:
    """Weigh draws of q, for the default model at its best scales, against the exact posterior of the linearised model.

    Returns ``k_hat``, the shape of the tail of the weights, and ``effective``, the share of the draws that they are
    worth; nothing where that would be slow: for more than 1,000 rows, and for very large networks.
    """
    theta, rows = fit.best_theta, len(cohort)
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
            target = target_of(fit, cohort, lambda rows: times_basis(rows, basis), torch.ones_like(mean))
        inner = PrimalGaussian(mean, factor)
        generator = torch.Generator().manual_seed(seed)
        z = inner.draw(_CHECKS, generator)
        log_target, rate = target.log_density(z)
        log_weights = log_target - log_density_of(inner, z) + target.log_phi_weights(fit.phi, rate, generator)
    smoothed = smooth_weights(log_weights.numpy())
    return {"k_hat": min(smoothed.k_hat, WORST_K_HAT), "effective": smoothed.effective / _CHECKS}
