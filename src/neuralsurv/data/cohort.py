"""A cohort as tensors, the input of every fit."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Cohort:
    """Rows under observation, in scaled time."""

    time: Tensor  # end of observation over the largest training time, shape (N,)
    event: Tensor  # bool, whether it ends with the event, shape (N,)
    entry: Tensor  # shape (N,): start of observation, on the same scale; 0 without left truncation
    weight: Tensor  # shape (N,)
    x: Tensor  # encoded covariates, shape (N, d)

    @classmethod
    def of(cls, time: Any, event: Any, entry: Any, weight: Any, x: Any) -> Cohort:
        """Copy arrays into a cohort, in double precision."""
        time, entry, weight, x = (
            torch.as_tensor(part, dtype=torch.float64).clone() for part in (time, entry, weight, x)
        )
        return cls(time, torch.as_tensor(event, dtype=torch.bool).clone(), entry, weight, x)

    def __len__(self) -> int:
        """Return the number of rows N."""
        return len(self.time)

    def take(self, rows: Tensor | slice) -> Cohort:
        """Return some of the rows."""
        return Cohort(*(getattr(self, field.name)[rows] for field in fields(self)))

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
    def exposure(self) -> float:
        """Weighted time at risk."""
        return float((self.weight * (self.time - self.entry)).sum())
