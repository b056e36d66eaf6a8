"""The ELBO with a Gaussian q(theta) and phi held, written down afresh: nothing of `src` is used for the formulas.

Expectations have 80 Gauss–Hermite nodes, so that the error of the library's own, coarser rule can be seen.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from inference.problems import baseline_exposure, event_weight, simulated
from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.default.expectations import Ascent
from neuralsurv.model.additive import Additive
from neuralsurv.model.hazard import Constant
from neuralsurv.model.likelihood import Likelihood
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.network import MLP
from neuralsurv.model.points import build_points
from neuralsurv.model.quadrature import ShiftedLog
from neuralsurv.model.time_basis import place_basis
from neuralsurv.solvers.primal import PrimalSolver
from neuralsurv.solvers.rows import DenseRows

_POSITION, _MASS = (torch.from_numpy(a) for a in np.polynomial.hermite_e.hermegauss(80))


def expected(f, mean: Tensor, variance: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
    """Return E[f(g)] at every point."""
    g = mean[:, None] + variance.sqrt()[:, None] * _POSITION
    return f(g) @ _MASS / _MASS.sum()


def known_part(likelihood: Likelihood, phi: float) -> float:
    events = likelihood.points.events
    z = likelihood.normaliser(likelihood.points.time, likelihood.x[likelihood.points.row])[:events]
    return float((likelihood.points.weight[:events] * (math.log(phi) - torch.log(z))).sum())


def exact_elbo(
    likelihood: Likelihood,
    phi: float,
    offset: Tensor,
    jacobian: Tensor,
    precision: Tensor,
    mean: Tensor,
    factor: Tensor,
) -> Tensor:
    """Return the ELBO of q = N(mean, factor factorᵀ); rho must be 1."""
    points, events = likelihood.points, likelihood.points.events
    assert likelihood.rho == 1
    z = likelihood.normaliser(points.time, likelihood.x[points.row])
    m, v = offset + jacobian @ mean, (jacobian @ factor).square().sum(1)
    at_events = expected(torch.nn.functional.logsigmoid, m[:events], v[:events])
    at_nodes = expected(torch.sigmoid, m[events:], v[events:])
    prior = MultivariateNormal(torch.zeros_like(mean), precision_matrix=torch.diag(precision))
    return (
        (points.weight[:events] * at_events).sum()
        - phi * (points.weight[events:] / z[events:] * at_nodes).sum()
        + known_part(likelihood, phi)
        - kl_divergence(MultivariateNormal(mean, scale_tril=factor), prior)
    )


def log_likelihood(likelihood: Likelihood, phi: float, g: Tensor) -> Tensor:
    """Return the log-likelihood for g (S, P) at the points, shape (S,)."""
    points, events = likelihood.points, likelihood.points.events
    z = likelihood.normaliser(points.time, likelihood.x[points.row])
    at_events = torch.nn.functional.logsigmoid(g[:, :events]) @ points.weight[:events]
    exposure = torch.sigmoid(g[:, events:]) @ (points.weight[events:] / z[events:])
    return at_events - phi * exposure + known_part(likelihood, phi)


def additive_likelihood(
    rows: Cohort, *, headroom: float = 30.0, bumps: int = 1, hidden: tuple[int, ...] | None = None, nodes: int = 8
) -> tuple[Likelihood, float]:
    """Return a likelihood with the network of the default preset, and the crude rate of events for phi."""
    d = rows.x.shape[1]
    inner = None if hidden is None else MLP(d, hidden, "tanh")
    origin = torch.zeros(0).double() if inner is None else inner.initial(torch.Generator().manual_seed(5))
    basis = place_basis(rows.time[rows.event], rows.weight[rows.event], bumps)
    likelihood = Likelihood(
        points=build_points(rows, ShiftedLog(nodes, basis.shift), 1.0),
        x=rows.x,
        network=Additive(d, basis, -math.log(headroom - 1), inner, origin),
        normaliser=Constant(1 / headroom),
        rho=1.0,
    )
    return likelihood, event_weight(rows) / baseline_exposure(rows, 1.0)


def dense_ascent(
    likelihood: Likelihood, phi: float, precision: Tensor | None = None, *, fisher: bool = False
) -> tuple[Ascent, Tensor]:
    """Return the ascent with the plain solver, and its rows J."""
    size = likelihood.network.size
    zeros = torch.zeros(size, dtype=torch.float64)
    linearised = linearise_network(likelihood.network, zeros, likelihood.points.time, likelihood.point_x)
    precision = torch.linspace(8, 48, size, dtype=torch.float64) if precision is None else precision
    jacobian = linearised.rows.dense()
    solver = PrimalSolver(DenseRows(jacobian), precision)
    return Ascent(likelihood, phi, linearised.offset, solver, precision, fisher), jacobian


def usual_rows(n: int = 25, seed: int = 4) -> Cohort:
    return simulated(n, entry=True, weight=True, seed=seed)
