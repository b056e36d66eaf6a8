"""Coverage of bands against a known truth, as in a simulation."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.errors import InputError
from neuralsurv.metrics.curves import as_floats


def band_coverage(lower: Any, upper: Any, truth: Any) -> float:
    """Return the share of points, over all people and times, at which a band holds the true value.

    Parameters
    ----------
    lower, upper : array-like of shape (n, T) or (n,)
        Ends of the band; they belong to it.
    truth : array-like of the same shape
        The true values.

    Returns
    -------
    float

    Raises
    ------
    InputError
        If a number is NaN, the shapes differ, or a lower end lies above its upper end.

    Notes
    -----
    Where truth and band are both known, as survival at time 0, a point is covered whatever the model: leave such
    times out.

    Examples
    --------
    >>> from neuralsurv.metrics import band_coverage
    >>> band_coverage([[0.4, 0.1], [0.7, 0.6]], [[0.6, 0.3], [0.9, 0.8]], [[0.5, 0.2], [0.6, 0.7]])
    0.75
    """
    return float(_covered(lower, upper, truth).mean())


def band_coverage_by_time(lower: Any, upper: Any, truth: Any) -> np.ndarray:
    """Return, for each time, the share of people whose band holds the true value there.

    Parameters
    ----------
    lower, upper, truth : array-like of shape (n, T)
        As in :func:`band_coverage`.

    Returns
    -------
    ndarray of shape (T,)

    Examples
    --------
    >>> from neuralsurv.metrics import band_coverage_by_time
    >>> band_coverage_by_time([[0.4, 0.1], [0.7, 0.6]], [[0.6, 0.3], [0.9, 0.8]], [[0.5, 0.2], [0.6, 0.7]]).tolist()
    [0.5, 1.0]
    """
    return np.asarray(_curves_covered(lower, upper, truth).mean(axis=0))


def simultaneous_band_coverage(lower: Any, upper: Any, truth: Any) -> float:
    """Return the share of people whose band holds the true curve at all times at once.

    A band of pointwise 90 % intervals holds a whole curve less often than nine times in ten.

    Parameters
    ----------
    lower, upper, truth : array-like of shape (n, T)
        As in :func:`band_coverage`.

    Returns
    -------
    float

    Examples
    --------
    >>> from neuralsurv.metrics import simultaneous_band_coverage
    >>> simultaneous_band_coverage([[0.4, 0.1], [0.7, 0.6]], [[0.6, 0.3], [0.9, 0.8]], [[0.5, 0.2], [0.6, 0.7]])
    0.5
    """
    return float(_curves_covered(lower, upper, truth).all(axis=1).mean())


def _curves_covered(lower: Any, upper: Any, truth: Any) -> np.ndarray:
    covered = _covered(lower, upper, truth)
    if covered.ndim != 2:
        raise InputError(f"the band has shape {covered.shape}; give one row for each person, one column for each time.")
    return covered


def _covered(lower: Any, upper: Any, truth: Any) -> np.ndarray:
    """Return where the band holds the truth."""
    low, high, true = (
        as_floats(values, name) for values, name in ((lower, "lower"), (upper, "upper"), (truth, "truth"))
    )
    if not low.shape == high.shape == true.shape or low.size == 0:
        raise InputError(
            f"lower, upper and truth have shapes {low.shape}, {high.shape} and {true.shape}; give one value of each "
            "for every person and time."
        )
    for values, name in ((low, "lower"), (high, "upper"), (true, "truth")):
        if np.isnan(values).any():
            raise InputError(f"{name} is missing (NaN) at {int(np.isnan(values).sum())} of {values.size} points.")
    if (low > high).any():
        raise InputError(f"lower lies above upper at {int((low > high).sum())} of {low.size} points; swap them.")
    return np.asarray((low <= true) & (true <= high))
