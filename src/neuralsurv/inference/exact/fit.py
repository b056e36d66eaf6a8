r"""Exact draws for a fit: the Gibbs sampler on its linearised model, in the directions that the data speak of.

The default preset's scales are sampled along with the weights where the fit averages over them, and held at the best
ones where it does not.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from neuralsurv.inference.default.fit import AdditiveFit
from neuralsurv.inference.exact.chains import GibbsResult
from neuralsurv.inference.exact.directions import Cohort, Directions, find_directions
from neuralsurv.inference.exact.linear_model import LinearModel
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.paper.fit import Fit
from neuralsurv.model.linearise import linearise_network
from neuralsurv.model.prior import GroupedPrior


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
    directions = find_directions(fit, cohort)
    precision, groups = torch.ones(directions.rank, dtype=torch.float64), directions.groups
    if isinstance(fit, AdditiveFit) and fit.settings == 1:
        precision, groups = GroupedPrior(precision, groups).at(fit.top.log_scales).precision, ()

    def linear(at: Tensor, row: Tensor) -> tuple[Tensor, Tensor]:
        linearised = linearise_network(network, fit.theta_star, at, x[row])
        return linearised.offset, directions.project(linearised.rows)

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
        As in :func:`neuralsurv.inference.exact.sampler.sample`.

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
