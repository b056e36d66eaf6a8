"""The Aalen–Johansen estimate of the cumulative incidence of one of several causes of events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.data.cause_values import cause_flags
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import as_floats, check_outcome
from neuralsurv.metrics.kaplan_meier import sum_from, survival_curve


@dataclass(frozen=True)
class AalenJohansen:
    """A cumulative incidence, a step function that is 0 at time 0; see :func:`aalen_johansen`.

    Attributes
    ----------
    times : ndarray of shape (D,)
        Times of the events of the cause, increasing.
    incidence : ndarray of shape (D,)
        The estimate from each of these times on.
    last : float
        The end of follow-up; the estimate is not defined after it.
    """

    times: np.ndarray
    incidence: np.ndarray
    last: float

    def at(self, times: Any) -> np.ndarray:
        """Return the estimate at times, an event at exactly that time included; refuse times after the follow-up."""
        moment = as_floats(times, "times")
        if not (moment <= self.last).all():
            raise InputError(
                f"the estimate is known up to {self.last:g}, the end of follow-up, and is asked for at "
                f"{float(moment.max()):g}; ask for earlier times."
            )
        padded = np.concatenate([[0.0], self.incidence])
        return np.asarray(padded[np.searchsorted(self.times, moment, side="right")])


def aalen_johansen(time: Any, event: Any, cause: Any, *, entry: Any = None, weight: Any = None) -> AalenJohansen:
    """Return the Aalen–Johansen estimate of the cumulative incidence of a cause.

    F(t) = Σ S(s−) d(s) / n(s) over the times s up to t at which an event of the cause happens: d of n at risk, and S
    the Kaplan–Meier estimate of the time to any event. Over all causes, F adds up to 1 − S.

    Parameters
    ----------
    time : array-like of shape (n,)
        Observed times.
    event : array-like of shape (n,)
        The cause of each event, as a number or a name; 0 or "censored" for none.
    cause : int or str
        The cause.
    entry : array-like of shape (n,), optional
        When each row comes under observation.
    weight : array-like of shape (n,), optional
        Row weights; a row of weight 2 counts as the row twice.

    Returns
    -------
    AalenJohansen

    Raises
    ------
    InputError
        If no row has an event of the cause.

    References
    ----------
    O. O. Aalen, S. Johansen (1978), An empirical transition matrix for non-homogeneous Markov chains based on censored
    observations, Scandinavian Journal of Statistics 5.

    Examples
    --------
    >>> from neuralsurv.metrics import aalen_johansen
    >>> curve = aalen_johansen([1, 2, 3, 4], ["relapse", "death", "censored", "relapse"], "relapse")
    >>> curve.at([0.5, 1, 4]).tolist()
    [0.0, 0.25, 0.75]
    """
    flags = cause_flags(event, cause, "event")
    return incidence_curve(check_outcome(time, flags.event, entry, weight), flags.own)


def incidence_curve(outcome: Outcome, own: np.ndarray) -> AalenJohansen:
    """Return the estimate for the events that are `own`, bool of shape (n,)."""
    there = outcome.weight > 0
    rows, own = outcome.select(there), own[there]
    times, which = np.unique(rows.time[own], return_inverse=True)
    events = np.bincount(which, weights=rows.weight[own], minlength=len(times))
    at_risk = sum_from(rows.time, rows.weight, times, include=True) - sum_from(rows.entry, rows.weight, times, True)
    steps = survival_curve(rows).before(times) * events / at_risk
    return AalenJohansen(times, np.cumsum(steps), float(rows.time.max(initial=0.0)))
