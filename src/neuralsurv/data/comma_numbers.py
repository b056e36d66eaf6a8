"""Numbers written with a decimal comma, which a table holds as text."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

_NUMBER = re.compile(r"\s*[+-]?(\d+,\d+|\d+|,\d+)([eE][+-]?\d+)?\s*$")
# The share of the values that must be numbers: the others may stand for missing ones.
_NEARLY_ALL = 0.9
_MOST_LOOKED_AT = 10_000


def decimal_comma(values: Iterable[object]) -> str | None:
    """Return an example if nearly all values are text of numbers with a decimal comma, else None."""
    looked_at = list(islice(values, _MOST_LOOKED_AT))
    numbers = [value for value in looked_at if isinstance(value, str) and _NUMBER.match(value)]
    example = next((value for value in numbers if "," in value), None)
    return example if example is not None and len(numbers) >= _NEARLY_ALL * len(looked_at) else None
