"""The log-likelihood of right-censored outcomes under predicted survival curves."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.metrics.curves import Curves, check_outcome


def log_likelihood(time: Any, event: Any, survival: Any, times: Any, *, weight: Any = None, entry: Any = None) -> float:
    """Return the mean log-likelihood of a row: higher is better.

    A row with the event adds log f(t|x), a censored one log S(t|x), both less log S(entry|x) for late entry. Between
    two times of the grid the hazard is constant, so log S is linear there and f = hazard × S. An event at exactly a
    time of the grid has the hazard of the interval that ends there. It is a density: its value depends on the unit of
    time, and on the grid as far as the hazard varies within an interval.

    Parameters
    ----------
    time, event : array-like of shape (n,)
        Observed times and event flags.
    survival : array-like of shape (n, T)
        Survival at `times`. If the grid starts after 0, survival is 1 at 0.
    times : array-like of shape (T,)
        The grid, strictly increasing, up to the last observed time or further.
    weight : array-like of shape (n,), optional
        Row weights of the mean.
    entry : array-like of shape (n,), optional
        When each row comes under observation.

    Returns
    -------
    float
        It is −∞ if a row has the event where its curve is flat, or is seen alive where its curve is 0: the
        prediction calls what was observed impossible.

    Raises
    ------
    InputError
        If a time lies beyond the grid; if a curve has NaN, leaves [0, 1] or rises.

    Notes
    -----
    In an interval in which a curve comes down to exactly 0 no constant hazard does that: there survival is linear, and
    the density constant.

    References
    ----------
    J. P. Klein, M. L. Moeschberger (2003), Survival analysis, chapter 3.5.

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.metrics import log_likelihood
    >>> times = np.array([1.0, 2.0, 3.0])
    >>> survival = np.exp(-0.5 * times) * np.ones((2, 1))
    >>> round(log_likelihood([1.2, 2.5], [True, False], survival, times), 6)  # (log 0.5 - 0.6 - 1.25) / 2
    -1.271574
    """
    outcome = check_outcome(time, event, entry, weight)
    curves = Curves.read(survival, times, len(outcome))
    curves.locate(outcome.time, "observed times", "give curves on a longer grid")
    alive, density = _logs(curves, outcome.time)
    # Survival is 1 just before time 0, whatever a grid that starts there says.
    before = np.where(outcome.entry > 0, _logs(curves, outcome.entry)[0], 0.0)
    there = outcome.weight > 0
    rows = np.where(outcome.event, density, alive)[there]
    # A curve that is 0 at entry calls even that impossible.
    rows = np.where(np.isneginf(before[there]), -np.inf, rows - np.where(np.isneginf(before), 0.0, before)[there])
    return float(np.average(rows, weights=outcome.weight[there]))


def _logs(curves: Curves, time: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return log S and log f of each row at its own time."""
    # The interval that a time ends, or lies inside; time 0 lies in the first.
    right = np.clip(np.searchsorted(curves.knots, time, side="left"), 1, max(1, len(curves.knots) - 1))
    left = right - 1
    start, end = curves.own(left), curves.own(right)
    last = np.minimum(right, len(curves.knots) - 1)
    width = np.where(last > left, curves.knots[last] - curves.knots[left], 1.0)
    fraction = np.clip((time - curves.knots[left]) / width, 0.0, 1.0)
    linear = end == 0
    with np.errstate(divide="ignore", invalid="ignore"):
        # A rise by rounding is a flat curve.
        hazard = np.maximum(np.log(start) - np.log(np.where(linear, 1.0, end)), 0.0)
        alive = np.where(linear, np.log(start) + np.log1p(-fraction), np.log(start) - hazard * fraction)
        density = np.where(linear, np.log(start) - np.log(width), alive + np.log(hazard) - np.log(width))
    return alive, density
