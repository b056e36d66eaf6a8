"""The Kaplan–Meier estimate."""

from __future__ import annotations

import numpy as np

from neuralsurv.data.outcome import Outcome

# The 95 % quantile of the standard normal: the ends of a 90 % interval.
_Z_90 = 1.6448536269514722


def kaplan_meier(outcome: Outcome, time: float) -> tuple[float, float, float]:
    """Return the Kaplan–Meier estimate at `time` with a 90 % interval (log-minus-log, Greenwood).

    Where the estimate is exactly 0 or 1 the interval is not defined and is returned as (0, 1).
    """
    survival, variance = 1.0, 0.0
    # A row of weight zero is not there.
    for moment in np.unique(outcome.time[outcome.event & (outcome.time <= time) & (outcome.weight > 0)]):
        at_risk = float(outcome.weight[(outcome.time >= moment) & (outcome.entry < moment)].sum())
        deaths = float(outcome.weight[(outcome.time == moment) & outcome.event].sum())
        survival *= 1 - deaths / at_risk
        variance += deaths / (at_risk * (at_risk - deaths)) if at_risk > deaths else 0.0
    if not 0 < survival < 1:
        return survival, 0.0, 1.0
    spread = _Z_90 * np.sqrt(variance) / abs(np.log(survival))
    return survival, float(survival ** np.exp(spread)), float(survival ** np.exp(-spread))
