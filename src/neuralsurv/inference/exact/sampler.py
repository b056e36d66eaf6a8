"""The exact sampler of the linearised model, the yardstick of the variational posterior: chains of Gibbs sweeps."""

from __future__ import annotations

import math

import numpy as np
import torch

from neuralsurv.arguments import whole_number
from neuralsurv.errors import InputError
from neuralsurv.inference.exact.chains import GibbsResult, diagnose_chains, require_array_stats
from neuralsurv.inference.exact.linear_model import LinearModel
from neuralsurv.inference.exact.slide import Slider
from neuralsurv.inference.exact.sweep import Sweeper, require_polyagamma
from neuralsurv.inference.exact.thinning import GibbsState, Thinning
from neuralsurv.inference.threads import threads_for
from neuralsurv.progress import bar

# Chains start apart from each other by this much in log phi.
_START_SPREAD = 0.5
# R-hat and the effective sample size need this many draws of a chain.
FEWEST_DRAWS = 4
_LEAST = {"chains": 2, "draws": FEWEST_DRAWS, "warmup": 0, "thin": 1, "slides": 0}

__all__ = ["GibbsResult", "LinearModel", "sample"]


def sample(
    model: LinearModel,
    *,
    chains: int = 4,
    draws: int = 1000,
    warmup: int = 500,
    thin: int = 1,
    slides: int = 3,
    ceiling_margin: float | None = None,
    seed: int = 0,
    verbose: bool | str | int = False,
) -> GibbsResult:
    """Sample the posterior of the linearised model exactly.

    Parameters
    ----------
    model : LinearModel
        The model with its data.
    chains : int
        Number of chains, at least 2; they start from draws of the prior and run side by side.
    draws, warmup : int
        Draws kept of each chain (at least 4), and sweeps discarded before the first.
    thin : int
        Sweeps per draw that is kept.
    slides : int
        Slides before each sweep; see :mod:`neuralsurv.inference.exact.slide`.
    ceiling_margin : float, optional
        Factor, at least 1, by which the ceiling of 1/Z exceeds its largest value on a grid of times; if not given, 1.5,
        or 1 where Z is constant.
    seed : int
        Seed; the same seed gives the same draws.
    verbose : bool or "auto"
        Whether to show progress.

    Returns
    -------
    GibbsResult
        With the draws of all chains and how well they mixed. Ctrl-C after the first few draws gives those, and
        ``diagnostics.interrupted`` is set.

    Examples
    --------
    >>> import torch
    >>> from neuralsurv.data.cohort import Cohort
    >>> from neuralsurv.inference.exact.sampler import LinearModel, sample
    >>> from neuralsurv.model.hazard import Constant
    >>> from neuralsurv.model.network import MLP
    >>> from neuralsurv.model.prior import Gamma, WeightPrior
    >>> time = torch.linspace(0.1, 1, 10)
    >>> cohort = Cohort.of(time, time < 0.8, 0 * time, torch.ones(10), time[:, None])
    >>> network = MLP(covariates=1, hidden=())
    >>> model = LinearModel.from_network(
    ...     cohort,
    ...     network=network,
    ...     theta_star=torch.zeros(3, dtype=torch.float64),
    ...     weight_prior=WeightPrior.isotropic(3),
    ...     phi_prior=Gamma(1.0, 1.0),
    ...     normaliser=Constant(0.5),
    ...     rho=1.0,
    ... )
    >>> result = sample(model, chains=2, draws=50, warmup=50)
    >>> result.theta.shape, result.phi.shape
    (torch.Size([2, 50, 3]), torch.Size([2, 50]))
    """
    check_chains(chains=chains, draws=draws, warmup=warmup, thin=thin, slides=slides)
    if ceiling_margin is not None and not 1 <= ceiling_margin < math.inf:
        raise InputError(f"ceiling_margin={ceiling_margin!r} must be a number of at least 1.")
    thinning = Thinning(model, ceiling_margin)
    sweeper, slider = Sweeper(thinning), Slider(thinning)
    known = model.phi_prior.inferred is None
    rng = np.random.default_rng(seed)
    state = start_chains(thinning, chains, rng)
    size = len(model.precision)
    theta = torch.empty(draws, chains, size, dtype=torch.float64)
    phi = torch.empty(draws, chains, dtype=torch.float64)
    log_scales = torch.empty(draws, chains, len(model.groups), dtype=torch.float64)
    latent_total = accepted = 0.0
    number = kept = 0
    interrupted = False
    total = warmup + draws * thin
    with threads_for(chains * size * max(size, len(model.cohort))), bar("Gibbs sampling", total, verbose) as advance:
        direction = slider.direction(torch.zeros(size, dtype=torch.float64), float(state.phi.mean()))
        try:
            while number < total:
                # Nothing slides where phi is known.
                for _ in range(0 if known else slides):
                    state, moved = slider.slide(state, direction, rng)
                    accepted += float(moved.double().mean()) if number >= warmup else 0.0
                state, latent = sweeper.sweep(state, rng)
                number += 1
                if number in _pilots(warmup):
                    # Only during warm-up: a direction that kept following the chains would change their distribution.
                    direction = slider.direction(state.theta.mean(0), float(state.phi.mean()))
                if number > warmup:
                    latent_total += latent
                    if (number - warmup) % thin == 0:
                        theta[kept], phi[kept] = state.theta, state.phi
                        if state.log_scales is not None:
                            log_scales[kept] = state.log_scales
                        kept += 1
                if number % 50 == 0 or number == total:
                    advance(number, f"sweep {number} of {total}, phi {float(state.phi.mean()):.3g}")
        except KeyboardInterrupt:
            if kept < FEWEST_DRAWS:
                raise
            interrupted = True
    theta, log_scales = (kind[:kept].transpose(0, 1).contiguous() for kind in (theta, log_scales))
    phi = phi[:kept].T.contiguous()
    sweeps = number - warmup
    diagnostics = diagnose_chains(
        {
            "theta": theta,
            "g at event": thinning.g_events(theta.flatten(0, 1)).reshape(chains, kept, -1),
            "log phi": torch.log(phi)[:, :, None],
            "log scale": log_scales,
        },
        latent_points=latent_total / sweeps,
        slide_acceptance=math.nan if known or slides == 0 else accepted / (sweeps * slides),
        interrupted=interrupted,
    )
    return GibbsResult(theta, phi, diagnostics, log_scales)


