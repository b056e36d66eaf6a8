"""The result of a streamed fit: a posterior around one mode or several, and its diagnostics."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

import numpy as np

from neuralsurv.inference.stream.fit import StreamFit
from neuralsurv.posterior.concerns import Concern, concern_fields, few_events, near_ceiling
from neuralsurv.posterior.diagnostics import Diagnostics
from neuralsurv.posterior.gaussian import Posterior
from neuralsurv.posterior.mixture import MixedPosterior


@dataclass(frozen=True)
class StreamedModes:
    """The fits around all modes."""

    fits: tuple[StreamFit, ...]  # the fit around each mode
    event_weight: float  # sum of the weights of the events

    @property
    def posterior(self) -> Posterior:
        """The posterior, or the mixture of all with equal weights."""
        first, *others = [fit.posterior for fit in self.fits]
        return MixedPosterior.of((first, *others)) if others else first

    @property
    def trace(self) -> np.ndarray:
        """The ELBO as the fits went on, on average over the modes, which is a bound for the mixture as well."""
        longest = max(len(fit.result.elbo) for fit in self.fits)
        # A fit that ended before the others stays at its last value.
        traces = [np.pad(fit.result.elbo, (0, longest - len(fit.result.elbo)), mode="edge") for fit in self.fits]
        return np.asarray(np.mean(traces, axis=0))

    def diagnose(self) -> Diagnostics:
        """Return the diagnostics of all modes as one: averages, and the concerns about any of them."""
        found = [_diagnose(fit) for fit in self.fits]
        first = found[0]
        # Few events concern all modes alike.
        shared = few_events(self.event_weight)
        if len(found) == 1:
            return replace(first, **concern_fields([*shared, *first.concerns]))
        concerns = [
            replace(concern, text=f"mode {k}: {concern.text}")
            for k, each in enumerate(found, 1)
            for concern in each.concerns
        ]
        names = first.scales
        return replace(
            first,
            converged=all(each.converged for each in found),
            sweeps=sum(each.sweeps for each in found),
            latent_points=float(np.mean([each.latent_points for each in found])),
            latent_share=float(np.mean([each.latent_share for each in found])),
            lost_information=max(each.lost_information for each in found),
            scales={name: float(np.exp(np.mean([np.log(each.scales[name]) for each in found]))) for name in names},
            modes=len(found),
            **concern_fields([*shared, *concerns]),
        )


def _diagnose(fit: StreamFit) -> Diagnostics:
    return Diagnostics(
        converged=fit.result.converged,
        sweeps=len(fit.result.elbo),
        latent_points=fit.latent_points,
        latent_share=fit.latent_share,
        scales=fit.scales,
        **asdict(fit.solver),
        **concern_fields([*_about_convergence(fit), *near_ceiling(fit.crowded_share)]),
    )


def _about_convergence(fit: StreamFit) -> list[Concern]:
    result = fit.result
    if result.converged:
        return []
    if result.moved:
        text = (
            f"the natural-gradient steps still moved the mean by {result.moved:.1f} posterior standard deviations in "
            "the last half pass; raise passes."
        )
    else:
        text = (
            f"the sweeps stopped after {len(result.elbo)} before reaching their tolerance. Raise max_sweeps, or "
            "tolerance if that is close enough."
        )
    return [Concern("sweeps", text)]
