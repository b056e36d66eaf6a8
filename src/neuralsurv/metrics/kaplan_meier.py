"""The Kaplan–Meier estimate of survival and of censoring, and the weights that follow from it (IPCW)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import check_outcome

# The 95 % quantile of the standard normal: the ends of a 90 % interval.
_Z_90 = 1.6448536269514722
# Sums of fractional weights are exact to about 1e-16 of the total; less than this share of it is rounding.
_ROUNDING = 1e-12
_TRAINING = ("train_time", "train_event", "train_weight")


@dataclass(frozen=True)
class KaplanMeierCurve:
    """A Kaplan–Meier estimate, a step function that is 1 at time 0."""

    times: np.ndarray  # where the curve steps down, increasing, shape (D,)
    survival: np.ndarray  # its value from each of these times on, shape (D,)
    # shape (D,): Greenwood's sum up to each of them; the variance of the estimate is survival² times it. The term of a
    # time at which all rows at risk fall is infinite and left out: the estimate is then 0.
    greenwood: np.ndarray
    last: float  # the end of follow-up. The curve is not defined after it, unless it has reached 0.

    def after(self, time: np.ndarray | float) -> np.ndarray:
        """Return the curve at `time`, a fall at exactly that time included."""
        return self._read(self.survival, 1.0, time, "right")

    def before(self, time: np.ndarray | float) -> np.ndarray:
        """Return the left limit of the curve at `time`: a fall at exactly that time is still to come."""
        return self._read(self.survival, 1.0, time, "left")

    def variance(self, time: np.ndarray | float) -> np.ndarray:
        """Return Greenwood's variance of the curve at `time`."""
        return np.asarray(self.after(time) ** 2 * self._read(self.greenwood, 0.0, time, "right"))

    def _read(self, values: np.ndarray, start: float, time: np.ndarray | float, side: str) -> np.ndarray:
        padded = np.concatenate([[start], values])
        return np.asarray(padded[np.searchsorted(self.times, time, side=side)])  # type: ignore[call-overload]


def survival_curve(outcome: Outcome) -> KaplanMeierCurve:
    """Return the Kaplan–Meier estimate of survival.

    Weights count as repeated rows. A row is at risk after its entry and up to and including its time: somebody who
    enters at the time of an event is not at risk of it, and somebody who is censored then still is.
    """
    return _curve(outcome, outcome.event, leaves_first=False)


def censoring_curve(outcome: Outcome) -> KaplanMeierCurve:
    """Return the Kaplan–Meier estimate of G(t), the probability of being uncensored up to t.

    Where events and censorings share a time the events come first: a person who has the event can no longer be
    censored, and has left the risk set. This is what makes S(t) G(t) the share still under observation after t.
    """
    return _curve(outcome, ~outcome.event, leaves_first=True)


def _curve(outcome: Outcome, falls: np.ndarray, *, leaves_first: bool) -> KaplanMeierCurve:
    """Return the estimate for the rows that fall; `leaves_first`: others at the same time are no longer at risk."""
    # A row of weight zero does not count.
    there = outcome.weight > 0
    time, entry, weight, falls = outcome.time[there], outcome.entry[there], outcome.weight[there], falls[there]
    times, which = np.unique(time[falls], return_inverse=True)
    falling = np.bincount(which, weights=weight[falls], minlength=len(times))
    # Summed apart from the rows that fall, so that the curve reaches exactly 0 when no other row is left.
    others = sum_from(time[~falls], weight[~falls], times, include=not leaves_first)
    others += sum_from(time[falls], weight[falls], times, include=False) - sum_from(entry, weight, times, True)
    others[others < _ROUNDING * weight.sum()] = 0.0
    at_risk = falling + others
    with np.errstate(divide="ignore"):
        terms = np.where(others > 0, falling / (at_risk * others), 0.0)
    return KaplanMeierCurve(times, np.cumprod(1 - falling / at_risk), np.cumsum(terms), float(time.max(initial=0.0)))


def sum_from(moment: np.ndarray, weight: np.ndarray, times: np.ndarray, include: bool) -> np.ndarray:
    """Return the weight of the rows whose moment lies after each of the times, or on it."""
    order = np.argsort(moment, kind="stable")
    upwards = np.concatenate([np.cumsum(weight[order][::-1])[::-1], [0.0]])
    return np.asarray(upwards[np.searchsorted(moment[order], times, side="left" if include else "right")])


def kaplan_meier(outcome: Outcome, time: float) -> tuple[float, float, float]:
    """Return the Kaplan–Meier estimate at `time` with a 90 % interval (log-minus-log, Greenwood).

    Where the estimate is exactly 0 or 1 the interval is not defined and is returned as (0, 1).
    """
    curve = survival_curve(outcome)
    survival = float(curve.after(time))
    if not 0 < survival < 1:
        return survival, 0.0, 1.0
    greenwood = curve.greenwood[np.searchsorted(curve.times, time, side="right") - 1]
    spread = _Z_90 * np.sqrt(greenwood) / abs(np.log(survival))
    return survival, float(survival ** np.exp(spread)), float(survival ** np.exp(-spread))


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
