"""Simulated cohorts whose true survival curves are known."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.arguments import real_number, whole_number
from neuralsurv.data.simulate.designs import (
    CrossingHazards,
    Design,
    LogNormalGroups,
    SineAcceleratingConstant,
    WeibullHazards,
    censoring_rate_for,
    censoring_times,
)
from neuralsurv.data.simulate.frozen import (
    AcceleratedTimes,
    CuredShare,
    GammaFrailty,
    SparseHazards,
    TurningEffects,
    TwoWaves,
)
from neuralsurv.errors import InputError

_PAPER_CENSORING_RATE = 0.025
# SAC: a chance of censoring of σ(−7) in each of ten steps a unit of time.
_STUDY_CENSORING_RATE = 10 * float(np.logaddexp(0, -7.0))


@dataclass(frozen=True)
class SimulatedCohort:
    """A simulated cohort.

    Attributes
    ----------
    x : DataFrame of shape (N, d)
        Covariates.
    time, event : ndarray of shape (N,)
        Observed time and event flag.
    design : Design
        The distribution that the cohort was drawn from.
    """

    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray
    design: Design

    @property
    def y(self) -> tuple[np.ndarray, np.ndarray]:
        """The pair (time, event) that `fit` takes."""
        return self.time, self.event

    def true_survival(self, times: Sequence[float] | np.ndarray, x: pd.DataFrame | None = None) -> np.ndarray:
        """Return the true survival probabilities.

        Parameters
        ----------
        times : array-like of shape (T,)
            Times, from 0.
        x : DataFrame of shape (n, d), optional
            Covariates of other people, with the same columns; the cohort itself if left out.

        Returns
        -------
        ndarray of shape (n, T)

        Raises
        ------
        InputError
            If a time is negative, missing or beyond the end of follow-up, or a column is missing.

        Examples
        --------
        >>> from neuralsurv.data.simulate import proportional_hazards_cohort
        >>> cohort = proportional_hazards_cohort(50, seed=1)
        >>> cohort.true_survival([0, 10, 20]).shape
        (50, 3)
        """
        at = np.asarray(times, dtype=np.float64)
        if at.ndim != 1:
            raise InputError(f"times has {at.ndim} dimensions; give a list of times.")
        outside = ~((at >= 0) & (at <= self.design.end))
        if outside.any():
            raise InputError(
                f"{int(outside.sum())} of {len(at)} times are missing or outside of the follow-up, which runs from 0 "
                f"to {self.design.end:g}."
            )
        people = self.x if x is None else x
        missing = [name for name in self.x.columns if name not in people.columns]
        if missing:
            raise InputError(f"x lacks {len(missing)} of the cohort's columns: {', '.join(missing)}.")
        return self.design.survival(people[list(self.x.columns)], at)


def lognormal_cohort(
    n: int, *, noise: int = 3, censoring_rate: float | None = None, censoring: float | None = None, seed: int = 0
) -> SimulatedCohort:
    """Simulate the paper's synthetic experiment (section 5.1).

    Event times are LogNormal(3, 0.8²) where ``group`` is 0 and LogNormal(3.5, 1²) where it is 1; the two hazards
    cross. Censoring is exponential. The other covariates are standard normal noise.

    Parameters
    ----------
    n : int
        Number of rows.
    noise : int
        Number of covariates without effect.
    censoring_rate : float, optional
        Rate of the exponential censoring time; 0 for none. The paper's is 0.025, about half of the rows, and is taken
        if neither this nor `censoring` is given.
    censoring : float, optional
        Expected share of censored rows, in place of a rate.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> from neuralsurv.data.simulate import lognormal_cohort
    >>> cohort = lognormal_cohort(150, seed=1)
    >>> cohort.x.columns.tolist()
    ['group', 'noise1', 'noise2', 'noise3']
    """
    design = LogNormalGroups(whole_number("noise", noise, least=0))
    if censoring is None:
        given = _PAPER_CENSORING_RATE if censoring_rate is None else censoring_rate
        rate = real_number("censoring_rate", given, lambda number: 0 <= number < np.inf, "a number of at least 0")
    elif censoring_rate is None:
        rate = censoring_rate_for(design, censoring)
    else:
        raise InputError(
            f"censoring_rate={censoring_rate!r} and censoring={censoring!r} are both given; give one of them."
        )
    rows = whole_number("n", n)
    # The noise comes last, so that cohorts of one seed have the same outcomes whatever its number.
    rng = np.random.default_rng(seed)
    group = pd.DataFrame({"group": rng.integers(0, 2, rows).astype(float)})
    time = design.event_times(group, rng)
    censored = censoring_times(rows, rate, rng)
    noises = {f"noise{k}": rng.standard_normal(rows) for k in range(1, noise + 1)}
    return SimulatedCohort(group.assign(**noises), np.minimum(time, censored), time <= censored, design)


def lognormal_survival(group: int, times: np.ndarray) -> np.ndarray:
    """Return the true survival probability of a group of :func:`lognormal_cohort` at `times`."""
    at = np.asarray(times, dtype=np.float64)
    row = pd.DataFrame({"group": [float(group)]})
    return LogNormalGroups().survival(row, at.reshape(-1)).reshape(at.shape)


def proportional_hazards_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate proportional hazards: a Weibull baseline of shape 1.5 and a linear log-risk.

    The log-risk is 0.8 ``x1`` - 0.5 ``x2`` + 0.6 ``b``; ``x1`` and ``x2`` are standard normal, ``b`` is 0 or 1.

    Parameters
    ----------
    n : int
        Number of rows.
    noise : int
        Number of standard normal covariates without effect.
    censoring : float
        Expected share of rows that are censored; censoring times are exponential. 0 for none.
    seed : int
        Seed of the random numbers.

    Examples
    --------
    >>> from neuralsurv.data.simulate import proportional_hazards_cohort
    >>> cohort = proportional_hazards_cohort(100, censoring=0.5, seed=1)
    >>> cohort.x.columns.tolist()
    ['x1', 'x2', 'b', 'noise1', 'noise2']
    """
    return _simulated(WeibullHazards(whole_number("noise", noise, least=0)), n, censoring, seed)


