"""Concordance: whether rows with an earlier event have the higher predicted risk, or the lower survival curve.

Three indices, one rule for pairs. A pair (i, j) is comparable if i has the event and j is observed for longer: at a
later time, or censored at the same time, when it is known to outlive i. Two events at one time are not comparable. With
late entry j must have entered before i's event. Equal predictions, equal to the last bit, count one half.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics.curve_pairs import concordant_curves, dominance_sums
from neuralsurv.metrics.curves import Curves, as_floats, check_outcome
from neuralsurv.metrics.kaplan_meier import event_weights, training_censoring

_SHORTER = "Give tau, so that only events before it count."


def harrell_concordance(time: Any, event: Any, risk: Any, *, weight: Any = None, entry: Any = None) -> float:
    """Return Harrell's concordance index of a risk score: 0.5 is chance, 1 is perfect.

    The share of comparable pairs (i, j) in which i, who has the event first, has the higher risk; equal risks count
    one half. Comparable: i has the event, and j has a later time, or the same time and no event. Two events at one
    time are not comparable.

    Parameters
    ----------
    time : array-like of shape (n,)
        Observed times.
    event : array-like of shape (n,)
        Event flags.
    risk : array-like of shape (n,)
        Risk score; higher means sooner. It may be infinite, but not NaN.
    weight : array-like of shape (n,), optional
        Row weights: a pair counts the product of its two. A row of weight 2 counts as the row twice.
    entry : array-like of shape (n,), optional
        When each row comes under observation; j is compared with i only if it has entered before i's event.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If no pair is comparable, or a risk is NaN.

    Notes
    -----
    O(n log n) time and O(n) memory. The index depends on how the rows are censored; :func:`uno_concordance` does not.

    References
    ----------
    F. E. Harrell, K. L. Lee, D. B. Mark (1996), Multivariable prognostic models, Statistics in Medicine 15.

    Examples
    --------
    >>> from neuralsurv.metrics import harrell_concordance
    >>> harrell_concordance(time=[1, 2, 3, 4], event=[1, 1, 0, 1], risk=[3.0, 0.5, 1.0, 0.0])
    0.8
    """
    outcome = check_outcome(time, event, entry, weight)
    return _index(outcome, _ranks(risk, len(outcome)), outcome.weight, None)


def uno_concordance(
    time: Any,
    event: Any,
    risk: Any,
    *,
    train_time: Any,
    train_event: Any,
    tau: float | None = None,
    weight: Any = None,
    train_weight: Any = None,
) -> float:
    """Return Uno's concordance index: Harrell's, with pairs weighted so that it does not depend on censoring.

    A comparable pair (i, j), as in :func:`harrell_concordance`, counts 1 / G(t_i−)², where G is the Kaplan–Meier
    estimate of the probability of being uncensored, from the training rows (events before censorings where they share
    a time), and t_i− is just before i's event.

    Parameters
    ----------
    time, event, risk, weight : array-like of shape (n,)
        As in :func:`harrell_concordance`.
    train_time, train_event : array-like of shape (m,)
        Training rows, or any rows with the same censoring.
    tau : float, optional
        Count only pairs whose event comes before `tau`; all if not given.
    train_weight : array-like of shape (m,), optional
        Weights of the training rows.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If an event (before `tau`) lies after the last training time, where no weight is defined; if no pair is
        comparable; if a risk is NaN.

    References
    ----------
    H. Uno, T. Cai, M. J. Pencina, R. B. D'Agostino, L. J. Wei (2011), On the C-statistics for evaluating overall
    adequacy of risk prediction procedures with censored survival data, Statistics in Medicine 30.

    Examples
    --------
    >>> from neuralsurv.metrics import uno_concordance
    >>> time, event = [1, 2, 3, 4], [1, 0, 1, 0]
    >>> round(uno_concordance(time, event, [3.0, 4.0, 1.0, 2.0], train_time=time, train_event=event), 3)
    0.381
    """
    outcome = check_outcome(time, event, None, weight)
    counted = _counted_events(outcome, tau)
    pair = outcome.weight * _ipcw(outcome, counted, train_time, train_event, train_weight)
    return _index(outcome, _ranks(risk, len(outcome)), pair, tau)


def antolini_concordance(
    time: Any,
    event: Any,
    survival: Any,
    times: Any,
    *,
    entry: Any = None,
    weight: Any = None,
    train_time: Any = None,
    train_event: Any = None,
    tau: float | None = None,
    train_weight: Any = None,
) -> float:
    """Return Antolini's time-dependent concordance index of survival curves: 0.5 is chance, 1 is perfect.

    The share of comparable pairs (i, j), as in :func:`harrell_concordance`, in which i has the lower survival at its
    own event time: S(t_i | x_i) < S(t_i | x_j); equal survival counts one half. With curves that do not cross it is
    Harrell's index.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times and event flags.
    survival : array-like of shape (n, T)
        Survival of each row at `times`; between them a curve is linear, and it is 1 at time 0 unless the grid says
        otherwise.
    times : array-like of shape (T,)
        The grid, strictly increasing.
    entry : array-like of shape (n,), optional
        When each row comes under observation; j is compared with i only if it has entered before i's event.
    weight : array-like of shape (n,), optional
        Row weights: a pair counts the product of its two.
    train_time, train_event, train_weight : array-like of shape (m,), optional
        If given, a pair counts 1 / G(t_i−)² as in :func:`uno_concordance`. Not together with `entry`: that censoring
        weight is for rows under observation from time 0.
    tau : float, optional
        Count only pairs whose event comes before `tau`.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If no pair is comparable; if an event (before `tau`) lies after the grid, or after the training follow-up; if
        a curve has NaN, leaves [0, 1] or rises.

    Notes
    -----
    Exact for these curves, without an n × n or an n × (number of events) table. See `curve_pairs.py`.

    References
    ----------
    L. Antolini, P. Boracchi, E. Biganzoli (2005), A time-dependent discrimination index for survival data, Statistics
    in Medicine 24.

    Examples
    --------
    Two curves that cross: person 0 is worse off at time 1, person 1 at time 2.

    >>> from neuralsurv.metrics import antolini_concordance
    >>> survival = [[0.5, 0.45], [0.6, 0.2], [0.7, 0.3]]
    >>> antolini_concordance([1, 2, 3], [1, 1, 0], survival, times=[1, 2])
    1.0
    """
    outcome = check_outcome(time, event, entry, weight)
    curves = Curves.read(survival, times, len(outcome))
    pair = outcome.weight
    counted = _counted_events(outcome, tau)
    if (train_time is None) != (train_event is None):
        raise InputError("train_time and train_event belong together; give both or neither.")
    if train_time is not None:
        if entry is not None:
            raise InputError(
                "entry and train_time are both given: censoring weights are for rows under observation from time 0. "
                "Leave one of them out."
            )
        pair = pair * _ipcw(outcome, counted, train_time, train_event, train_weight)
    total = _comparable(outcome, counted, pair)
    return concordant_curves(outcome, curves, counted, pair) / total


def _ranks(risk: Any, rows: int) -> np.ndarray:
    values = as_floats(risk, "risk")
    if values.shape != (rows,):
        raise InputError(f"risk has shape {values.shape}; {rows} rows need one number each.")
    if np.isnan(values).any():
        raise InputError(f"risk is missing (NaN) in {int(np.isnan(values).sum())} of the {rows} rows.")
    return np.asarray(np.unique(values, return_inverse=True)[1])


def _counted_events(outcome: Outcome, tau: float | None) -> np.ndarray:
    """Return which rows have an event that counts."""
    if tau is None:
        return outcome.event & (outcome.weight > 0)
    if not tau > 0:
        raise InputError(f"tau={tau!r} must be a time above 0.")
    return outcome.event & (outcome.weight > 0) & (outcome.time < tau)


def _ipcw(outcome: Outcome, counted: np.ndarray, train_time: Any, train_event: Any, train_weight: Any) -> np.ndarray:
    """Return 1 / G(t−)² for the events that count, 0 for all other rows."""
    censoring = training_censoring(train_time, train_event, train_weight)
    factor = np.zeros(len(outcome))
    factor[counted] = event_weights(censoring, outcome.time[counted], _SHORTER) ** 2
    return factor


def _index(outcome: Outcome, rank: np.ndarray, pair: np.ndarray, tau: float | None) -> float:
    """Return the index of risks given by their ranks; a pair counts `pair` of i times the weight of j.

    Whom i is compared with are all who have entered before its event, less those whose own time has come by then, i
    itself among them. Each of the two sets is a prefix of an order of the rows, so that those with a lower rank in
    them are found by :func:`dominance_sums`.
    """
    counted = _counted_events(outcome, tau)
    total = _comparable(outcome, counted, pair)
    mine = rank[counted]
    lower = np.zeros(len(mine))
    for sign, order, prefix in _compared(outcome, counted):
        for limit in (mine, mine + 1):
            # Those strictly below, and those below or equal: the mean counts the equal ones half.
            lower += 0.5 * sign * dominance_sums(rank[order], outcome.weight[order], prefix, limit)
    return float((pair[counted] * lower).sum() / total)


def _compared(outcome: Outcome, counted: np.ndarray) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Return two orders of the rows with the prefix of each that i is compared with (+1) and not compared with (−1)."""
    moment = outcome.time[counted]
    by_entry = np.argsort(outcome.entry, kind="stable")
    entered = np.searchsorted(outcome.entry[by_entry], moment, side="left")
    # Events first where times are tied: a censored row outlives an event at its time, another event does not.
    by_time = np.lexsort((~outcome.event, outcome.time))
    before = np.searchsorted(outcome.time[by_time], moment, side="left")
    event_times = np.sort(outcome.time[outcome.event])
    tied_events = np.searchsorted(event_times, moment, side="right") - np.searchsorted(event_times, moment, side="left")
    return [(1, by_entry, entered), (-1, by_time, before + tied_events)]


def _comparable(outcome: Outcome, counted: np.ndarray, pair: np.ndarray) -> float:
    """Return the total weight of all comparable pairs, or refuse where there is none."""
    others = np.zeros(int(counted.sum()))
    for sign, order, prefix in _compared(outcome, counted):
        others += sign * np.concatenate([[0.0], np.cumsum(outcome.weight[order])])[prefix]
    # Sums of fractional weights in two orders differ by rounding where no row is left.
    others[others < 1e-12 * outcome.weight.sum()] = 0.0
    total = float((pair[counted] * others).sum())
    if total == 0:
        raise InputError(
            f"no pair of the {len(outcome)} rows is comparable (an event, and a row observed for longer): "
            "the concordance index is not defined."
        )
    return total
