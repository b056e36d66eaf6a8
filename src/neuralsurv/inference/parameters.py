"""Checks of parameters, with messages that name the parameter and say what it may be."""

from __future__ import annotations

import math
from operator import index
from typing import Any

import numpy as np

from neuralsurv.errors import InputError


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return a text that is one of some."""
    # A list or an array is not hashable, so that `in` is asked of a tuple of texts.
    if type(value) is not str or value not in allowed:
        raise InputError(f"{name}={value!r} is not known; use one of {', '.join(allowed)}.")
    return value


def positive(name: str, value: Any) -> float:
    """Return a positive and finite number."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InputError(f"{name}={value!r} must be a positive number.")
    return number


def whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least `least`."""
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    return number


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    if type(value) not in (bool, np.bool_):
        raise InputError(f"{name}={value!r} must be True or False.")
    return bool(value)


def widths(hidden: Any) -> tuple[int, ...]:
    """Return the widths of hidden layers."""
    try:
        return tuple(whole("hidden", width) for width in hidden)
    except (TypeError, InputError) as error:
        raise InputError(
            f"hidden={hidden!r} must hold whole numbers of at least 1, one for each hidden layer: (16,) for a single "
            "layer."
        ) from error
