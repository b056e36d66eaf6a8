r"""Unknown scales of the prior in the Gibbs sampler, drawn with theta integrated out.

Given latent points and marks, theta has the Gaussian likelihood :math:`e^{b^\top\theta - \theta^\top A\theta/2}`. With
its prior :math:`N(0, P_s^{-1})` integrated out, the scales s of the groups have the density

.. math:: p(s \mid A, b) \propto p(s)\,|P_s|^{1/2}\,|P_s + A|^{-1/2}\,
          \exp\big(\tfrac12 b^\top (P_s + A)^{-1} b\big),

in which Metropolis steps of one log scale after another mix well: a scale and the many weights it governs would block
each other if they were drawn in turn.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import NotPositiveDefiniteError
from neuralsurv.inference.exact.linear_model import LinearModel

# Steps of a log scale, in standard deviations of its hyper-prior; one of them is drawn each time, so that none has to
# be tuned to the problem.
_STEPS = (0.3, 1.0)
# Steps of every log scale in a sweep; they cost little beside the points.
_ROUNDS = 3


def log_density(model: LinearModel, log_scales: Tensor, information: Tensor, slope: Tensor) -> Tensor:
    """Return the log density of log scales (C, G) up to a constant, for A (C, m, m) and b (C, m); shape (C,)."""
    prior = model.grouped_prior
    precision = model.precision_at(log_scales)
    factor, failed = torch.linalg.cholesky_ex(information + torch.diag_embed(precision))
    if bool(failed.any()):
        raise NotPositiveDefiniteError(
            f"the precision of theta could not be factorised in {int((failed > 0).sum())} of {len(failed)} chains; "
            "look for extreme covariates or hyper-priors of the scales."
        )
    half = torch.linalg.solve_triangular(factor, slope[:, :, None], upper=False).squeeze(2)
    log_det = factor.diagonal(dim1=1, dim2=2).log().sum(1)
    hyper = -0.5 * ((log_scales - prior.medians) / prior.spreads).square().sum(1)
    score: Tensor = hyper + 0.5 * precision.log().sum(1) - log_det + 0.5 * half.square().sum(1)
    return score


def draw_scales(
    model: LinearModel, log_scales: Tensor | None, information: Tensor, slope: Tensor, rng: np.random.Generator
) -> Tensor | None:
    """Try a few steps of every log scale in turn; None where there are no unknown scales.

    Where the chains are is `log_scales`, shape (C, G); `information` and `slope` are A and b, shapes (C, m, m) and (C,
    m).
    """
    if log_scales is None:
        return None
    chains = len(log_scales)
    spreads = model.grouped_prior.spreads
    current = log_density(model, log_scales, information, slope)
    for group in _ROUNDS * list(range(log_scales.shape[1])):
        step = rng.choice(_STEPS, chains) * rng.standard_normal(chains)
        proposed = log_scales.clone()
        proposed[:, group] += spreads[group] * torch.from_numpy(step)
        following = log_density(model, proposed, information, slope)
        moved = torch.log(torch.from_numpy(1 - rng.random(chains))) < following - current
        log_scales = torch.where(moved[:, None], proposed, log_scales)
        current = torch.where(moved, following, current)
    return log_scales
