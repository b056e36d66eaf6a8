"""The study's two scores: the integrated Brier score and Harrell's C as mlr3proba computes them.

Their rules for ties differ from those of `neuralsurv.metrics`. `reproduction.py` compares the Brier score with the
stored ones of Kaplan–Meier. The C-index, which is 0.5 for Kaplan–Meier by any rule, was compared with the stored ones
of the study's Cox model.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics import harrell_concordance
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv_bench.methods.interface import Floats

# The study's `p_max`: the score ends at the first time at which more than this share of the test rows has left.
LARGEST_SHARE_GONE = 0.8
# What mlr3proba puts in place of a smaller probability of being uncensored.
LEAST_UNCENSORED = 1e-3


def brier_times(time: Floats) -> Floats:
    """Return the times at which the Brier score is evaluated.

    Parameters
    ----------
    time : ndarray of shape (n,)
        Observed times of the test rows.

    Returns
    -------
    ndarray of shape (T,)
        The different test times, up to and including the first at which more than 80 % of the test rows are no longer
        at risk (a row is at risk at its own time); all of them if there is none.

    Examples
    --------
    >>> import numpy as np
    >>> brier_times(np.array([3.0, 1.0, 2.0, 2.0, 4.0, 5.0, 6.0])).tolist()
    [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    >>> brier_times(np.array([1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 3.0])).tolist()
    [1.0, 2.0, 3.0]
    """
    times, counts = np.unique(time, return_counts=True)
    gone = (np.cumsum(counts) - counts) / len(time)
    beyond = np.flatnonzero(gone > LARGEST_SHARE_GONE)
    return times[: beyond[0] + 1] if len(beyond) else times


def study_brier(
    train: tuple[Floats, NDArray[np.bool_]],
    test: tuple[Floats, NDArray[np.bool_]],
    survival: Floats,
) -> float:
    """Return the integrated Brier score: `surv.brier` with ``p_max = 0.8`` and ``proper = FALSE``.

    At a time t, a test row with observed time T counts S(t)² / G(T) if it had the event by t, (1 − S(t))² / G(t) if
    T > t, and 0 if it was censored by t. The mean is over all test rows, and its integral over `brier_times`, by the
    trapezoidal rule, is divided by their range. G is the Kaplan–Meier estimate of the probability of being uncensored,
    from the training rows: right-continuous, with rows that have an event at the time of a censoring still at risk, and
    at least 0.001. After the last training time it keeps its last value.

    Parameters
    ----------
    train, test : tuple of (time, event)
        Outcomes of the training and the test rows, each array of shape (n,).
    survival : ndarray of shape (n, T) or (1, T)
        Predicted survival at ``brier_times(test time)``; one line if it is the same for all test rows.

    Returns
    -------
    float
    """
    time, event = test
    times = brier_times(time)
    uncensored = survival_curve(Outcome.from_arrays(train[0], ~train[1]))
    at_own = np.maximum(uncensored.after(time), LEAST_UNCENSORED)[:, None]
    at_times = np.maximum(uncensored.after(times), LEAST_UNCENSORED)
    later = time[:, None] > times
    loss = np.where(later, (1 - survival) ** 2 / at_times, np.where(event[:, None], survival**2 / at_own, 0.0))
    return float(np.trapezoid(loss.mean(axis=0), times) / (times[-1] - times[0]))


def study_concordance(time: Floats, event: NDArray[np.bool_], risk: Floats) -> float:
    """Return Harrell's C, `surv.cindex`: only a strictly later time makes a pair comparable.

    `neuralsurv.metrics.harrell_concordance` also compares an event with a censoring at the same time.

    Parameters
    ----------
    time, event, risk : ndarray of shape (n,)
        Outcomes of the test rows, and their risk scores; higher means sooner.

    Returns
    -------
    float

    Examples
    --------
    >>> import numpy as np
    >>> time, event = np.array([1.0, 1.0, 2.0]), np.array([True, False, True])
    >>> study_concordance(time, event, np.array([1.0, 2.0, 0.0]))
    1.0
    """
    # Censorings are put just before the events of the same time, where no event of that time is compared with them.
    order = 2 * (np.unique(time, return_inverse=True)[1] + 1) - ~event
    return harrell_concordance(order, event, risk)
