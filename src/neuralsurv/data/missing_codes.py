"""Numbers that look like codes for missing values, such as 999 or -9."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

# 9, 99, -9, 999 …; 88 and 77 are its usual companions.
_CODE = re.compile(r"-?(9{1,6}|8{2,6}|7{2,6})$")
_FEWEST_ROWS = 10


@dataclass(frozen=True)
class MissingCode:
    """A value of a column that may stand for a missing one."""

    column: str
    code: float
    count: int  # rows that hold it
    # Range of the other values.
    low: float
    high: float

    def sentence(self, repair: str) -> str:
        """Return what was found, and what to do about it."""
        return (
            f"column {self.column!r} holds {self.code:g} in {self.count} rows, and {self.low:g} to {self.high:g} in "
            f"the others; if {self.code:g} stands for a missing value, {repair}."
        )

    @property
    def python(self) -> str:
        """The line of Python that makes it a missing value."""
        return f"df[{self.column!r}] = df[{self.column!r}].replace({self.code:g}, float('nan'))"


def missing_codes(values: pd.Series) -> list[MissingCode]:
    """Return the values of a column that look like codes.

    A code must be repeated, be the largest or smallest value, and lie farther from the other values than these from
    each other (or be the only negative one).

    Examples
    --------
    >>> import pandas as pd
    >>> from neuralsurv.data.missing_codes import missing_codes
    >>> ages = pd.Series([41, 52, 63, 74, 58, 66, 71, 49, 999, 999], name="age")
    >>> [(found.code, found.count) for found in missing_codes(ages)]
    [(999.0, 2)]
    """
    if not pd.api.types.is_numeric_dtype(values.dtype) or pd.api.types.is_bool_dtype(values.dtype):
        return []
    numbers = values.dropna().to_numpy(dtype=np.float64)
    if len(numbers) < _FEWEST_ROWS:
        return []
    distinct, counts = np.unique(numbers, return_counts=True)
    like_code = np.array([_CODE.match(f"{value:.17g}") is not None for value in distinct])
    others = distinct[~like_code]
    if not like_code.any() or len(others) < 2:
        return []
    low, high = float(others[0]), float(others[-1])
    return [
        MissingCode(str(values.name), float(code), int(count), low, high)
        for code, count in zip(distinct[like_code], counts[like_code], strict=True)
        if count > 1 and (max(code - high, low - code) > high - low or code < 0 <= low)
    ]