def interaction_cohort(
    n: int, *, strength: float = 1.0, noise: int = 2, censoring: float = 0.3, seed: int = 0
) -> SimulatedCohort:
    """Simulate the cohort of :func:`proportional_hazards_cohort` with a product of ``x1`` and ``x2`` in the log-risk.

    Parameters
    ----------
    n : int
        Number of rows.
    strength : float
        Coefficient of the product.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import interaction_cohort
    >>> interaction_cohort(100, seed=1).x.shape
    (100, 5)
    """
    coefficient = real_number("strength", strength, math.isfinite, "a finite number")
    return _simulated(WeibullHazards(whole_number("noise", noise, least=0), coefficient), n, censoring, seed)


def crossing_hazards_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate two groups of the same median time, one whose hazard falls and one whose hazard rises.

    Where ``group`` is 0 times are Weibull of shape 0.8, where it is 1 they are gamma of shape 4. Time runs faster by
    the factor exp(0.5 ``x1`` - 0.3 ``x2``), both standard normal.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import crossing_hazards_cohort
    >>> cohort = crossing_hazards_cohort(100, seed=1)
    >>> cohort.true_survival([20.0], cohort.x.assign(x1=0.0, x2=0.0)).round(3).min()
    np.float64(0.5)
    """
    return _simulated(CrossingHazards(whole_number("noise", noise, least=0)), n, censoring, seed)


def sac_cohort(
    n: int, *, spread: int = 5, end: float = 100.0, censoring: float | None = None, seed: int = 0
) -> SimulatedCohort:
    """Simulate hazards that mix a sine, an accelerating and a constant part, as in the SAC study [1]_.

    A person has nine hidden numbers, uniform between -1 and 1: three say how the logits of the three hazards are mixed,
    four describe the sine, one the constant and one the acceleration. The covariates are `spread` numbers for each of
    them that add up to it. Time is continuous here: the study counts events in steps of 0.1, and the hazard is constant
    within each of them, so that the survival at their ends is the study's. The study's random
    coefficients of the covariates are 1 here; they scale and flip columns, no more.

    Parameters
    ----------
    n : int
        Number of rows.
    spread : int
        Covariates for each hidden number; 9 times as many columns.
    end : float
        End of follow-up; the study's is 100, when a fifth of the rows are still free of the event.
    censoring : float, optional
        Expected share of censored rows, those free of the event at the end included. Without it, the study's own
        censoring, about 0.37.
    seed : int
        Seed of the random numbers.

    References
    ----------
    .. [1] Kvamme and Borgan (2019). Continuous and discrete-time survival prediction with neural networks.
       arXiv:1910.06724.

    Examples
    --------
    >>> from neuralsurv.data.simulate import sac_cohort
    >>> cohort = sac_cohort(100, seed=1)
    >>> cohort.x.shape, bool(cohort.time.max() <= 100)
    ((100, 45), True)
    """
    last = real_number("end", end, lambda number: 0 < number < np.inf, "a positive number")
    return _simulated(SineAcceleratingConstant(whole_number("spread", spread), last), n, censoring, seed)


def accelerated_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate log-normal times whose location has a sine, a threshold and a square.

    log T = 3 + 0.8 sin(2 ``x1``) + 0.9 (``x2`` > 0.3) - 0.3 ``x3``² + 0.7 ε; the covariates and ε are standard normal.
    Antolini's concordance of the true curves is 0.78. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import accelerated_cohort
    >>> cohort = accelerated_cohort(100, seed=1)
    >>> below, above = cohort.x.assign(x2=0.29), cohort.x.assign(x2=0.31)
    >>> bool((cohort.true_survival([20.0], below) < cohort.true_survival([20.0], above)).all())
    True
    """
    return _simulated(AcceleratedTimes(whole_number("noise", noise, least=0)), n, censoring, seed)


