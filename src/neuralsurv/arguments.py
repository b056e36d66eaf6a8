"""Checks of arguments, with messages that name the argument and say what it may be."""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Any

import numpy as np

from neuralsurv.errors import InputError


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Return an argument as an int of at least `least`, or refuse it."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least or value is True or value is False:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    return number


def real_number(name: str, value: Any, allowed: Callable[[float], bool], words: str) -> float:
    """Return an argument as a float, or refuse it; `words` says what is allowed, after "must be"."""
    if not isinstance(value, Real) or not allowed(float(value)):
        raise InputError(f"{name}={value!r} must be {words}.")
    return float(value)


def positive_number(name: str, value: Any) -> float:
    """Return an argument as a positive and finite float, or refuse it."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{name}={value!r} must be a positive number.")
    return number


def check_level(level: float) -> None:
    """Refuse a level of intervals that is not one."""
    if not 0 < level < 1:
        raise InputError(f"level={level!r} must lie strictly between 0 and 1; use 0.9 for a 90 % interval.")


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return an argument that is one of the allowed strings, or refuse it."""
    # The type first: an array would compare itself with each of the strings.
    if type(value) is not str or value not in allowed:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(allowed)}.")
    return value


def flag(name: str, value: Any) -> bool:
    """Return an argument as a bool, or refuse it."""
    if type(value) not in (bool, np.bool_):
        raise InputError(f"{name}={value!r} must be True or False.")
    return bool(value)


def layer_widths(hidden: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers, or refuse them."""
    try:
        return tuple(whole_number("hidden", width) for width in hidden)
    except (TypeError, InputError) as error:
        raise InputError(
            f"hidden={hidden!r} must hold whole numbers of at least 1, one for each hidden layer: (16,) for a single "
            "layer."
        ) from error


def flat_times(times: np.ndarray) -> np.ndarray:
    """Return times, or refuse them if they are not a flat list of finite numbers of at least 0."""
    if times.ndim != 1 or len(times) == 0:
        raise InputError(f"times has shape {times.shape}; give one or more times in a flat list.")
    bad = ~np.isfinite(times) | (times < 0)
    if bad.any():
        raise InputError(f"times holds {times[bad][0]:g}; every time must be a finite number of at least 0.")
    return times
