r"""Where the network is linearised, and the linearised points: :math:`g_p \approx h_p + J_p\theta` (eq. 13)."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.network import Network
from neuralsurv.solvers.rows import Rows


@dataclass(frozen=True)
class Linearised:
    """The network replaced by its first-order expansion at `theta_star`.

    Attributes
    ----------
    offset : Tensor of shape (P,)
        h, the value at theta = 0 of the linear function.
    rows : Rows of shape (P, m)
        J.
    """

    offset: Tensor
    rows: Rows


def linearise_network(network: Network, theta_star: Tensor, time: Tensor, x: Tensor) -> Linearised:
    """Linearise `network` at `theta_star` for the points (time, x)."""
    value, rows = network.value_and_rows(theta_star, time, x)
    return Linearised(value - rows.times(theta_star), rows)


def linearise(likelihood: Likelihood, theta_star: Tensor) -> Linearised:
    """Linearise at all points of a likelihood."""
    return linearise_network(likelihood.network, theta_star, likelihood.points.time, likelihood.point_x)