def check_chains(**lengths: object) -> None:
    """Refuse chains that cannot be run: lengths that are too short, or packages that are not installed.

    Call it first where there is work to do before the chains run.
    """
    for name, value in lengths.items():
        whole_number(name, value, _LEAST[name])
    require_polyagamma()
    require_array_stats()


def _pilots(warmup: int) -> tuple[int, ...]:
    """Return the sweeps of the warm-up after which the direction of the slides is set again."""
    return warmup // 4, warmup // 2, warmup


def start_chains(thinning: Thinning, chains: int, rng: np.random.Generator) -> GibbsState:
    """Return initial states: scales and theta drawn from their prior, phi where about half the ceiling is reached."""
    model = thinning.model
    noise = torch.from_numpy(rng.standard_normal((chains, len(model.precision))))
    log_scales = None
    if model.groups:
        away = torch.from_numpy(rng.standard_normal((chains, len(model.groups))))
        log_scales = model.grouped_prior.medians + model.grouped_prior.spreads * away
    theta = noise / model.precision_at(log_scales).sqrt()
    prior = model.phi_prior.inferred
    if prior is None:
        return GibbsState(theta, torch.full((chains,), model.phi_prior.mean, dtype=torch.float64), log_scales)
    level = (prior.shape + thinning.event_count) / (prior.rate + float(thinning.mass.sum()) / 2)
    phi = level * torch.exp(torch.from_numpy(_START_SPREAD * rng.standard_normal(chains)))
    return GibbsState(theta, phi, log_scales)
