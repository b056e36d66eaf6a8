r"""Exact draws for a fit: the Gibbs sampler on its linearised model, in the directions that the data inform.

The scales of the default model are sampled along with the weights where the fit averages over them, and fixed at the
best ones where it does not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from neuralsurv.data.cohort import Cohort
from neuralsurv.inference.exact.chains import GibbsResult
from neuralsurv.inference.exact.directions import SampledCoordinates, find_coordinates
from neuralsurv.inference.exact.linear_model import LinearModel
from neuralsurv.inference.exact.sampler import sample
from neuralsurv.inference.linearised_fit import LinearisedFit
from neuralsurv.model.prior import GroupedPrior, WeightPrior
from neuralsurv.posterior.concerns import Concern, concern_fields
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.samples import SampledPosterior, sampled_posterior


def linear_model(fit: LinearisedFit, cohort: Cohort) -> tuple[LinearModel, SampledCoordinates]:
    """Return the model of a fit in the coordinates that are sampled."""
    coordinates = find_coordinates(fit, cohort)
    prior, groups = WeightPrior.isotropic(coordinates.rank), coordinates.groups
    if fit.known_log_scales is not None:
        prior, groups = GroupedPrior(prior.precision, groups).at(fit.known_log_scales), ()
    model = LinearModel.from_network(
        cohort,
        network=fit.likelihood.network,
        theta_star=fit.theta_star,
        weight_prior=prior,
        phi_prior=fit.phi_prior,
        normaliser=fit.likelihood.normaliser,
        rho=fit.likelihood.rho,
        groups=groups,
        project=coordinates.project,
    )
    return model, coordinates


def sample_fit(fit: LinearisedFit, cohort: Cohort, *, seed: int, **options: Any) -> GibbsResult:
    """Sample the linearised model of a fit: draws of the weights of the network, shape (chains, draws, m).

    The options are those of :func:`neuralsurv.inference.exact.sampler.sample`.
    """
    model, coordinates = linear_model(fit, cohort)
    result = sample(model, seed=seed, **options)
    log_scales = result.log_scales.flatten(0, 1)
    if fit.known_log_scales is not None:
        log_scales = fit.known_log_scales.expand(len(log_scales), -1)
    generator = torch.Generator().manual_seed(int(np.random.default_rng((seed, 1)).integers(2**62)))
    weights = coordinates.weights(result.theta.flatten(0, 1), log_scales, generator)
    return replace(result, theta=weights.reshape(*result.phi.shape, -1))


def exact_posterior(fit: LinearisedFit, drawn: GibbsResult) -> SampledPosterior:
    """Return the posterior that the exact draws of a fit represent."""
    model, (theta, phi) = fit.likelihood, drawn.flat()
    return sampled_posterior(
        theta, phi, theta_star=fit.theta_star, network=model.network, normaliser=model.normaliser, rho=model.rho
    )


def diagnose_exact(fit: LinearisedFit, drawn: GibbsResult) -> Diagnostics:
    """Return the diagnostics of the draws."""
    chains = drawn.diagnostics
    found = fit.diagnose_draws(chains.latent_points, float(drawn.phi.mean()))
    return replace(
        found,
        converged=not chains.messages,
        interrupted=found.interrupted or chains.interrupted,
        sampling={
            "chains": float(drawn.phi.shape[0]),
            "draws": float(drawn.phi.shape[1]),
            "r_hat": chains.r_hat,
            "ess_bulk": chains.ess_bulk,
            "ess_tail": chains.ess_tail,
        },
        **concern_fields([*found.concerns, *(Concern("chains", text) for text in chains.messages)]),
    )
