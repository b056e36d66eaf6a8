r"""One sweep of the exact sampler of the linearised model: its conditionals, and why they are right.

The model is :math:`g = h(t, x) + J(t, x)\theta`, :math:`\theta\sim N(0, T^{-1})`,
:math:`\phi\sim\mathrm{Gamma}(\alpha_0, \beta_0)` (or known), and for row i with entry e, time y, weight w

.. math:: L_i = \Big[\{\phi\,b(y)\,\sigma(g(y))\}^{\delta}\exp\Big(-\phi\int_e^y b(t)\,\sigma(g(t))\,\mathrm{d}t\Big)
          \Big]^{w}, \qquad b(t) = t^{\rho-1} / Z(t, x).

**Augmentation.** A Poisson process of rate :math:`w\phi b` has no point that is marked with probability
:math:`\sigma(g)` with probability :math:`\exp(-w\phi\int b\sigma(g))`. So the exposure is the marginal of latent points
:math:`\Psi` with density :math:`\prod_{\Psi} w\phi b\,\sigma(-g)\;e^{-w\phi\int b}`, and no integral of g is ever
taken: time is continuous here, there is no quadrature. Pólya–Gamma marks, PG(w, ·) at an event and PG(1, ·) at a latent
point, make what is left Gaussian in :math:`\theta`.

**One sweep** draws, each exactly from its full conditional,

1. :math:`\Psi` by thinning a Poisson process of rate :math:`w\phi c_i t^{\rho-1}`, where the *ceiling*
   :math:`c_i \ge 1/Z`: a candidate becomes latent with probability :math:`\sigma(-g)/(Z c_i)` and *void* with
   probability :math:`1 - 1/(Z c_i)`. Void points stand in for :math:`\int b` where Z varies, so that this integral is
   not needed either: latent and void points together have total baseline mass :math:`C = \sum w c_i (y^\rho -
   e^\rho)/\rho`, known in closed form;
2. :math:`\omega`, the Pólya–Gamma marks;
3. :math:`\theta \sim N(A^{-1}r, A^{-1})` with :math:`A = T + J^\top\mathrm{diag}(\omega)J` and
   :math:`r = J^\top(a - \omega\circ h)`, a = w/2 at events and −1/2 at latent points;
4. :math:`\phi \sim \mathrm{Gamma}(\alpha_0 + \sum w\delta + |\Psi| + |\text{void}|,\ \beta_0 + C)`.

Between sweeps, :mod:`neuralsurv.inference.exact.slide` moves phi and theta together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from neuralsurv.errors import InputError, NotPositiveDefiniteError
from neuralsurv.inference.exact.linear_model import LinearModel
from neuralsurv.inference.exact.thinning import GibbsState, LinearPoints, Thinning
from neuralsurv.solvers.primal import cholesky

_TINY = float(np.finfo(np.float64).tiny)
# Steps of a log scale, in standard deviations of its hyper-prior; one of them is drawn each time, so that none has to
# be tuned to the problem.
_STEPS = (0.3, 1.0)
# Steps of every log scale in a sweep; they cost little beside the points.
_ROUNDS = 3


def require_polyagamma() -> Any:
    """Return the function that draws Pólya–Gamma variables, or say how to get it."""
    try:
        from polyagamma import random_polyagamma
    except ImportError as error:
        raise InputError("the Gibbs sampler needs polyagamma: pip install 'neuralsurv[gibbs]'.") from error
    return random_polyagamma


def draw_marks(weight: Tensor, g: Tensor, rng: np.random.Generator) -> Tensor:
    """Draw PG(weight, g) exactly: sums of PG(1, g) for whole weights, the alternating-series sampler for others.

    The weights are at least 1; both have shape (P,).
    """
    polya_gamma = require_polyagamma()
    shape, tilt = weight.numpy(), g.numpy()
    whole = shape == np.round(shape)
    if whole.all():
        return torch.from_numpy(polya_gamma(shape, tilt, size=len(tilt), method="devroye", random_state=rng))
    out = np.empty(len(tilt))
    out[~whole] = polya_gamma(shape[~whole], tilt[~whole], method="alternate", random_state=rng)
    if whole.any():
        out[whole] = polya_gamma(shape[whole], tilt[whole], method="devroye", random_state=rng)
    return torch.from_numpy(out)


@dataclass(frozen=True)
class Latent:
    """Latent points, and how many void points of each chain (C,) came with them."""

    points: LinearPoints
    void: Tensor


@dataclass(frozen=True)
class Sweeper:
    """The conditionals of one sweep, for C chains at once."""

    thinning: Thinning

    def draw_latent(self, state: GibbsState, rng: np.random.Generator) -> Latent:
        """Draw latent and void points by thinning (step 1)."""
        points = self.thinning.candidates(state.phi, rng)
        share = self.thinning.share_of_ceiling(points)
        level = torch.from_numpy(rng.random(len(share)))
        # The unit interval is cut into latent, then the share σ(g)/(Zc) that is dropped, then void.
        kept = level < share * torch.sigmoid(-points.g(state.theta))
        void = torch.bincount(points.chain[level >= share], minlength=len(state.phi))
        return Latent(points.take(kept), void)

    def draw_weights(self, state: GibbsState, latent: Latent, rng: np.random.Generator) -> GibbsState:
        """Draw the marks at the current g, then the scales and theta given them (steps 2 and 3)."""
        offset, jacobian = self.thinning.at_events
        points, weight = latent.points, self.thinning.event_weight
        at_latent = draw_marks(torch.ones_like(points.time), points.g(state.theta), rng)
        g = self.thinning.g_events(state.theta)
        at_events = draw_marks(weight.repeat(len(g)), g.reshape(-1), rng).reshape(g.shape)
        information = jacobian.T @ (at_events[:, :, None] * jacobian)
        slope = (weight / 2 - at_events * offset) @ jacobian
        ends = torch.bincount(points.chain, minlength=len(g)).cumsum(0).tolist()
        for chain, (first, last) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            rows, omega = points.jacobian[first:last], at_latent[first:last]
            information[chain].addmm_(rows.T, omega[:, None] * rows)
            slope[chain].addmv_(rows.T, -0.5 - omega * points.offset[first:last])
        log_scales = draw_scales(self.thinning.model, state.log_scales, information, slope, rng)
        information.diagonal(dim1=1, dim2=2).add_(self.thinning.model.precision_at(log_scales))
        factor = torch.stack([cholesky(one) for one in information])
        noise = torch.from_numpy(rng.standard_normal(slope.shape))
        half = torch.linalg.solve_triangular(factor, slope[:, :, None], upper=False)
        theta: Tensor = torch.linalg.solve_triangular(factor.mT, half + noise[:, :, None], upper=True).squeeze(2)
        return GibbsState(theta, state.phi, log_scales)

    def draw_phi(self, state: GibbsState, latent: Latent, rng: np.random.Generator) -> Tensor:
        """Draw phi given the number of points (step 4)."""
        prior = self.thinning.model.phi_prior.inferred
        if prior is None:
            return state.phi
        count = torch.bincount(latent.points.chain, minlength=len(state.phi)) + latent.void
        shape = prior.shape + self.thinning.event_count + count.numpy()
        # Without events and with a tiny prior shape a draw can round to 0, where its logarithm would end the chain.
        return torch.from_numpy(np.maximum(rng.gamma(shape) / (prior.rate + float(self.thinning.mass.sum())), _TINY))

    def sweep(self, state: GibbsState, rng: np.random.Generator) -> tuple[GibbsState, float]:
        """Draw everything once; return the states and the mean number of latent points."""
        latent = self.draw_latent(state, rng)
        new = replace(self.draw_weights(state, latent, rng), phi=self.draw_phi(state, latent, rng))
        return new, len(latent.points.time) / len(state.phi)


def log_density(model: LinearModel, log_scales: Tensor, information: Tensor, slope: Tensor) -> Tensor:
    r"""Return the log density of log scales (C, G) up to a constant, for A (C, m, m) and b (C, m); shape (C,).

    Given latent points and marks, theta has the Gaussian likelihood :math:`e^{b^\top\theta - \theta^\top A\theta/2}`.
    With its prior :math:`N(0, P_s^{-1})` integrated out, the scales s of the groups have the density

    .. math:: p(s \mid A, b) \propto p(s)\,|P_s|^{1/2}\,|P_s + A|^{-1/2}\,
              \exp\big(\tfrac12 b^\top (P_s + A)^{-1} b\big).
    """
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

    Such Metropolis steps mix well: a scale and the many weights it governs would block each other if they were drawn in
    turn. `information` and `slope` are A and b, shapes (C, m, m) and (C, m).
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
