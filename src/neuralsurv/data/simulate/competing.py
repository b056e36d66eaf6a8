"""Simulated cohorts with two causes of events, whose true cumulative incidences are known."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.arguments import whole_number
from neuralsurv.errors import InputError

CAUSES = ("relapse", "death")
CENSORED = "censored"
# Weibull hazards: relapses come early, deaths late.
_SHAPE = {"relapse": 0.8, "death": 1.6}
_SCALE = {"relapse": 5.0, "death": 5.0}
# Effects on the logarithm of the hazard of each cause: shared, opposite, and of one cause alone.
_EFFECTS = {
    "relapse": {"stage": 0.5, "treatment": -0.8, "marker": 0.7, "age": 0.0},
    "death": {"stage": 0.5, "treatment": 0.5, "marker": 0.0, "age": 0.8},
}
_CENSORING_RATE = 0.08
_END = 6.0
# Steps of the integral of a true cumulative incidence.
_STEPS = 2000


@dataclass(frozen=True)
class CompetingCohort:
    """A simulated cohort with two causes of events.

    Attributes
    ----------
    x : DataFrame of shape (N, d)
        Covariates.
    time : ndarray of shape (N,)
        Observed time.
    event : ndarray of shape (N,)
        ``"relapse"``, ``"death"`` or ``"censored"``.
    """

    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray

    def true_incidence(self, times: np.ndarray | list[float], cause: str, x: pd.DataFrame | None = None) -> np.ndarray:
        """Return the true cumulative incidence of a cause.

        Parameters
        ----------
        times : array-like of shape (T,)
            Times from 0.
        cause : {"relapse", "death"}
            The cause.
        x : DataFrame of shape (n, d), optional
            Covariates of other people; the cohort itself if left out.

        Returns
        -------
        ndarray of shape (n, T)
        """
        if cause not in CAUSES:
            raise InputError(f"cause={cause!r} is not in the cohort; use one of {', '.join(CAUSES)}.")
        at = np.asarray(times, dtype=np.float64)
        rates = {name: _rate(self.x if x is None else x, name) for name in CAUSES}
        found = np.zeros((len(rates[cause]), len(at)))
        for k, time in enumerate(at):
            # Even in the cause's own cumulative hazard at baseline, where its hazard is constant.
            level = np.linspace(0, (time / _SCALE[cause]) ** _SHAPE[cause], _STEPS + 1)
            u = _SCALE[cause] * level ** (1 / _SHAPE[cause])
            total = sum(rates[name][:, None] * (u / _SCALE[name]) ** _SHAPE[name] for name in CAUSES)
            found[:, k] = rates[cause] * np.trapezoid(np.exp(-total), level, axis=1)
        return found


def competing_cohort(n: int, *, seed: int = 0) -> CompetingCohort:
    r"""Simulate a cohort in which relapse and death without relapse compete.

    The hazard of each cause is a Weibull hazard times :math:`e^{\eta}`. ``stage`` raises both hazards alike,
    ``treatment`` lowers that of relapse and raises that of death, ``marker`` matters for relapse alone and ``age`` for
    death alone; ``noise`` for neither. Censoring is exponential, and follow-up ends at time 6.

    Parameters
    ----------
    n : int
        Number of rows.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> from neuralsurv.data.simulate.competing import competing_cohort
    >>> cohort = competing_cohort(200, seed=1)
    >>> cohort.true_incidence([1, 2], "relapse").shape
    (200, 2)
    """
    rows = whole_number("n", n)
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(
        {
            "stage": rng.standard_normal(rows),
            "treatment": rng.integers(0, 2, rows).astype(float),
            "marker": rng.standard_normal(rows),
            "age": rng.standard_normal(rows),
            "noise": rng.standard_normal(rows),
        }
    )
    drawn = {
        name: _SCALE[name] * (rng.exponential(size=rows) / _rate(x, name)) ** (1 / _SHAPE[name]) for name in CAUSES
    }
    ends = {**drawn, CENSORED: np.minimum(rng.exponential(1 / _CENSORING_RATE, rows), _END)}
    every = np.stack(list(ends.values()))
    return CompetingCohort(x, every.min(0), np.array(list(ends))[every.argmin(0)])


def _rate(x: pd.DataFrame, cause: str) -> np.ndarray:
    """Return the factor of the hazard of each person."""
    effects = _EFFECTS[cause]
    return np.asarray(np.exp(x[list(effects)].to_numpy() @ np.array(list(effects.values()))))
