"""A predictor that is shared by all requests, and keeps what they have in common."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neuralsurv.posterior.gaussian import Draws
from neuralsurv.posterior.on_times import OnTimes
from neuralsurv.prediction.predictor import Predictor

# Draws are kept between requests up to this many numbers (512 MiB): drawing again is most of a small prediction.
_HOLD_NUMBERS = 2**26
# Draws at the nodes of times are kept up to this many numbers (64 MiB), those of a usual request are a megabyte.
_HOLD_ON_TIMES = 2**23
# Curves of up to this many numbers (32 MiB) are kept while one question is answered.
_REMEMBER_NUMBERS = 2**22


class TimesAskedFor:
    """Draws at the nodes of the times that were asked for last, for threads that share them."""

    def __init__(self, most: int = _HOLD_ON_TIMES) -> None:
        self._most = most
        self._kept: OrderedDict[bytes, OnTimes] = OrderedDict()
        self._lock = Lock()

    def at(self, scaled: Tensor, make: Callable[[], OnTimes | None]) -> OnTimes | None:
        """Return those of some times, made if they are not there."""
        key = scaled.numpy().tobytes()
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = make()
        if made is not None and made.numbers <= self._most:
            with self._lock:
                self._kept[key] = made
                while sum(one.numbers for one in self._kept.values()) > self._most:
                    self._kept.popitem(last=False)
        return made


@dataclass(frozen=True)
class WarmPredictor(Predictor):
    """Predicts for people who are encoded already; draws are kept, also at the times that were asked for last.

    Quantiles, restricted means and event times are read off the same curves, so that one for a single answer keeps
    its last curves.
    """

    times: TimesAskedFor = field(default_factory=TimesAskedFor)
    curves: list[tuple[Tensor, Tensor, Tensor]] | None = None

    @classmethod
    def of(cls, predictor: Predictor) -> WarmPredictor:
        """Return one that predicts the same."""
        given = {item.name: getattr(predictor, item.name) for item in fields(predictor)}
        if predictor.count * predictor.posterior.network.size <= _HOLD_NUMBERS:
            given["cached_draws"] = predictor.draws()
        return cls(**given)

    @cached_property
    def keeps_times(self) -> bool:
        """Whether there is anything to keep for times, so that a person takes little work."""
        draws = self.cached_draws
        return draws is not None and self.on_times(draws, torch.ones(1, dtype=torch.float64)) is not None

    def for_one_answer(self) -> WarmPredictor:
        """Return one that keeps its last curves."""
        return replace(self, curves=[])

    def encode(self, X: Any) -> Tensor:
        """Return encoded people, shape (n, p), as they are."""
        return torch.from_numpy(X)

    def labels(self, X: Any) -> pd.Index:
        """Return the places of people."""
        return pd.RangeIndex(len(X))

    def on_times(self, draws: Draws, scaled: Tensor) -> OnTimes | None:
        """Return what the cumulative hazards of all people at these times share, kept if the draws are."""
        if draws is not self.cached_draws:
            return super().on_times(draws, scaled)
        return self.times.at(scaled, lambda: super(WarmPredictor, self).on_times(draws, scaled))

    def cumulative(self, draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
        """Cumulative hazard of a block, shape (S, n, T)."""
        if self.curves is None:
            return super().cumulative(draws, scaled, x)
        for times, rows, curves in self.curves:
            if torch.equal(times, scaled) and np.array_equal(rows.numpy(), x.numpy(), equal_nan=True):
                return curves.clone()
        found = super().cumulative(draws, scaled, x)
        self.curves[:] = []
        if found.numel() <= _REMEMBER_NUMBERS:
            # Who gets the curves may change them in place.
            self.curves.append((scaled, x, found.clone()))
        return found
