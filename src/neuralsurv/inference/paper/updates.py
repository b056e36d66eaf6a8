"""The coordinate updates of one sweep (algorithm 2 of the paper): q(omega), q(Psi), q(phi) and q(theta).

The update of q(phi) depends on q(Psi) and the other way round through one number, so the pair is solved exactly in
every sweep: it costs nothing and removes most of the slow zig-zag between phi and theta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from scipy.special import digamma, zeta
from torch import Tensor

from neuralsurv.errors import NotFiniteError
from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.augmentation import latent_intensity, log_sigmoid_bound, log_thinning, polya_gamma_mean
from neuralsurv.model.linearise import Linearised
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.interface import SolvedGaussian, Solver


def gamma_divergence(q: Gamma, prior: Gamma) -> float:
    """Return KL(q ‖ prior) between two Gamma distributions."""
    return (
        (q.shape - prior.shape) * float(digamma(q.shape))
        - math.lgamma(q.shape)
        + math.lgamma(prior.shape)
        + prior.shape * (math.log(q.rate) - math.log(prior.rate))
        + q.shape * (prior.rate - q.rate) / q.rate
    )


def elbo(problem: PaperProblem, m: Tensor, v: Tensor, phi: Gamma, weight_divergence: float) -> float:
    """Return the ELBO in nats, for means and variances of g at the points, q(phi), and the KL of q(theta)."""
    s = torch.sqrt(m**2 + v)
    events = problem.points.events
    at_events = problem.event_weight * log_sigmoid_bound(m[:events], s[:events])
    latent = latent_intensity(problem.baseline, m[events:], s[events:], phi.mean_log)
    return (
        problem.event_count * phi.mean_log
        + float(at_events.sum())
        + problem.event_constant
        + float(latent.sum())
        - phi.mean * float(problem.baseline.sum())
        - weight_divergence
        - gamma_divergence(phi, problem.phi_prior)
    )


@dataclass(frozen=True)
class CaviStart:
    """What a sweep needs: q(phi), the mean of q(theta), and the moments of g at the points."""

    phi: Gamma
    theta_mean: Tensor
    m: Tensor
    v: Tensor


@dataclass(frozen=True)
class CaviState(CaviStart):
    """The state after a sweep, with q(theta)."""

    theta: SolvedGaussian


def phi_shape(shape: float, thinned: float, rate: float) -> float:
    r"""Solve :math:`\alpha = A + (B/\beta)\,e^{\psi(\alpha)}` for the shape of q(phi).

    The function :math:`\alpha - A - (B/\beta)e^{\psi(\alpha)}` rises and is concave where B < β, so Newton's steps from
    A go up to its only root and never past it. A is the prior shape plus the weighted number of events, B = Σ c σ(s)
    exp(−(m+s)/2) the latent mass for φ = 1.
    """
    ratio, alpha = thinned / rate, shape
    for _ in range(100):
        power = ratio * math.exp(float(digamma(alpha)))
        # The derivative of the digamma function is Hurwitz's zeta function of 2.
        step = (shape + power - alpha) / (1 - power * float(zeta(2.0, alpha)))
        alpha += step
        if not abs(step) > 1e-14 * alpha:
            break
    if not math.isfinite(alpha):
        raise NotFiniteError(f"the shape of q(phi) became {alpha}; the baseline exposure is {rate:.3g}.")
    return alpha


def update_phi(problem: PaperProblem, m: Tensor, v: Tensor) -> Gamma:
    """Return q(phi), with q(Psi) at its optimum for it (eq. A14)."""
    events = problem.points.events
    s = torch.sqrt(m**2 + v)[events:]
    thinned = float((problem.baseline * torch.exp(log_thinning(m[events:], s))).sum())
    known = problem.phi_prior.shape + problem.event_count
    return Gamma(phi_shape(known, thinned, problem.phi_rate), problem.phi_rate)


def curvature_and_slope(problem: PaperProblem, m: Tensor, v: Tensor, phi: Gamma) -> tuple[Tensor, Tensor]:
    """Return κ and a of every point: what q(omega) and q(Psi) leave for q(theta) (appendix G.4)."""
    events = problem.points.events
    s = torch.sqrt(m**2 + v)
    omega = polya_gamma_mean(s)
    latent = latent_intensity(problem.baseline, m[events:], s[events:], phi.mean_log)
    curvature = torch.cat([problem.event_weight, latent]) * omega
    slope = torch.cat([problem.event_weight, -latent]) / 2
    return curvature, slope


def sweep(problem: PaperProblem, linearised: Linearised, solver: Solver[Any], state: CaviStart) -> CaviState:
    """Update q(omega), q(Psi), q(phi), then q(theta)."""
    phi = update_phi(problem, state.m, state.v)
    curvature, slope = curvature_and_slope(problem, state.m, state.v, phi)
    theta = solver.solve(curvature, slope - curvature * linearised.offset)
    mean, variance = solver.moments(theta)
    return CaviState(phi, theta.mean, linearised.offset + mean, variance, theta)


def elbo_of(problem: PaperProblem, state: CaviState) -> float:
    """Return the ELBO of a state, in nats."""
    return elbo(problem, state.m, state.v, state.phi, state.theta.divergence(problem.weight_prior.precision))
