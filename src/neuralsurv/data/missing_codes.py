"""Numbers that look like codes for missing values, such as 999 or -9."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.data.row_values import is_number
from neuralsurv.errors import MissingCodeWarning

# 9, 99, 999 …, and below zero; 88 and 77 are its usual companions.
_POSITIVE = [float(digit * length) for digit, least in (("9", 1), ("8", 2), ("7", 2)) for length in range(least, 7)]
_CODES = np.array(sorted([*_POSITIVE, *(-code for code in _POSITIVE)]))
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


@dataclass(frozen=True)
class CodeCounts:
    """What decides whether a column of numbers holds codes; it can be added up over parts of the rows."""

    rows: int = 0  # rows that have a number
    counts: tuple[tuple[float, int], ...] = ()  # the at most 32 numbers that could be codes, in order; rows with each
    # Range of the other numbers.
    low: float = np.inf
    high: float = -np.inf

    @classmethod
    def of(cls, values: pd.Series) -> CodeCounts:
        """Look at the values of some rows; in a column that is not of numbers, there is nothing to count."""
        if not is_number(values):
            return cls()
        numbers = values.dropna().to_numpy(dtype=np.float64)
        place = np.minimum(np.searchsorted(_CODES, numbers), len(_CODES) - 1)
        like_code = _CODES[place] == numbers
        found, rows = np.unique(numbers[like_code], return_counts=True)
        counts = tuple(zip(found.tolist(), rows.tolist(), strict=True))
        others = numbers[~like_code]
        if len(others) == 0:
            return cls(len(numbers), counts)
        return cls(len(numbers), counts, float(others.min()), float(others.max()))

    def __add__(self, other: CodeCounts) -> CodeCounts:
        """Return the counts of both parts."""
        counts = Counter(dict(self.counts)) + Counter(dict(other.counts))
        ends = min(self.low, other.low), max(self.high, other.high)
        return CodeCounts(self.rows + other.rows, tuple(sorted(counts.items())), *ends)

    def codes(self, column: str) -> list[MissingCode]:
        """Return the values that look like codes; see :func:`missing_codes`."""
        if self.rows < _FEWEST_ROWS or not self.low < self.high:
            return []
        return [
            MissingCode(column, code, count, self.low, self.high)
            for code, count in self.counts
            if count > 1 and (max(code - self.high, self.low - code) > self.high - self.low or code < 0 <= self.low)
        ]


def missing_codes(values: pd.Series) -> list[MissingCode]:
    """Return the values of a column that look like codes.

    A code must be repeated, be the largest or smallest value, and lie farther from the other values than these from
    each other (or be the only negative one).
    """
    return CodeCounts.of(values).codes(str(values.name))


def warn_of_codes(found: Iterable[MissingCode], *, stacklevel: int) -> None:
    """Warn of codes with the line of Python that makes each a missing value; `stacklevel` counts from the caller."""
    for code in found:
        warnings.warn(code.sentence(f"write it as one: {code.python}"), MissingCodeWarning, stacklevel=stacklevel + 1)
