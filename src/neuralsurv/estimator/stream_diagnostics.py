"""What a user should know about a streamed fit before trusting it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from neuralsurv.estimator.diagnostics import Diagnostics
from neuralsurv.inference.stream.fit import StreamFit
from neuralsurv.posterior.concerns import Concern, concern_fields, few_events, near_ceiling


def diagnose_stream(results: list[StreamFit], event_weight: float) -> Diagnostics:
    """Return the diagnostics of all modes as one: averages, and everything that is wrong with any of them.

    Parameters
    ----------
    results : list of StreamFit
        The fit around each mode.
    event_weight : float
        Sum of the weights of the events.
    """
    found = [_diagnose(result) for result in results]
    first = found[0]
    # That there are few events is true of all modes alike.
    shared = few_events(event_weight)
    if len(found) == 1:
        return replace(first, **concern_fields([*shared, *first.concerns]))
    concerns = [
        replace(concern, text=f"mode {k}: {concern.text}")
        for k, each in enumerate(found, 1)
        for concern in each.concerns
    ]
    return replace(
        first,
        converged=all(each.converged for each in found),
        sweeps=sum(each.sweeps for each in found),
        latent_points=float(np.mean([each.latent_points for each in found])),
        latent_share=float(np.mean([each.latent_share for each in found])),
        lost_information=max(each.lost_information for each in found),
        scales={name: float(np.exp(np.mean([np.log(each.scales[name]) for each in found]))) for name in first.scales},
        modes=len(found),
        **concern_fields([*shared, *concerns]),
    )


def _diagnose(result: StreamFit) -> Diagnostics:
    settled = result.settled
    concerns = []
    if not settled.converged and settled.moved:
        text = (
            f"the natural-gradient steps still moved the mean by {settled.moved:.1f} posterior standard deviations in "
            "the last half pass; raise passes."
        )
        concerns.append(Concern("sweeps", text))
    elif not settled.converged:
        text = (
            f"the sweeps stopped after {len(settled.elbo)} before reaching their tolerance. Raise max_sweeps, or "
            "tolerance if that is close enough."
        )
        concerns.append(Concern("sweeps", text))
    concerns += near_ceiling(result.crowded_share)
    return Diagnostics(
        converged=settled.converged,
        interrupted=False,
        sweeps=len(settled.elbo),
        mode_converged=True,
        mode_objectives=(),
        latent_points=result.latent_points,
        latent_share=result.latent_share,
        collapsed=False,
        missing_exposure=0.0,
        coarse_sweeps=0,
        solver=result.solver.name,
        solver_reason=result.solver.reason,
        rank=result.solver.rank,
        lost_information=result.solver.lost_information,
        scales=result.scales,
        settings=1,
        sampling={},
        importance={},
        trust="",
        jitter=0.0,
        **concern_fields(concerns),
    )
