"""The evidence lower bound of the linearised model, with q(omega) and q(Psi) at their optimum."""

from __future__ import annotations

import math

import torch
from scipy.special import digamma
from torch import Tensor

from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.augmentation import latent_intensity, log_sigmoid_bound
from neuralsurv.model.prior import Gamma


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
