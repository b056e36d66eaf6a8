"""Concordance: whether people with the event earlier get the lower survival curve."""

from __future__ import annotations

import numpy as np

from neuralsurv.errors import InputError


def antolini_concordance(
    time: np.ndarray, event: np.ndarray, survival: np.ndarray, entry: np.ndarray | None = None
) -> float:
    """Return Antolini's time-dependent concordance index.

    A pair (i, j) is comparable if i has the event and j is observed for longer (at the same time, a censored j is
    still at risk and counts as longer; two events at one time are not comparable), and j has entered before that
    event. It is concordant if i has the lower survival at i's event time; a tie in survival counts one half.

    Parameters
    ----------
    time : ndarray of shape (n,)
        Observed times.
    event : bool ndarray of shape (n,)
        Event flags.
    survival : ndarray of shape (D, n)
        Survival of everybody at the time of each event, events in the order of ``np.flatnonzero(event)``.
    entry : ndarray of shape (n,), optional
        When each row comes under observation; from the start if not given.

    Raises
    ------
    InputError
        If no pair is comparable, or `survival` is of another shape.

    References
    ----------
    L. Antolini, P. Boracchi, E. Biganzoli (2005), A time-dependent discrimination index for survival data.

    Examples
    --------
    >>> import numpy as np
    >>> from neuralsurv.metrics.discrimination import antolini_concordance
    >>> survival = np.array([[0.2, 0.5, 0.9]])
    >>> antolini_concordance(np.array([1.0, 2.0, 3.0]), np.array([True, False, False]), survival)
    1.0
    """
    if survival.shape != (int(event.sum()), len(time)):
        raise InputError(
            f"survival has shape {survival.shape}; {len(time)} rows with {int(event.sum())} events need "
            f"({int(event.sum())}, {len(time)})."
        )
    concordant = comparable = 0.0
    for row, i in enumerate(np.flatnonzero(event)):
        later = (time > time[i]) | ((time == time[i]) & ~event)
        if entry is not None:
            later &= entry < time[i]
        own = survival[row, i]
        concordant += float((survival[row, later] > own).sum() + 0.5 * (survival[row, later] == own).sum())
        comparable += float(later.sum())
    if comparable == 0:
        raise InputError(
            f"no pair of the {len(time)} rows is comparable (an event with somebody observed for longer): "
            "the concordance index is not defined."
        )
    return concordant / comparable
