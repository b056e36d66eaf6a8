"""Checks of numbers that a user passes as arguments."""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from operator import index
from typing import Any

from neuralsurv.errors import InputError


def whole_number(name: str, value: Any, least: int = 1) -> int:
    """Return an argument as an int, or refuse it.

    Parameters
    ----------
    name : str
        Name of the argument.
    value : object
        What was given.
    least : int
        The smallest number that is accepted.

    Examples
    --------
    >>> from neuralsurv.arguments import whole_number
    >>> whole_number("bins", 10, least=2)
    10
    """
    try:
        number = index(value)
    except TypeError:
        number = least - 1
    if number < least:
        raise InputError(f"{name}={value!r} must be a whole number of at least {least}.")
    return number


def real_number(name: str, value: Any, allowed: Callable[[float], bool], words: str) -> float:
    """Return an argument as a float, or refuse it.

    Parameters
    ----------
    name : str
        Name of the argument.
    value : object
        What was given.
    allowed : callable
        Whether a number is accepted.
    words : str
        What is accepted, to follow "must be".
    """
    if not isinstance(value, Real) or not allowed(float(value)):
        raise InputError(f"{name}={value!r} must be {words}.")
    return float(value)
