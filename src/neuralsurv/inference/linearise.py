r"""Where the network is linearised, and the linearised points: :math:`g_p \approx h_p + J_p\theta` (eq. 13)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from neuralsurv.inference.problem import Problem
from neuralsurv.model.network import Network


@dataclass(frozen=True)
class Linearised:
    """The network replaced by its first-order expansion at `theta_star`.

    Attributes
    ----------
    offset : Tensor of shape (P,)
        h, the value at theta = 0 of the linear function.
    jacobian : Tensor of shape (P, m)
        J.
    """

    offset: Tensor
    jacobian: Tensor


def linearise_network(network: Network, theta_star: Tensor, time: Tensor, x: Tensor) -> Linearised:
    """Linearise `network` at `theta_star` for the points (time, x)."""
    jacobian = network.jacobian(theta_star, time, x)
    return Linearised(network.value(theta_star, time, x) - jacobian @ theta_star, jacobian)


def linearise(problem: Problem, theta_star: Tensor) -> Linearised:
    """Linearise at all points of a problem."""
    return linearise_network(problem.network, theta_star, problem.points.time, problem.point_x)
