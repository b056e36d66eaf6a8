"""Inverse-probability-of-censoring weights (IPCW) from the training rows, and where they are not defined."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import check_outcome
from neuralsurv.metrics.kaplan_meier import KaplanMeierCurve, censoring_curve

_TRAINING = ("train_time", "train_event", "train_weight")


def training_censoring(train_time: Any, train_event: Any, train_weight: Any = None) -> KaplanMeierCurve:
    """Return G of the training rows."""
    return censoring_curve(check_outcome(train_time, train_event, None, train_weight, names=_TRAINING))


def censoring_horizon(train_time: Any, train_event: Any, *, train_weight: Any = None) -> float:
    """Return the largest training time at which censoring weights are defined.

    That is the last training time, or if a censored row has it the one before: there G, the Kaplan–Meier estimate of
    the probability of being uncensored, reaches 0. Brier scores are defined at grid times up to the horizon, and
    weighted concordance indices with `tau` up to it, whatever the rows that are scored.

    Parameters
    ----------
    train_time, train_event : array-like of shape (m,)
        Observed times and event flags of the training rows.
    train_weight : array-like of shape (m,), optional
        Row weights.

    Raises
    ------
    InputError
        If all training rows are censored at one time: G is 0 there and no weight is defined.

    Examples
    --------
    >>> from neuralsurv.metrics import censoring_horizon
    >>> censoring_horizon([1, 2, 3, 5], [1, 0, 1, 0])
    3.0
    """
    outcome = check_outcome(train_time, train_event, None, train_weight, names=_TRAINING)
    curve = censoring_curve(outcome)
    moments = np.unique(outcome.time[outcome.weight > 0])
    defined = moments[curve.after(moments) > 0]
    if len(defined) == 0:
        raise InputError(
            f"all training rows are censored at time {moments[0]:g}: no censoring weight is defined at any of them."
        )
    return float(defined[-1])


def event_weights(censoring: KaplanMeierCurve, time: np.ndarray, advice: str) -> np.ndarray:
    """Return 1 / G(t−) for rows with the event at `time`: it is observed with the probability of C ≥ t."""
    beyond = time > censoring.last
    if beyond.any():
        raise InputError(
            f"{int(beyond.sum())} of the {len(time)} events lie after {censoring.last:g}, the end of the training "
            f"follow-up (the latest at {time.max():g}): their censoring weights are not defined. {advice}"
        )
    return np.asarray(1.0 / censoring.before(time))


def survivor_weights(censoring: KaplanMeierCurve, times: np.ndarray, needed: np.ndarray) -> np.ndarray:
    """Return 1 / G(t) for rows free of the event at grid times, 0 where there are none (`needed` is False)."""
    chance = np.where(times > censoring.last, 0.0, censoring.after(times))
    undefined = needed & (chance == 0)
    if undefined.any():
        raise InputError(
            f"{int(undefined.sum())} of the {len(times)} times (the first is {times[undefined][0]:g}) cannot be "
            "scored: no training row is followed beyond them, so the censoring weight is not defined, but rows to "
            "score are. Let the grid end at censoring_horizon(train_time, train_event) or before."
        )
    return np.divide(1.0, chance, out=np.zeros(len(times)), where=needed)
