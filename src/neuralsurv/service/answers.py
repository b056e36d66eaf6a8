"""Predictions as plain numbers for an answer, stopped when the time of a request is over."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from neuralsurv.errors import OutOfTimeError
from neuralsurv.posterior.gaussian import Draws
from neuralsurv.prediction.prediction import Prediction
from neuralsurv.prediction.predictor import Predictor
from neuralsurv.service.covariates import outside_training, people_table
from neuralsurv.service.model_watch import ReadyModel
from neuralsurv.service.schemas import PredictRequest

# Curves of up to this many numbers (32 MiB) are kept while one question is answered.
_REMEMBER_NUMBERS = 2**22


@dataclass
class Deadline:
    """The time at which work for a request stops, by the clock of :func:`time.monotonic`."""

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline a number of seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(0.0, self.end - time.monotonic())

    def give_up(self) -> None:
        """Let it pass now: the client has gone, or has had another answer."""
        self.end = -math.inf

    def check(self) -> None:
        """Raise an error if it has passed."""
        if time.monotonic() > self.end:
            raise OutOfTimeError("the prediction took longer than allowed; ask for fewer people, times or quantities.")


@dataclass(frozen=True)
class CachingPredictor(Predictor):
    """A predictor for one question that keeps its last curves.

    Quantiles, restricted means and event times are read off the same curves, and these are most of the work.
    """

    memory: list[tuple[Tensor, Tensor, Tensor]] = field(default_factory=list)

    @classmethod
    def of(cls, predictor: Predictor) -> CachingPredictor:
        """Return one that predicts the same."""
        return cls(**{item.name: getattr(predictor, item.name) for item in fields(predictor)})

    def cumulative(self, draws: Draws, scaled: Tensor, x: Tensor) -> Tensor:
        """Cumulative hazard of a block, shape (S, n, T)."""
        for times, rows, curves in self.memory:
            if torch.equal(times, scaled) and np.array_equal(rows.numpy(), x.numpy(), equal_nan=True):
                return curves.clone()
        found = super().cumulative(draws, scaled, x)
        self.memory[:] = []
        if found.numel() <= _REMEMBER_NUMBERS:
            # Who gets the curves may change them in place.
            self.memory.append((scaled, x, found.clone()))
        return found


def answer(ready: ReadyModel, asked: PredictRequest, deadline: Deadline) -> dict[str, Any]:
    """Return the answer as plain data: lists, texts and finite numbers; what is infinite is None.

    The deadline is checked between blocks of people.
    """
    table = people_table(asked.people, ready.covariates)
    people: list[dict[str, Any]] = [{} for _ in range(len(table))]
    predictor = CachingPredictor.of(ready.predictor)
    last = predictor.time_scale
    horizon = last if asked.horizon is None else asked.horizon
    for name in dict.fromkeys(asked.quantities):
        deadline.check()
        found = _predict(predictor, table, asked, horizon, name)
        summaries = _summaries(replace(found, blocks=_until(found, deadline)), asked.level)
        for row, person in enumerate(people):
            person[name] = {key: values[row] for key, values in summaries.items()}
    filled = predictor.encoding.filled(predictor.encode(table).numpy())
    for row, outside in enumerate(outside_training(table, ready.covariates)):
        people[row]["outside_training"] = outside
        people[row]["filled_in"] = list(filled[row]) if filled else []
    return {
        "model": ready.fingerprint,
        "level": asked.level,
        "times": asked.times,
        "extrapolated": [time > last for time in asked.times],
        "shares": asked.shares if "quantile" in asked.quantities else [],
        "horizon": horizon if "rmst" in asked.quantities else None,
        "given": asked.given,
        "people": people,
    }


def _predict(
    predictor: Predictor, people: pd.DataFrame, asked: PredictRequest, horizon: float, name: str
) -> Prediction:
    if name == "survival" and asked.given is not None:
        return predictor.conditional_survival(people, asked.times, asked.given)
    more: dict[str, tuple[Any, ...]] = {"quantile": (asked.shares,), "rmst": (horizon,), "event_time": ()}
    found: Prediction = getattr(predictor, name)(people, *more.get(name, (asked.times,)))
    return found


def _until(prediction: Prediction, deadline: Deadline) -> Any:
    def blocks() -> Iterator[np.ndarray]:
        for block in prediction.blocks():
            yield block
            deadline.check()

    return blocks


def _summaries(prediction: Prediction, level: float) -> dict[str, list[Any]]:
    """Return mean, median, both ends and the share of draws that are infinite: a number or a list for each person."""
    tables = {}
    for name, values in prediction.arrays(level).items():
        if name == "unreached" and not prediction.name.startswith("event time"):
            continue
        plain = values.astype(object)
        plain[~np.isfinite(values)] = None
        tables[name] = plain.tolist() if prediction.columns is not None else plain[:, 0].tolist()
    return tables
