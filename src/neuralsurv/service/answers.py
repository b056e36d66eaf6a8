"""From a question to an answer: predictions in plain numbers, given up when their time is over."""

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
from neuralsurv.service.model_watch import ReadyModel
from neuralsurv.service.people_table import outside_training

ALONG_TIMES = ("survival", "hazard", "cumulative_hazard")
# Curves of up to this many numbers (32 MiB) are kept while one question is answered.
_REMEMBER_NUMBERS = 2**22
QUANTITIES = (*ALONG_TIMES, "quantile", "rmst", "event_time")


@dataclass
class Deadline:
    """A moment after which nobody waits any more, by the clock of :func:`time.monotonic`."""

    end: float

    @classmethod
    def after(cls, seconds: float) -> Deadline:
        """Return the deadline so many seconds from now."""
        return cls(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds that are left, 0 or more."""
        return max(0.0, self.end - time.monotonic())

    def give_up(self) -> None:
        """Let it pass now: whoever asked has gone, or is told something else."""
        self.end = -math.inf

    def check(self) -> None:
        """Give up if it has passed."""
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


@dataclass(frozen=True)
class Question:
    """What is asked of a model, with all choices made.

    Attributes
    ----------
    people : DataFrame of n rows
        The people.
    times : tuple of float
        Times, for the quantities along times.
    quantities : tuple of str
        Some of ``QUANTITIES``.
    shares : tuple of float
        Shares of people for ``quantile``.
    horizon : float
        Horizon of ``rmst``.
    level : float
        Level of the intervals.
    given : float, optional
        Time that people have reached, for ``survival``.
    """

    people: pd.DataFrame
    times: tuple[float, ...]
    quantities: tuple[str, ...]
    shares: tuple[float, ...]
    horizon: float
    level: float
    given: float | None = None


def answer(ready: ReadyModel, question: Question, deadline: Deadline) -> dict[str, Any]:
    """Return the answer as plain data: lists, texts and finite numbers; what is infinite is None.

    Parameters
    ----------
    ready : ReadyModel
        The model.
    question : Question
        What is asked.
    deadline : Deadline
        When to give up; it is looked at between blocks of people.
    """
    people: list[dict[str, Any]] = [{} for _ in range(len(question.people))]
    predictor = CachingPredictor.of(ready.predictor)
    for name in question.quantities:
        deadline.check()
        found = _predict(predictor, question, name)
        tables = _summaries(replace(found, blocks=_watched(found, deadline)), question.level)
        for row, person in enumerate(people):
            person[name] = {key: table[row] for key, table in tables.items()}
    filled = ready.predictor.encoding.filled(ready.predictor.encode(question.people).numpy())
    for row, outside in enumerate(outside_training(question.people, ready.covariates)):
        people[row]["outside_training"] = outside
        people[row]["filled_in"] = list(filled[row]) if filled else []
    last = ready.predictor.time_scale
    return {
        "model": ready.fingerprint,
        "level": question.level,
        "times": list(question.times),
        "extrapolated": [time > last for time in question.times],
        "shares": list(question.shares) if "quantile" in question.quantities else [],
        "horizon": question.horizon if "rmst" in question.quantities else None,
        "given": question.given,
        "people": people,
    }


def _predict(predictor: Predictor, question: Question, name: str) -> Prediction:
    people = question.people
    if name == "survival" and question.given is not None:
        return predictor.conditional_survival(people, question.times, question.given)
    if name in ALONG_TIMES:
        along: Prediction = getattr(predictor, name)(people, question.times)
        return along
    if name == "quantile":
        return predictor.quantile(people, list(question.shares))
    if name == "rmst":
        return predictor.rmst(people, question.horizon)
    return predictor.event_time(people)


def _watched(prediction: Prediction, deadline: Deadline) -> Any:
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
