"""A cohort as tensors, the input of every fit, and its canonical form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

# Numbers are kept to this many binary digits (a relative 1.5e-11): enough for any data, and coarse enough that the
# rounding of another unit of time or another order of summation does not show.
_DIGITS = 36


@dataclass(frozen=True, eq=False)
class Cohort:
    """Rows under observation, in scaled time."""

    time: Tensor  # end of observation over the largest training time, shape (N,)
    event: Tensor  # bool, whether it ends with the event, shape (N,)
    entry: Tensor  # shape (N,): start of observation, on the same scale; 0 without left truncation
    weight: Tensor  # shape (N,)
    x: Tensor  # encoded covariates, shape (N, d)
    cause: Tensor | None = None  # the number of the cause of each event, 0 without one, shape (N,); None with one cause

    @classmethod
    def of(cls, time: Any, event: Any, entry: Any, weight: Any, x: Any, cause: Any = None) -> Cohort:
        """Copy arrays into a cohort, in double precision."""
        time, entry, weight, x = (
            torch.as_tensor(part, dtype=torch.float64).clone() for part in (time, entry, weight, x)
        )
        cause = None if cause is None else torch.as_tensor(cause, dtype=torch.long).clone()
        return cls(time, torch.as_tensor(event, dtype=torch.bool).clone(), entry, weight, x, cause)

    def __len__(self) -> int:
        """Return the number of rows N."""
        return len(self.time)

    def take(self, rows: Tensor | slice) -> Cohort:
        """Return some of the rows."""
        cause = None if self.cause is None else self.cause[rows]
        return Cohort(self.time[rows], self.event[rows], self.entry[rows], self.weight[rows], self.x[rows], cause)

    @property
    def covariates(self) -> int:
        """Number of encoded covariates d."""
        return self.x.shape[1]

    @property
    def event_time(self) -> Tensor:
        """Times of the events, shape (D,)."""
        return self.time[self.event]

    @property
    def event_weight(self) -> Tensor:
        """Row weights of the events, shape (D,)."""
        return self.weight[self.event]

    @property
    def cause_weights(self) -> Tensor:
        """Weight of the events of each cause, shape (K,)."""
        if self.cause is None:
            return self.event_weight.sum()[None]
        return torch.bincount(self.cause[self.event], self.event_weight)

    @property
    def exposure(self) -> float:
        """Weighted time at risk."""
        return float((self.weight * (self.time - self.entry)).sum())


def coarse(values: np.ndarray, digits: int = _DIGITS) -> np.ndarray:
    """Return values rounded to a number of binary digits; by default to about eleven decimal ones."""
    fraction, exponent = np.frexp(values)
    return np.asarray(np.ldexp(np.round(np.ldexp(fraction, digits)), exponent - digits))


def canonical_cohort(cohort: Cohort) -> Cohort:
    """Return the canonical form of a cohort: rounded, merged, joined and sorted.

    The likelihood does not change when rows are reordered, when a row of weight 2 is written twice, when a row is cut
    in two at an inner time, or when time is counted in another unit. A search that starts from these rows should not
    change either, and for a network with kinks a difference in the last bit is enough to send it elsewhere.
    """
    time, entry = cohort.time.numpy(), cohort.entry.numpy()
    # Two close ends may meet when rounded; such a row would have no time at risk.
    apart = coarse(entry) < coarse(time)
    time, entry = np.where(apart, coarse(time), time), np.where(apart, coarse(entry), entry)
    return _merge(_join(_merge(replace(cohort, time=torch.from_numpy(time), entry=torch.from_numpy(entry)))))


def _merge(cohort: Cohort) -> Cohort:
    """Sort the rows, and merge those that are equal except for their weight."""
    causes = [] if cohort.cause is None else [cohort.cause]
    same = np.column_stack([cohort.x, *causes, cohort.event, cohort.entry, cohort.time])
    # The last key counts most; the weight, first, only orders rows that are equal otherwise.
    order = np.lexsort(np.column_stack([cohort.weight, same]).T)
    cohort, same = cohort.take(torch.from_numpy(order)), same[order]
    starts = np.flatnonzero(np.concatenate([[True], (same[1:] != same[:-1]).any(axis=1)]))
    merged = cohort.take(torch.from_numpy(starts))
    return replace(merged, weight=torch.from_numpy(np.add.reduceat(cohort.weight.numpy(), starts)))


def _join(cohort: Cohort) -> Cohort:
    """Join a piece without event to the piece that continues it, with the same covariates and weight."""
    if not bool((cohort.entry > 0).any()):
        return cohort
    alike = np.unique(np.column_stack([cohort.x, cohort.weight]), axis=0, return_inverse=True)[1].reshape(-1)
    entry, time, event = cohort.entry.numpy(), cohort.time.numpy().copy(), cohort.event.numpy().copy()
    cause = np.zeros(len(time), dtype=np.int64) if cohort.cause is None else cohort.cause.numpy().copy()
    waiting: dict[tuple[int, float], list[int]] = {}
    for row in range(len(time)):
        waiting.setdefault((int(alike[row]), float(entry[row])), []).append(row)
    gone = np.zeros(len(time), dtype=bool)
    for row in np.argsort(entry, kind="stable"):
        while not gone[row] and not event[row]:
            following = waiting.get((int(alike[row]), float(time[row])))
            if not following:
                break
            piece = following.pop()
            time[row], event[row], cause[row] = time[piece], event[piece], cause[piece]
            gone[piece] = True
    joined = replace(cohort, time=torch.from_numpy(time), event=torch.from_numpy(event))
    if cohort.cause is not None:
        joined = replace(joined, cause=torch.from_numpy(cause))
    return joined.take(torch.from_numpy(~gone))
