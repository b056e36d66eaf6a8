r"""A Newton step for the mean of q(theta), between two sweeps.

A sweep moves the mean to the top of a quadratic that lies below the ELBO everywhere, with the curvature
:math:`\kappa` of the Pólya–Gamma bound. Where :math:`\sigma(g)` is small the ELBO itself is much flatter than that
(by a factor of about :math:`e^{|g|}/2|g|`), the sweep goes only a small part of the way, and hundreds of sweeps
follow each other in nearly the same direction. With :math:`s = \sqrt{m^2 + v}`, :math:`r = \tanh(s/2)/2s` and
:math:`q = r'(s)/s`, the ELBO has in the mean m of g at a point the derivatives

.. math:: f' = \tfrac12 - rm, \quad -f'' = r + qm^2 \quad\text{(an event)}; \qquad
          \lambda' = -\lambda(\tfrac12 + rm), \quad
          -\lambda'' = \lambda\big(r + qm^2 - (\tfrac12 + rm)^2\big) \quad\text{(a node)},

so that :math:`-f''` and :math:`-\lambda''` never exceed :math:`\kappa`, and a step with them is never shorter than that
of a sweep. Steps are halved until the ELBO does not fall. The sweep after it starts from there, and ends at the same
fixed points as ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from neuralsurv.inference.evidence import elbo
from neuralsurv.inference.linearise import Linearised
from neuralsurv.inference.problem import Problem
from neuralsurv.model.augmentation import latent_intensity, polya_gamma_mean, polya_gamma_mean_slope
from neuralsurv.model.prior import Gamma
from neuralsurv.solvers.interface import Solver

# No point counts with less than this share of its κ, so that no step is much longer than fifty sweeps would go.
_LEAST_CURVATURE = 0.02
_MOST_HALVINGS = 8
# Where there are many more points than weights, so many points a weight tell the curvature well enough: the slope is
# that of all points, so the end is the same, and a sweep of the whole costs much more than what is lost in a step.
_POINTS_A_WEIGHT = 128


@dataclass(frozen=True)
class MeanStep:
    """The mean after a step.

    Attributes
    ----------
    theta : Tensor of shape (m,)
        Mean of q(theta).
    m : Tensor of shape (P,)
        Mean of g at the points.
    """

    theta: Tensor
    m: Tensor


def slope_and_curvature(problem: Problem, m: Tensor, v: Tensor, phi: Gamma) -> tuple[Tensor, Tensor]:
    """Return the derivative of the ELBO in m at each point and minus the second derivative, at fixed v and q(phi)."""
    events = problem.points.events
    s = torch.sqrt(m**2 + v)
    r = polya_gamma_mean(s)
    bend = r + polya_gamma_mean_slope(s) * m**2
    latent = latent_intensity(problem.baseline, m[events:], s[events:], phi.mean_log)
    log_slope = -0.5 - r[events:] * m[events:]
    slope = torch.cat([problem.event_weight * (0.5 - r[:events] * m[:events]), latent * log_slope])
    curvature = torch.cat([problem.event_weight * bend[:events], latent * (bend[events:] - log_slope**2)])
    return slope, curvature.clamp_min(_LEAST_CURVATURE * torch.cat([problem.event_weight, latent]) * r)


def some_points(curvature: Tensor, count: int) -> Tensor:
    """Return curvatures of about `count` points, raised to stand for all, and 0 at the others; all if they are few."""
    total = len(curvature)
    if total <= 2 * count:
        return curvature
    # The same points every time, without the regular distances that nodes of a row have.
    chosen = torch.randperm(total, generator=torch.Generator().manual_seed(0))[:count]
    some = torch.zeros_like(curvature)
    some[chosen] = curvature[chosen] * (total / count)
    return some


def step_of_mean(
    problem: Problem, linearised: Linearised, solver: Solver[Any], theta: Tensor, m: Tensor, v: Tensor, phi: Gamma
) -> MeanStep | None:
    """Return the mean after one Newton step from `theta`, or None where no step raises the ELBO.

    Parameters
    ----------
    problem, linearised, solver : Problem, Linearised, Solver
        The data, the linearised points, and the algebra.
    theta : Tensor of shape (m,)
        Mean of q(theta).
    m, v : Tensor of shape (P,)
        Mean and variance of g at the points.
    phi : Gamma
        q(phi); it is held, as is the covariance of q(theta).
    """
    precision = problem.weight_prior.precision

    def bound(mean: Tensor, place: Tensor) -> float:
        # The ELBO but for what the covariance of q(theta) adds, which stays.
        return elbo(problem, place, v, phi, float((precision * mean**2).sum()) / 2)

    slope, curvature = slope_and_curvature(problem, m, v, phi)
    curvature = some_points(curvature, _POINTS_A_WEIGHT * len(theta))
    direction = solver.solve(curvature, slope + curvature * (m - linearised.offset)).mean - theta
    change = linearised.rows.times(direction)
    before = bound(theta, m)
    for halvings in range(_MOST_HALVINGS):
        share = 0.5**halvings
        reached = MeanStep(theta + share * direction, m + share * change)
        if bound(reached.theta, reached.m) >= before:
            return reached
    return None
