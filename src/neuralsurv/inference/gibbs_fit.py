r"""Exact draws for a fit: its linearised model, in coordinates that are few enough to sample.

The weights are whitened and, in a large network, reduced to the directions V that carry information,
:math:`\theta = T^{-1/2}\big(Vz + s\,(I - VV^\top)\varepsilon\big)`: z is sampled, everything across V keeps its prior,
and what that gives up is less than a thousandth of a nat. The default preset's scales s are sampled along with z where
the fit averages over them, and held at the best ones where it does not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.additive_fit import AdditiveFit, reduce_rows
from neuralsurv.inference.fit import Fit
from neuralsurv.inference.gibbs import sample
from neuralsurv.inference.gibbs_model import LinearModel
from neuralsurv.inference.gibbs_result import GibbsResult
from neuralsurv.inference.linearise import linearise_network
from neuralsurv.inference.threads import threads_for
from neuralsurv.model.additive import Additive
from neuralsurv.model.points import build_points
from neuralsurv.model.prior import Group, GroupedPrior
from neuralsurv.model.quadrature import GaussLegendre, ShiftedLog
from neuralsurv.model.rows import LayeredRows
from neuralsurv.solvers.grouped import GroupedSolver, grouped_solver

# A network of no more weights than this is sampled as it is.
_MOST_WEIGHTS = 200
# Information that the directions left out may hold, in nats.
_TOLERANCE = 1e-3
# Nodes of a row at which the directions are looked for.
_NODES = 32

Cohort = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Directions:
    """The coordinates z that are sampled, and what they mean.

    Attributes
    ----------
    prior : GroupedPrior
        The prior of the weights; T is its precision for scales of 1.
    solver : GroupedSolver or None
        What knows V; None where every weight is a coordinate.
    """

    prior: GroupedPrior
    solver: GroupedSolver | None

    @property
    def rank(self) -> int:
        """Number of coordinates r."""
        return len(self.prior.unit) if self.solver is None else self.solver.basis.shape[1]

    @property
    def groups(self) -> tuple[Group, ...]:
        """The groups of weights as groups of coordinates."""
        if self.solver is None:
            return self.prior.groups
        places = [self.solver.directions(group.start, group.stop) for group in self.prior.groups]
        return tuple(
            replace(group, start=place.start, stop=place.stop)
            for group, place in zip(self.prior.groups, places, strict=True)
        )

    def project(self, jacobian: Tensor) -> Tensor:
        """Return rows (P, m) of the network as rows (P, r) of the coordinates."""
        whitened = jacobian / self.prior.unit.sqrt()
        return whitened if self.solver is None else whitened @ self.solver.basis

    def weights(self, z: Tensor, log_scales: Tensor, generator: torch.Generator) -> Tensor:
        """Return weights (S, m) for coordinates (S, r) and log scales (S, G); across V they are draws of the prior."""
        root = self.prior.unit.sqrt()
        if self.solver is None:
            return z / root
        basis = self.solver.basis
        noise = torch.randn(len(z), len(root), generator=generator, dtype=z.dtype)
        across = torch.addmm(noise, noise @ basis, basis.T, alpha=-1)
        for group, log_scale in zip(self.prior.groups, log_scales.T, strict=True):
            across[:, group.start : group.stop] *= log_scale.exp()[:, None]
        return (z @ basis.T + across) / root


def _directions(fit: Fit | AdditiveFit, cohort: Cohort) -> Directions:
    """Return the coordinates: all weights, or in a large network the directions that carry information."""
    likelihood = fit.likelihood
    network = likelihood.network
    prior = fit.prior if isinstance(fit, AdditiveFit) else GroupedPrior(fit.problem.weight_prior.precision, ())
    if network.size <= _MOST_WEIGHTS:
        return Directions(prior, None)
    time, event, entry, weight, x = cohort
    rule = ShiftedLog(_NODES, network.basis.shift) if isinstance(network, Additive) else GaussLegendre(_NODES)
    points = build_points(time, event, entry, weight, rule, likelihood.rho)
    with threads_for(len(points) * network.size):
        point_x = x[points.row]
        linearised = linearise_network(network, fit.theta_star, points.time, point_x)
        rows, events = linearised.rows, points.events
        share = torch.sigmoid(linearised.offset + rows.times(fit.theta.mean))[events:]
        mass = points.weight[events:] / likelihood.normaliser(points.time, point_x)[events:]
        # Bounds of the information: of log σ(g) at an event, and of the point process at a node.
        importance = torch.cat([points.weight[:events] / 4, fit.phi.mean * mass * share])
        if isinstance(network, Additive):
            assert isinstance(rows, LayeredRows)
            solver = reduce_rows(rows, network, prior, importance, tolerance=_TOLERANCE, most=network.size)
        else:
            solver = grouped_solver([(rows, False)], prior.unit, importance, tolerance=_TOLERANCE, most=network.size)
    return Directions(prior, solver)


def linear_model(fit: Fit | AdditiveFit, cohort: Cohort) -> tuple[LinearModel, Directions]:
    """Return the model of a fit in the coordinates that are sampled.

    Parameters
    ----------
    fit : Fit or AdditiveFit
        What was fitted.
    cohort : tuple of Tensor
        Its time, event, entry, weight (N,) and x (N, d), in scaled time.
    """
    time, event, entry, weight, x = cohort
    likelihood = fit.likelihood
    network, normaliser = likelihood.network, likelihood.normaliser
    directions = _directions(fit, cohort)
    precision, groups = torch.ones(directions.rank, dtype=torch.float64), directions.groups
    if isinstance(fit, AdditiveFit) and fit.settings == 1:
        precision, groups = GroupedPrior(precision, groups).at(fit.top.log_scales).precision, ()

    def linear(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        linearised = linearise_network(network, fit.theta_star, at, x[row])
        return linearised.offset, directions.project(linearised.jacobian)

    model = LinearModel(
        time=time,
        event=event,
        entry=entry,
        weight=weight,
        linear=linear,
        normaliser=lambda at, row: normaliser(at, x[row]),
        precision=precision,
        phi_prior=fit.phi.mean if isinstance(fit, AdditiveFit) else fit.problem.phi_prior,
        rho=likelihood.rho,
        groups=groups,
    )
    return model, directions


def sample_fit(
    fit: Fit | AdditiveFit,
    cohort: Cohort,
    *,
    chains: int,
    draws: int,
    warmup: int,
    thin: int,
    seed: int,
    verbose: bool | str | int = False,
) -> GibbsResult:
    """Sample the posterior of a fit's linearised model.

    Parameters
    ----------
    fit : Fit or AdditiveFit
        What was fitted; it says where the network is linearised and, with the default preset, what phi is.
    cohort : tuple of Tensor
        Its time, event, entry, weight (N,) and x (N, d), in scaled time.
    chains, draws, warmup, thin, seed, verbose
        As in :func:`neuralsurv.inference.gibbs.sample`.

    Returns
    -------
    GibbsResult
        With draws of the weights of the network, shape (chains, draws, m).
    """
    model, directions = linear_model(fit, cohort)
    result = sample(model, chains=chains, draws=draws, warmup=warmup, thin=thin, seed=seed, verbose=verbose)
    log_scales = result.log_scales.flatten(0, 1)
    if isinstance(fit, AdditiveFit) and fit.settings == 1:
        log_scales = fit.top.log_scales.expand(len(log_scales), -1)
    generator = torch.Generator().manual_seed(int(np.random.default_rng((seed, 1)).integers(2**62)))
    weights = directions.weights(result.theta.flatten(0, 1), log_scales, generator)
    return replace(result, theta=weights.reshape(*result.phi.shape, -1))
