"""The ELBO with every variational parameter free, written down afresh: nothing of `src` is used for the formulas.

The library only ever computes the bound with the Pólya–Gamma and the Poisson factor at their optimum. Here each has
its parameters: a tilt for each event, a mass and a tilt for each node.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.distributions import Gamma, MultivariateNormal, kl_divergence

from neuralsurv.inference.paper.problem import PaperProblem
from neuralsurv.model.linearise import Linearised


def omega_mean(tilt: Tensor) -> Tensor:
    return torch.tanh(tilt / 2) / (2 * tilt)


def omega_divergence(tilt: Tensor) -> Tensor:
    return torch.log(torch.cosh(tilt / 2)) - tilt**2 / 2 * omega_mean(tilt)


@dataclass(frozen=True)
class Factors:
    """Free parameters: q(omega) at events, q(Psi) at nodes, q(phi), q(theta)."""

    event_tilt: Tensor
    node_tilt: Tensor
    latent: Tensor
    shape: Tensor
    rate: Tensor
    mean: Tensor
    covariance: Tensor


def augmented_elbo(problem: PaperProblem, linearised: Linearised, q: Factors) -> Tensor:
    points, events = problem.points, problem.points.events
    jacobian = linearised.rows.dense()
    m = linearised.offset + jacobian @ q.mean
    second = m**2 + ((jacobian @ q.covariance) * jacobian).sum(1)
    z = problem.normaliser(points.time, problem.x[points.row])
    mean_log_phi = torch.digamma(q.shape) - torch.log(q.rate)
    known = (problem.rho - 1) * torch.log(points.time[:events]) - torch.log(z[:events])
    at_events = points.weight[:events] * (
        mean_log_phi
        + known
        + m[:events] / 2
        - second[:events] / 2 * omega_mean(q.event_tilt)
        - math.log(2)
        - omega_divergence(q.event_tilt)
    )
    c = points.weight[events:] / z[events:]
    at_nodes = q.latent * (
        -m[events:] / 2
        - second[events:] / 2 * omega_mean(q.node_tilt)
        - math.log(2)
        + torch.log(c)
        + mean_log_phi
        - torch.log(q.latent)
        - omega_divergence(q.node_tilt)
        + 1
    )
    prior = MultivariateNormal(
        torch.zeros_like(q.mean), covariance_matrix=torch.diag(1 / problem.weight_prior.precision)
    )
    phi_prior = Gamma(q.shape.new_tensor(problem.phi_prior.shape), q.shape.new_tensor(problem.phi_prior.rate))
    return (
        at_events.sum()
        + at_nodes.sum()
        - q.shape / q.rate * c.sum()
        - kl_divergence(MultivariateNormal(q.mean, covariance_matrix=q.covariance), prior)
        - kl_divergence(Gamma(q.shape, q.rate), phi_prior)
    )


def slopes(problem: PaperProblem, linearised: Linearised, q: Factors, *names: str) -> list[Tensor]:
    """Return the gradient of the bound with respect to the named parameters, by automatic differentiation."""
    leaves = {name: value.detach().clone().requires_grad_(name in names) for name, value in vars(q).items()}
    bound = augmented_elbo(problem, linearised, Factors(**leaves))
    return list(torch.autograd.grad(bound, [leaves[name] for name in names]))
