"""The result of the Gibbs sampler: draws of several chains, and how well they mixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from neuralsurv.errors import InputError

# The limits that the authors of the two diagnostics recommend (Vehtari et al. 2021).
HIGHEST_R_HAT = 1.01
LOWEST_ESS_A_CHAIN = 100
# The quantiles behind the effective sample size of the tails.
TAIL = (0.05, 0.95)


def require_array_stats() -> Any:
    """Return the diagnostics of arviz-stats that take arrays, or say how to get them."""
    try:
        from arviz_stats.base import array_stats
    except ImportError as error:
        raise InputError("the Gibbs sampler needs arviz-stats: pip install 'neuralsurv[gibbs]'.") from error
    return array_stats


@dataclass(frozen=True)
class GibbsDiagnostics:
    """How the chains mixed: the worst value over log phi, log scales, every weight, and g at every event.

    Attributes
    ----------
    r_hat : float
        Rank-normalised split R-hat; 1 where the chains agree.
    ess_bulk, ess_tail : float
        Effective number of draws of all chains together, for the centre and for the 5 % and 95 % quantiles.
    worst : str
        The quantity with the highest R-hat.
    latent_points : float
        Mean number of latent points in a sweep.
    slide_acceptance : float
        Share of slides that were accepted; NaN if there were none.
    interrupted : bool
        Whether the user stopped the chains early.
    messages : tuple of str
        Warnings; empty if all is well.
    """

    r_hat: float
    ess_bulk: float
    ess_tail: float
    worst: str
    latent_points: float
    slide_acceptance: float
    interrupted: bool
    messages: tuple[str, ...]


@dataclass(frozen=True)
class GibbsResult:
    """Draws from the posterior of the linearised model.

    :func:`neuralsurv.posterior.samples.sampled_posterior` turns them into curves.

    Attributes
    ----------
    theta : Tensor of shape (chains, draws, m)
        Weights.
    phi : Tensor of shape (chains, draws)
        Hazard scale, in scaled time.
    diagnostics : GibbsDiagnostics
        How the chains mixed.
    log_scales : Tensor of shape (chains, draws, G)
        Logarithms of the scales of the prior; G is 0 where they are known.
    """

    theta: Tensor
    phi: Tensor
    diagnostics: GibbsDiagnostics
    log_scales: Tensor

    def flat(self) -> tuple[Tensor, Tensor]:
        """Return theta (S, m) and phi (S,) of all chains, one chain after another."""
        return self.theta.flatten(0, 1), self.phi.flatten()


def diagnose_chains(
    quantities: Mapping[str, Tensor], *, latent_points: float, slide_acceptance: float, interrupted: bool
) -> GibbsDiagnostics:
    """Summarise chains of quantities of shape (chains, draws, k).

    A constant quantity, such as a fixed phi, has no R-hat and is left out.
    """
    chains, draws = next(iter(quantities.values())).shape[:2]
    names, columns = [], []
    for name, kind in quantities.items():
        values = kind.numpy()
        for column in range(values.shape[2]):
            one = values[:, :, column]
            if np.ptp(one) > 0:
                names.append(name if values.shape[2] == 1 else f"{name} {column}")
                columns.append(one)
    values, axes = np.stack(columns, axis=2), {"chain_axis": 0, "draw_axis": 1}
    array_stats = require_array_stats()
    r_hat = array_stats.rhat(values, **axes)
    bulk = array_stats.ess(values, method="bulk", **axes)
    tail = array_stats.ess(values, method="tail", prob=TAIL, **axes)
    worst = int(np.argmax(r_hat))
    messages = []
    if r_hat[worst] > HIGHEST_R_HAT:
        messages.append(
            f"the chains disagree: R-hat of {names[worst]} is {r_hat[worst]:.3f}, above {HIGHEST_R_HAT}; "
            "use more draws, a longer warmup or a larger thin."
        )
    fewest, wanted = min(bulk.min(), tail.min()), LOWEST_ESS_A_CHAIN * chains
    if fewest < wanted:
        messages.append(
            f"the draws hold only {fewest:.0f} effective ones where {wanted} are wanted ({LOWEST_ESS_A_CHAIN} a "
            "chain); use more draws or a larger thin."
        )
    if interrupted:
        messages.append(f"the chains were stopped early; {draws} draws a chain were kept.")
    return GibbsDiagnostics(
        r_hat=float(r_hat[worst]),
        ess_bulk=float(bulk.min()),
        ess_tail=float(tail.min()),
        worst=names[worst],
        latent_points=latent_points,
        slide_acceptance=slide_acceptance,
        interrupted=interrupted,
        messages=tuple(messages),
    )
