"""Brier score: the squared error of predicted survival, weighted by the inverse probability of censoring."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import Curves, check_grid, check_outcome
from neuralsurv.metrics.kaplan_meier import KaplanMeierCurve, event_weights, survivor_weights, training_censoring

_SHORTER = "Let the grid end before these events."


def brier_score(
    time: Any,
    event: Any,
    survival: Any,
    times: Any,
    *,
    train_time: Any,
    train_event: Any,
    weight: Any = None,
    train_weight: Any = None,
) -> np.ndarray:
    """Return the Brier score at each time: 0 is perfect, and a constant prediction of 0.5 scores 0.25.

    BS(t) = mean over rows of S(t|x)² / G(t_i−) for those with the event by t, (1 − S(t|x))² / G(t) for those still
    under observation after t, and 0 for those censored by t, whom the weights of the others make up for. G is the
    Kaplan–Meier estimate of the probability of being uncensored, from the training rows, with events before censorings
    where they share a time; G(t−) is its left limit. A row with the event at exactly t counts as having had it.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times and event flags of the rows to score.
    survival : array-like of shape (n, T)
        Their survival at `times`.
    times : array-like of shape (T,)
        The grid, strictly increasing. It should end at :func:`censoring_horizon` or before.
    train_time, train_event : array-like of shape (m,)
        Training rows, or any rows with the same censoring.
    weight : array-like of shape (n,), optional
        Row weights of the mean. A row of weight 2 counts as the row twice.
    train_weight : array-like of shape (m,), optional
        Weights of the training rows.

    Returns
    -------
    ndarray of shape (T,)

    Raises
    ------
    InputError
        If a censoring weight is not defined: a row is still under observation at a grid time after the training
        follow-up (or where G is 0), or has the event after it and before the end of the grid. If at a grid time all
        rows have been censored, so that there is nothing to score. If a curve has NaN, leaves [0, 1] or rises.

    Notes
    -----
    O(n T) time, and memory of a few columns. Weights are not capped: heavily censored late times have large ones.

    References
    ----------
    E. Graf, C. Schmoor, W. Sauerbrei, M. Schumacher (1999), Assessment and comparison of prognostic classification
    schemes for survival data, Statistics in Medicine 18. T. A. Gerds, M. Schumacher (2006), Consistent estimation of
    the expected Brier score in general survival models with right-censored event times, Biometrical Journal 48.

    Examples
    --------
    >>> from neuralsurv.metrics import brier_score
    >>> time, event = [1, 2, 3, 4], [1, 0, 1, 1]
    >>> survival = [[0.5, 0.2], [0.8, 0.6], [0.9, 0.4], [0.9, 0.8]]
    >>> brier_score(time, event, survival, times=[1, 3], train_time=time, train_event=event).round(4).tolist()
    [0.0775, 0.085]
    """
    outcome = check_outcome(time, event, None, weight)
    curves = Curves.read(survival, times, len(outcome))
    grid = check_grid(times)
    censoring = training_censoring(train_time, train_event, train_weight)
    return squared_errors(outcome, outcome.event, curves, grid, censoring)


def squared_errors(
    outcome: Outcome, hit: np.ndarray, curves: Curves, grid: np.ndarray, censoring: KaplanMeierCurve
) -> np.ndarray:
    """Return the Brier score at each time of curves of being free of some of the events, those that are a `hit` (n,).

    A row with another event stays free of these.
    """
    there = outcome.weight > 0
    survivors = grid < outcome.time[there].max()
    dead = outcome.event & there & (outcome.time <= grid[-1])
    case = np.zeros(len(outcome))
    case[dead] = outcome.weight[dead] * event_weights(censoring, outcome.time[dead], _SHORTER)
    control = survivor_weights(censoring, grid, survivors)
    known = survivors | (grid >= outcome.time[dead].min(initial=np.inf))
    if not known.all():
        raise InputError(
            f"at {int((~known).sum())} of the {len(grid)} times (the first is {grid[~known][0]:g}) every row has been "
            "censored, so that the Brier score is not defined; let the grid end earlier."
        )
    score = np.empty(len(grid))
    for k, t in enumerate(grid):
        curve = curves.table[:, k]
        gone = outcome.time <= t
        error = np.where(gone, case, control[k] * outcome.weight) * np.where(gone & hit, curve, 1 - curve) ** 2
        score[k] = error.sum()
    return np.asarray(score / outcome.weight.sum())


def integrated_brier_score(
    time: Any,
    event: Any,
    survival: Any,
    times: Any,
    *,
    train_time: Any,
    train_event: Any,
    weight: Any = None,
    train_weight: Any = None,
) -> float:
    """Return the mean Brier score over time: the trapezoid rule over `times`, divided by their range.

    The integral starts at the first and ends at the last of the times, with equal weight for every stretch of time
    between them; nothing is added before the first. Scores on different grids are different numbers: compare methods
    on one grid, and state it.

    Parameters
    ----------
    time, event, survival, times, train_time, train_event, weight, train_weight
        As in :func:`brier_score`, at least two times.

    Returns
    -------
    float

    Raises
    ------
    InputError
        As :func:`brier_score`, and if there is a single time.

    Examples
    --------
    >>> from neuralsurv.metrics import integrated_brier_score
    >>> time, event = [1, 2, 3, 4], [1, 0, 1, 1]
    >>> survival = [[0.5, 0.2], [0.8, 0.6], [0.9, 0.4], [0.9, 0.8]]
    >>> round(integrated_brier_score(time, event, survival, [1, 3], train_time=time, train_event=event), 5)
    0.08125
    """
    grid = check_grid(times)
    if len(grid) < 2:
        raise InputError("the integrated Brier score needs at least two times; use brier_score for a single one.")
    score = brier_score(
        time,
        event,
        survival,
        grid,
        train_time=train_time,
        train_event=train_event,
        weight=weight,
        train_weight=train_weight,
    )
    return mean_over_times(score, grid)


def mean_over_times(score: np.ndarray, grid: np.ndarray) -> float:
    """Return the mean of a score over the range of the grid, by the trapezoid rule."""
    return float(np.sum(np.diff(grid) * (score[1:] + score[:-1]) / 2) / (grid[-1] - grid[0]))
