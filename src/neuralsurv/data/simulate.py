"""Cohorts with known truth."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.stats import norm

from neuralsurv.errors import InputError

_LOCATION = (3.0, 3.5)
_SCALE = (0.8, 1.0)


@dataclass(frozen=True)
class Cohort:
    """A simulated cohort.

    Attributes
    ----------
    x : DataFrame of shape (N, d)
        Covariates.
    time, event : ndarray of shape (N,)
        Observed time and event flag.
    """

    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray

    @property
    def y(self) -> tuple[np.ndarray, np.ndarray]:
        """The pair (time, event) that `fit` takes."""
        return self.time, self.event


def lognormal_cohort(n: int, *, noise: int = 3, censoring_rate: float = 0.025, seed: int = 0) -> Cohort:
    """Simulate the paper's synthetic experiment (section 5.1).

    Event times are LogNormal(3, 0.8²) where ``group`` is 0 and LogNormal(3.5, 1²) where it is 1; the two hazards
    cross. Censoring is exponential. The other covariates are standard normal noise.

    Parameters
    ----------
    n : int
        Number of rows.
    noise : int
        Number of covariates without effect.
    censoring_rate : float
        Rate of the exponential censoring time; 0 for none.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(150, seed=1)
    >>> cohort.x.columns.tolist()
    ['group', 'noise1', 'noise2', 'noise3']
    """
    if n < 1:
        raise InputError(f"n={n} rows cannot be simulated; ask for at least 1.")
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    time = np.exp(np.take(_LOCATION, group) + np.take(_SCALE, group) * rng.standard_normal(n))
    censored = rng.exponential(1 / censoring_rate, n) if censoring_rate > 0 else np.full(n, np.inf)
    x = pd.DataFrame({"group": group.astype(float)})
    for k in range(1, noise + 1):
        x[f"noise{k}"] = rng.standard_normal(n)
    return Cohort(x, np.minimum(time, censored), time <= censored)


def lognormal_survival(group: int, times: np.ndarray) -> np.ndarray:
    """Return the true survival probability of a group of :func:`lognormal_cohort` at `times`."""
    with np.errstate(divide="ignore"):
        return np.asarray(norm.sf((np.log(times) - _LOCATION[group]) / _SCALE[group]))
