"""Validation of the times at which a prediction is requested."""

from __future__ import annotations

from typing import Any

import numpy as np

from neuralsurv.errors import InputError


def check_times(times: Any) -> np.ndarray:
    """Return times as a flat float array; raise InputError if they are not valid."""
    try:
        values = np.atleast_1d(np.asarray(times, dtype=np.float64))
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"times cannot be read as numbers: {error}; give one or more times in a flat list.") from error
    if values.ndim != 1 or len(values) == 0:
        raise InputError(f"times has shape {values.shape}; give one or more times in a flat list.")
    bad = ~np.isfinite(values) | (values < 0)
    if bad.any():
        raise InputError(f"times holds {values[bad][0]:g}; every time must be a finite number of at least 0.")
    return values


def check_given(given: Any) -> float:
    """Return the time that people are known to have reached; raise InputError if it is not valid."""
    alive = _number(given)
    if not 0 <= alive < np.inf:
        raise InputError(f"given={given!r} must be one finite time of at least 0, the same for everybody.")
    return alive


def check_horizon(horizon: Any) -> float:
    """Return the horizon as a number; raise InputError if it is not valid."""
    limit = _number(horizon)
    if not 0 < limit < np.inf:
        raise InputError(f"horizon={horizon!r} must be a positive, finite time.")
    return limit


def _number(value: Any) -> float:
    """Return a value as a number, or NaN if it is not one."""
    try:
        return float(value) if np.ndim(value) == 0 else np.nan
    except (TypeError, ValueError, OverflowError):
        return np.nan