def sparse_cohort(n: int, *, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate proportional hazards with 20 standard normal covariates of which two matter.

    The baseline is Weibull of shape 1.3 and scale 25, the log-risk 0.9 ``x3`` - 0.7 ``x11``. Antolini's concordance of
    the true curves is 0.75. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import sparse_cohort
    >>> sparse_cohort(100, seed=1).x.shape
    (100, 20)
    """
    return _simulated(SparseHazards(), n, censoring, seed)


def turning_effects_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate log-logistic times with an effect that changes sign in time.

    S(t | x) = 1 / (1 + (t/s)^k) with log k = 0.5 + 0.4 ``x1`` and log s = 3 + 0.6 ``x2`` - 0.5 ``b``; ``x1`` and ``x2``
    are standard normal, ``b`` is 0 or 1. A high ``x1`` is a lower risk up to the median and a higher one after it.
    Antolini's concordance of the true curves is 0.69. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import turning_effects_cohort
    >>> cohort = turning_effects_cohort(100, seed=1)
    >>> person = cohort.x.head(1).assign(x2=0.0, b=0.0)
    >>> cohort.true_survival([5.0, 80.0], person.assign(x1=-1.0)).round(2).tolist()
    [[0.82, 0.18]]
    >>> cohort.true_survival([5.0, 80.0], person.assign(x1=1.0)).round(2).tolist()
    [[0.97, 0.03]]
    """
    return _simulated(TurningEffects(whole_number("noise", noise, least=0)), n, censoring, seed)


def cure_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate people of whom a share, which depends on a covariate, never has the event.

    The log-odds of being cured are -2 + 1.2 ``x1``: 17 % of all, 5 % where ``x1`` is -1 and 31 % where it is 1. The
    others have Weibull times of shape 1.4 and scale 20 with the log-risk 0.8 ``x2`` + 0.6 (``b`` - 1/2); ``x1`` and
    ``x2`` are standard normal, ``b`` is 0 or 1. Follow-up ends at 100. Antolini's concordance of the true curves is
    0.69. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, seed
        As in :func:`proportional_hazards_cohort`.
    censoring : float
        Expected share of censored rows, the cured included: at least 0.19.

    Examples
    --------
    >>> from neuralsurv.data.simulate import cure_cohort
    >>> cohort = cure_cohort(100, seed=1)
    >>> cohort.true_survival([100.0], cohort.x.assign(x1=1.0, x2=0.0)).min().round(2)
    np.float64(0.31)
    """
    return _simulated(CuredShare(whole_number("noise", noise, least=0)), n, censoring, seed)


def frailty_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate proportional hazards with a gamma frailty that is not among the covariates.

    A person's hazard is that of a Weibull time of shape 1.6 and scale 20 times exp(``x1`` - 0.7 ``x2`` +
    0.8 (``b`` - 1/2)) and times a frailty of mean 1 and variance 0.8; ``x1`` and ``x2`` are standard normal, ``b`` is 0
    or 1. The true survival is that of people with these covariates, whatever their frailty: its hazard ratios shrink
    with time. Antolini's concordance of the true curves is 0.71. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import frailty_cohort
    >>> frailty_cohort(100, seed=1).x.columns.tolist()
    ['x1', 'x2', 'b', 'noise1', 'noise2']
    """
    return _simulated(GammaFrailty(whole_number("noise", noise, least=0)), n, censoring, seed)


def two_wave_cohort(n: int, *, noise: int = 2, censoring: float = 0.3, seed: int = 0) -> SimulatedCohort:
    """Simulate an early and a late wave of events, each with covariates of its own.

    The cumulative hazard is 0.6 exp(1.2 ``x1``) (1 - exp(-(t/6)^1.5)) + exp(``x2`` - 0.6 ``b``) (t/40)⁴: the first wave
    is over at about 15, when the second begins. ``x1`` and ``x2`` are standard normal, ``b`` is 0 or 1. Antolini's
    concordance of the true curves is 0.73. One of six frozen designs that models are checked on.

    Parameters
    ----------
    n : int
        Number of rows.
    noise, censoring, seed
        As in :func:`proportional_hazards_cohort`.

    Examples
    --------
    >>> from neuralsurv.data.simulate import two_wave_cohort
    >>> cohort = two_wave_cohort(100, seed=1)
    >>> cohort.true_survival([15.0, 20.0], cohort.x.assign(x1=0.0, x2=0.0, b=0.0)).min(axis=0).round(2).tolist()
    [0.54, 0.52]
    """
    return _simulated(TwoWaves(whole_number("noise", noise, least=0)), n, censoring, seed)


def _simulated(design: Design, n: int, censoring: float | None, seed: int) -> SimulatedCohort:
    rows = whole_number("n", n)
    rate = _STUDY_CENSORING_RATE if censoring is None else censoring_rate_for(design, censoring)
    rng = np.random.default_rng(seed)
    x = design.covariates(rows, rng)
    time = design.event_times(x, rng)
    last = np.minimum(censoring_times(rows, rate, rng), design.end)
    return SimulatedCohort(x, np.minimum(time, last), time <= last, design)
