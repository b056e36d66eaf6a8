"""Random censoring of simulated cohorts, at a rate that censors a given share of the rows."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
from scipy.optimize import brentq

from neuralsurv.arguments import real_number
from neuralsurv.data.simulate.designs import Design
from neuralsurv.errors import InputError

# The rate is found from this many event times of a separate sample.
_PILOT_ROWS = 20_000
_PILOT_SEED = 20_250_101


def censoring_rate_for(design: Design, share: float) -> float:
    """Return the rate of exponential censoring times with which a share of the rows is censored, on average.

    The share, in [0, 1), includes the rows whose follow-up ends.

    Examples
    --------
    >>> from neuralsurv.data.simulate.censoring import censoring_rate_for
    >>> from neuralsurv.data.simulate.designs import LogNormalGroups
    >>> round(censoring_rate_for(LogNormalGroups(), 0.5), 3)
    0.025
    """
    words = "a share of the rows: 0 or more, and below 1"
    wanted = real_number("censoring", share, lambda number: 0 <= number < 1, words)
    if wanted == 0 and design.end == np.inf:
        return 0.0
    return _rate_from_pilot(design, wanted)


@lru_cache(maxsize=128)
def _rate_from_pilot(design: Design, share: float) -> float:
    times = _pilot_times(design)
    late = float(np.mean(times > design.end))
    if share < late:
        raise InputError(
            f"censoring={share:g} cannot be reached: {late:.1%} of the rows are free of the event when follow-up ends "
            f"at {design.end:g}; ask for more, or for a later end."
        )
    seen = times[times <= design.end]
    typical = 1 / float(np.median(seen))

    def excess(log_rate: float) -> float:
        # An event at t is censored with probability 1 − exp(−rate·t).
        return late + (1 - late) * float(-np.expm1(-np.exp(log_rate) * typical * seen).mean()) - share

    lowest, highest = -25.0, 25.0
    return typical * float(np.exp(brentq(excess, lowest, highest))) if excess(lowest) < 0 else 0.0


@lru_cache(maxsize=16)
def _pilot_times(design: Design) -> np.ndarray:
    rng = np.random.default_rng(_PILOT_SEED)
    return design.event_times(design.covariates(_PILOT_ROWS, rng), rng)


def censoring_times(rows: int, rate: float, rng: np.random.Generator) -> np.ndarray:
    """Draw exponential censoring times; infinite where the rate is 0."""
    return rng.exponential(1 / rate, rows) if rate > 0 else np.full(rows, np.inf)
