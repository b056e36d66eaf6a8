"""The predictions of an answer, stopped at the deadline of the request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from neuralsurv.prediction.prediction import Prediction
from neuralsurv.service.covariates import outside_training, people_columns
from neuralsurv.service.deadline import Deadline
from neuralsurv.service.model_watch import ReadyModel
from neuralsurv.service.schemas import ALONG_TIMES, PredictRequest
from neuralsurv.service.warm_predictor import WarmPredictor

# What two requests must have in common to be answered together.
_SHARED = ("times", "quantities", "shares", "horizon", "level", "given")

# Panels of an integral beside those between times, and steps of a curve that quantiles are read off.
_PANELS, _STEPS = 64, 200


@dataclass(frozen=True)
class Question:
    """A request that has been read and checked, for a model."""

    ready: ReadyModel
    asked: PredictRequest
    deadline: Deadline
    encoded: np.ndarray  # the people, shape (n, p), with NaN where a value is missing
    outside: list[list[dict[str, Any]]]  # for each person the numbers outside the training range

    @classmethod
    def of(cls, ready: ReadyModel, asked: PredictRequest, deadline: Deadline) -> Question:
        """Return a request with its people encoded."""
        columns = people_columns(asked.people, ready.covariates)
        encoded = ready.predictor.encoding.of_columns(columns)
        return cls(ready, asked, deadline, encoded, outside_training(columns, ready.covariates))

    @property
    def size(self) -> int:
        """About how many numbers are computed for the answer."""
        read_off = any(name not in ALONG_TIMES for name in self.asked.quantities)
        panels = _PANELS + len(self.asked.times) + (_STEPS if read_off else 0)
        return len(self.encoded) * 2 * panels * self.ready.predictor.count

    @property
    def kind(self) -> Any:
        """What is equal for questions that may be answered together.

        Draws of event times depend on the place of a person in the table, so those are answered alone.
        """
        if "event_time" in self.asked.quantities:
            return id(self)
        return id(self.ready), *(_hashable(getattr(self.asked, name)) for name in _SHARED)


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def answer(questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return the answers to questions of one kind: texts, arrays and numbers, of which those not finite mean null.

    Between blocks of people it stops if no question has any time left.
    """
    ready, asked = questions[0].ready, questions[0].asked
    names = list(dict.fromkeys(asked.quantities))
    predictor = ready.predictor if len(names) == 1 else ready.predictor.for_one_answer()
    encoded = np.concatenate([question.encoded for question in questions])
    people: list[dict[str, Any]] = [{} for _ in encoded]
    last = predictor.time_scale
    horizon = last if asked.horizon is None else asked.horizon
    for name in names:
        _check(questions)
        found = _predict(predictor, encoded, asked, horizon, name)
        summaries = _summaries(replace(found, blocks=_until(found, questions)), asked.level)
        for row, person in enumerate(people):
            person[name] = {key: values[row] for key, values in summaries.items()}
    filled = predictor.encoding.filled(encoded)
    outside = [one for question in questions for one in question.outside]
    for row, person in enumerate(people):
        person["outside_training"] = outside[row]
        person["filled_in"] = list(filled[row]) if filled else []
    shared = {
        "model": ready.fingerprint,
        "level": asked.level,
        "times": asked.times,
        "extrapolated": [time > last for time in asked.times],
        "shares": asked.shares if "quantile" in asked.quantities else [],
        "horizon": horizon if "rmst" in asked.quantities else None,
        "given": asked.given,
    }
    rows = iter(people)
    return [{**shared, "people": [next(rows) for _ in question.encoded]} for question in questions]


def _predict(
    predictor: WarmPredictor, encoded: np.ndarray, asked: PredictRequest, horizon: float, name: str
) -> Prediction:
    if name == "survival" and asked.given is not None:
        return predictor.conditional_survival(encoded, asked.times, asked.given)
    more: dict[str, tuple[Any, ...]] = {"quantile": (asked.shares,), "rmst": (horizon,), "event_time": ()}
    found: Prediction = getattr(predictor, name)(encoded, *more.get(name, (asked.times,)))
    return found


def _check(questions: Sequence[Question]) -> None:
    max((question.deadline for question in questions), key=lambda deadline: deadline.end).check()


def _until(prediction: Prediction, questions: Sequence[Question]) -> Any:
    def blocks() -> Iterator[np.ndarray]:
        for block in prediction.blocks():
            yield block
            _check(questions)

    return blocks


def _summaries(prediction: Prediction, level: float) -> dict[str, np.ndarray]:
    """Return mean, median, both ends and the share of draws that are infinite: a number or a row for each person."""
    tables = prediction.arrays(level)
    if not prediction.name.startswith("event time"):
        del tables["unreached"]
    return tables if prediction.columns is not None else {name: values[:, 0] for name, values in tables.items()}
