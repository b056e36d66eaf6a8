"""Numbers written with a decimal comma, which a table holds as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_NUMBER = re.compile(r"\s*[+-]?(\d+,\d+|\d+|,\d+)([eE][+-]?\d+)?\s*$")
# The share of the values that must be numbers: the others may stand for missing ones.
_NEARLY_ALL = 0.9
_MOST_LOOKED_AT = 10_000


def is_comma_number(value: object) -> bool:
    """Return whether a value is text of a number, whole or with a decimal comma."""
    return isinstance(value, str) and _NUMBER.match(value) is not None


def decimal_comma(values: Iterable[object], share: float | None = None) -> str | None:
    """Return an example if nearly all values are text of numbers with a decimal comma, else None.

    `share` is how many are numbers; it is counted if not given.
    """
    looked_at = list(islice(values, _MOST_LOOKED_AT))
    numbers = [value for value in looked_at if is_comma_number(value)]
    example = next((str(value) for value in numbers if "," in str(value)), None)
    if share is None:
        share = len(numbers) / max(1, len(looked_at))
    return example if share >= _NEARLY_ALL else None
