"""How often each time occurs, in bounded memory.

Up to 131,072 different times are kept as they are. If there are more, all of them are rounded to 16 binary digits (a
relative 8e-6), so that even times over ten powers of two take at most some megabytes. Whether they are rounded, and
what to, depends on the times alone and not on their order, so counts of parts of the rows can be added up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from neuralsurv.data.canonical import coarse

_MOST_EXACT = 2**17
_DIGITS = 16


@dataclass(frozen=True)
class TimeCounts:
    """Weights of times."""

    time: np.ndarray  # different times, increasing, shape (k,)
    weight: np.ndarray  # weight of each, shape (k,)
    rounded: bool = False  # whether the times have been rounded

    @classmethod
    def of(cls, time: np.ndarray, weight: np.ndarray) -> TimeCounts:
        """Count times."""
        return _limited(*_counted(time, weight), rounded=False)

    def __add__(self, other: TimeCounts) -> TimeCounts:
        """Return the counts of both."""
        rounded = self.rounded or other.rounded
        time, weight = np.concatenate([self.time, other.time]), np.concatenate([self.weight, other.weight])
        return _limited(*_counted(coarse(time, _DIGITS) if rounded else time, weight), rounded=rounded)

    def up_to(self, time: np.ndarray) -> np.ndarray:
        """Return the weight of all times that are not after each of the given ones."""
        cumulative = np.concatenate([[0.0], np.cumsum(self.weight)])
        at = coarse(time, _DIGITS) if self.rounded else time
        return np.asarray(cumulative[np.searchsorted(self.time, at, side="right")])

    def quantiles(self, shares: Sequence[float]) -> np.ndarray:
        """Return, for each share, the first time up to which at least that share of the weight lies."""
        cumulative = np.cumsum(self.weight)
        # A sum that rounding puts just below a share reaches it.
        wanted = np.asarray(shares) * cumulative[-1] * (1 - 1e-12)
        return np.asarray(self.time[np.searchsorted(cumulative, wanted)])


def _counted(time: np.ndarray, weight: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    distinct, which = np.unique(time, return_inverse=True)
    return distinct, np.bincount(which.reshape(-1), weights=weight, minlength=len(distinct)).astype(np.float64)


def _limited(time: np.ndarray, weight: np.ndarray, *, rounded: bool) -> TimeCounts:
    if rounded or len(time) <= _MOST_EXACT:
        return TimeCounts(time, weight, rounded)
    return TimeCounts(*_counted(coarse(time, _DIGITS), weight), rounded=True)
