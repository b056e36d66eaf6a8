"""Scores of predicted cumulative incidences, where several causes of events compete.

Events are given as a number or a name for each cause, with 0 or "censored" for none; `cause` says which one the
predictions are of.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.arguments import whole_number
from neuralsurv.data.cause_values import any_event, cause_flags
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.metrics.aalen_johansen import incidence_curve
from neuralsurv.metrics.brier import mean_over_times, squared_errors
from neuralsurv.metrics.calibration import check_probabilities, risk_groups
from neuralsurv.metrics.curves import TOLERANCE, Curves, as_floats, check_grid, check_outcome
from neuralsurv.metrics.discrimination import harrell_concordance
from neuralsurv.metrics.kaplan_meier import training_censoring
from neuralsurv.names import counted


def cause_brier_score(
    time: Any,
    event: Any,
    incidence: Any,
    times: Any,
    *,
    cause: Any,
    train_time: Any,
    train_event: Any,
    weight: Any = None,
    train_weight: Any = None,
) -> np.ndarray:
    """Return the Brier score of the cumulative incidence of a cause at each time: 0 is perfect.

    BS(t) = mean over rows of (1 − F(t|x))² / G(t_i−) for those with an event of the cause by t, F(t|x)² / G(t_i−) for
    those with an event of another cause by t, F(t|x)² / G(t) for those still under observation after t, and 0 for
    those censored by t. G is as in :func:`brier_score`, with an event of any cause as the event.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times, and the cause of each event, of the rows to score.
    incidence : array-like of shape (n, T)
        Their cumulative incidence of the cause at `times`.
    times : array-like of shape (T,)
        The grid, strictly increasing. It should end at :func:`censoring_horizon` or before.
    cause : int or str
        The cause.
    train_time, train_event : array-like of shape (m,)
        Training rows, or any rows with the same censoring; their events as `event`, or as flags of any event.
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
        If no row has an event of the cause; else as :func:`brier_score`.

    References
    ----------
    R. Schoop, J. Beyersmann, M. Schumacher, H. Binder (2011), Quantifying the predictive accuracy of time-to-event
    models in the presence of competing risks, Biometrical Journal 53.

    Examples
    --------
    >>> from neuralsurv.metrics import cause_brier_score
    >>> time, event = [1, 2, 3, 4], [1, 2, 0, 1]
    >>> incidence = [[0.5, 0.6], [0.1, 0.2], [0.0, 0.3], [0.2, 0.6]]
    >>> cause_brier_score(time, event, incidence, [1, 2], cause=1, train_time=time, train_event=event).round(4).tolist()
    [0.075, 0.1625]
    """
    flags = cause_flags(event, cause, "event")
    outcome = check_outcome(time, flags.event, None, weight)
    grid = check_grid(times)
    table = as_floats(incidence, "incidence")
    falls = np.isnan(table) | (np.diff(table, axis=-1, prepend=0.0) < -TOLERANCE)
    if falls.any():
        raise InputError(
            f"incidence is missing (NaN), negative or falls over time in {rows_phrase(falls.any(axis=-1))}; give the "
            "probability of an event of the cause by each time."
        )
    # The curve of having had no event of the cause, which is checked like one of survival.
    curves = Curves.read(1 - table, grid, len(outcome))
    censoring = training_censoring(train_time, any_event(train_event, "train_event"), train_weight)
    return squared_errors(outcome, flags.own, curves, grid, censoring)


def integrated_cause_brier_score(
    time: Any,
    event: Any,
    incidence: Any,
    times: Any,
    *,
    cause: Any,
    train_time: Any,
    train_event: Any,
    weight: Any = None,
    train_weight: Any = None,
) -> float:
    """Return the mean over time of the Brier score of a cause: the trapezoid rule over `times`, divided by their range.

    Parameters
    ----------
    time, event, incidence, times, cause, train_time, train_event, weight, train_weight
        As in :func:`cause_brier_score`, at least two times.

    Returns
    -------
    float

    Raises
    ------
    InputError
        As :func:`cause_brier_score`, and if there is a single time.

    Examples
    --------
    >>> from neuralsurv.metrics import integrated_cause_brier_score
    >>> time, event = [1, 2, 3, 4], [1, 2, 0, 1]
    >>> incidence = [[0.5, 0.6], [0.1, 0.2], [0.0, 0.3], [0.2, 0.6]]
    >>> training = {"train_time": time, "train_event": event}
    >>> round(integrated_cause_brier_score(time, event, incidence, [1, 2], cause=1, **training), 5)
    0.11875
    """
    grid = check_grid(times)
    if len(grid) < 2:
        raise InputError("the integrated Brier score needs at least two times; use cause_brier_score for a single one.")
    training = {"train_time": train_time, "train_event": train_event, "train_weight": train_weight}
    score = cause_brier_score(time, event, incidence, grid, cause=cause, weight=weight, **training)
    return mean_over_times(score, grid)


def cause_concordance(time: Any, event: Any, risk: Any, *, cause: Any, weight: Any = None, entry: Any = None) -> float:
    """Return the concordance index of a cause: whether those who have its event have the higher risk of it.

    The share of comparable pairs (i, j) in which i has the higher risk; equal risks count one half. Comparable: i has
    an event of the cause, and j is known to have none by then: j is observed for longer, or had an event of another
    cause, at any time. That is :func:`harrell_concordance` with rows of other causes censored at infinity.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times, and the cause of each event.
    risk : array-like of shape (n,)
        Risk of the cause, such as its cumulative incidence at a horizon, or the time lost to it; higher means sooner.
    cause : int or str
        The cause.
    weight : array-like of shape (n,), optional
        Row weights: a pair counts the product of its two.
    entry : array-like of shape (n,), optional
        When each row comes under observation; j is compared with i only if it has entered before i's event.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If no row has an event of the cause, or no pair is comparable, or a risk is NaN.

    References
    ----------
    M. Wolbers, M. T. Koller, J. C. M. Witteman, E. W. Steyerberg (2009), Prognostic models with competing risks:
    methods and application to coronary risk prediction, Epidemiology 20.

    Examples
    --------
    >>> from neuralsurv.metrics import cause_concordance
    >>> cause_concordance([1, 2, 3, 4], [2, 1, 1, 0], risk=[0.5, 0.9, 0.4, 0.1], cause=1)
    0.8
    """
    flags = cause_flags(event, cause, "event")
    outcome = check_outcome(time, flags.event, entry, weight)
    # After every observed time, which is all that matters of infinity.
    longest = 2 * outcome.time.max()
    followed = np.where(flags.event & ~flags.own, longest, outcome.time)
    return harrell_concordance(followed, flags.own, risk, weight=outcome.weight, entry=outcome.entry)


@dataclass(frozen=True)
class CauseCalibration:
    """Result of :func:`cause_calibration`.

    Attributes
    ----------
    observed, expected : ndarray of shape (G,)
        Aalen–Johansen estimate and mean prediction of each group, from the highest predicted risk to the lowest.
    size : int ndarray of shape (G,)
        Rows in each group.
    """

    observed: np.ndarray
    expected: np.ndarray
    size: np.ndarray


def cause_calibration(
    time: Any, event: Any, incidence_at: Any, at: float, *, cause: Any, bins: int = 10
) -> CauseCalibration:
    """Compare predicted with observed cumulative incidence of a cause at one time, in groups of similar predictions.

    Rows are sorted by the prediction and cut into groups as in :func:`one_calibration`; the observed value of each is
    its Aalen–Johansen estimate.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times, and the cause of each event.
    incidence_at : array-like of shape (n,)
        Predicted cumulative incidence of the cause at the time `at`.
    at : float
        The time.
    cause : int or str
        The cause.
    bins : int
        Number of groups, at least 2.

    Returns
    -------
    CauseCalibration

    Raises
    ------
    InputError
        If no row has an event of the cause, or in a group no row is followed up to `at`.

    Examples
    --------
    >>> from neuralsurv.metrics import cause_calibration
    >>> predicted = [0.8, 0.7, 0.7, 0.6, 0.3, 0.2, 0.2, 0.1]
    >>> result = cause_calibration([1, 2, 9, 3, 4, 9, 9, 9], [1, 1, 0, 2, 1, 0, 0, 0], predicted, at=5, cause=1, bins=2)
    >>> result.observed.tolist(), result.expected.round(2).tolist()
    ([0.5, 0.25], [0.7, 0.2])
    """
    flags = cause_flags(event, cause, "event")
    outcome = check_outcome(time, flags.event)
    chance = check_probabilities(incidence_at, "incidence_at")
    if len(chance) != len(outcome):
        raise InputError(f"incidence_at has {counted(len(chance), 'value')} for {counted(len(outcome), 'row')}.")
    if not (np.ndim(at) == 0 and 0 < float(at) < np.inf):
        raise InputError(f"at={at!r} must be one finite time above 0.")
    whole_number("bins", bins, least=2)
    groups = risk_groups(1 - chance, bins)
    parts = [outcome.select(rows) for rows in groups]
    # After the last event of a group in which all rows have one, nothing can change.
    short = [part for part in parts if part.time.max() < at and not part.event[part.time == part.time.max()].all()]
    if short:
        raise InputError(
            f"in {len(short)} of the {len(groups)} groups no row is followed up to {at:g}, so that the observed "
            "incidence is not defined; use fewer bins or an earlier time."
        )
    curves = [incidence_curve(part, flags.own[rows]) for part, rows in zip(parts, groups, strict=True)]
    return CauseCalibration(
        np.array([float(curve.at(min(at, curve.last))) for curve in curves]),
        np.array([float(chance[rows].mean()) for rows in groups]),
        np.array([len(rows) for rows in groups]),
    )
