"""Requests, answers and errors, as the OpenAPI document describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, FailFast, Field
from starlette.responses import Response

ALONG_TIMES = ("survival", "hazard", "cumulative_hazard")
Quantity = Literal["survival", "hazard", "cumulative_hazard", "quantile", "rmst", "event_time"]
Time = Annotated[float, Field(ge=0, allow_inf_nan=False, description="In the unit of the training data.")]
Share = Annotated[float, Field(gt=0, lt=1)]


class PredictRequest(BaseModel):
    """A request for predictions."""

    model_config = ConfigDict(extra="forbid", strict=True)

    # The first person who cannot be read is enough: a list of all errors would not help.
    people: Annotated[list[dict[str, int | float | str | bool | None]], FailFast()] = Field(
        min_length=1, description="One object for each person: a value for every covariate, null where it is missing."
    )
    times: list[Time] = Field(
        default_factory=list, description="Times for survival, hazard and cumulative_hazard, in any order."
    )
    quantities: list[Quantity] = Field(
        default=["survival"],
        min_length=1,
        max_length=6,
        description="event_time is a prediction interval for the person's own event time.",
    )
    shares: list[Share] = Field(
        default=[0.5],
        min_length=1,
        max_length=20,
        description="For quantile: the time by which this share of people like this have had the event.",
    )
    horizon: float | None = Field(
        default=None,
        gt=0,
        allow_inf_nan=False,
        description="Where rmst, the restricted mean survival time, ends; the last training time if not given.",
    )
    level: float = Field(default=0.9, gt=0, lt=1, description="Level of all intervals.")
    given: float | None = Field(
        default=None, ge=0, allow_inf_nan=False, description="Time that people have reached; changes survival only."
    )


class Band(BaseModel):
    """A quantity along times."""

    mean: list[float | None]
    median: list[float | None]
    lower: list[float | None]
    upper: list[float | None]


class QuantileBand(Band):
    """A quantity along shares; null is beyond the last training time."""

    unreached: list[float]


class Estimate(BaseModel):
    """A number with its interval."""

    mean: float | None
    median: float | None
    lower: float | None
    upper: float | None


class EventTime(Estimate):
    """The own event time; null is beyond the last training time, as a share `unreached` of the draws is."""

    unreached: float


class Outside(BaseModel):
    """A number outside what the model was trained on."""

    column: str
    side: Literal["below", "above"]
    low: float
    high: float


class PersonAnswer(BaseModel):
    """What was asked about one person."""

    survival: Band | None = None
    hazard: Band | None = None
    cumulative_hazard: Band | None = None
    quantile: QuantileBand | None = None
    rmst: Estimate | None = None
    event_time: EventTime | None = None
    outside_training: list[Outside]
    filled_in: list[str] = Field(description="Covariates without a value, for which each draw took another one.")


class PredictResponse(BaseModel):
    """Answers, in the order of the people."""

    model: str = Field(description="SHA-256 of the model file that answered.")
    level: float
    times: list[float]
    extrapolated: list[bool] = Field(description="Which times lie beyond the last training time.")
    shares: list[float]
    horizon: float | None
    given: float | None
    people: list[PersonAnswer]


class TrainingRange(BaseModel):
    """Smallest and largest value in training."""

    low: float
    high: float


class FeatureDescription(BaseModel):
    """A covariate: what may be sent, and what was seen in training."""

    name: str
    kind: Literal["number", "category"]
    missing_in_training: bool
    typical: float | str | bool
    levels: list[str | bool] | None = None
    training_range: TrainingRange | None = None
    whole: bool | None = None
    mean: float | None = None
    spread: float | None = None


class ModelDescription(BaseModel):
    """The model and its covariates."""

    file: str
    fingerprint: str
    loaded: str
    version: str
    features: list[FeatureDescription]
    last_training_time: float
    hazard_at_zero: bool = Field(description="Whether the hazard at time 0 can be asked for.")
    roles: dict[str, str] = Field(description="Columns of the training table that held the outcome.")
    training: dict[str, float]
    summary: list[dict[str, str]]
    warnings: list[str]
    limits: dict[str, float]


class Health(BaseModel):
    """Whether the service works."""

    status: Literal["ok", "stale"] = Field(
        description="stale: it works, but with an older model, because the model file cannot be used."
    )
    model: str
    loaded: str
    problem: str | None


class ProblemDocument(BaseModel):
    """An error, after RFC 9457."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    column: str | None = Field(default=None, description="The covariate that is wrong.")


def problem(
    status: int, detail: str, *, column: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an error as a client sees it: what is wrong, how many, what to do; never a stack trace."""
    document = ProblemDocument(title=HTTPStatus(status).phrase, status=status, detail=detail, column=column)
    content = json.dumps(document.model_dump(exclude_none=True))
    return Response(content, status, dict(headers or {}), "application/problem+json")


def try_later(detail: str, **headers: str) -> Response:
    """Return an answer that asks the client to come back."""
    return problem(503, detail, headers={"Retry-After": "1", **headers})


def problem_responses(*codes: int) -> dict[int | str, dict[str, Any]]:
    """Return the part of the OpenAPI document on errors."""
    words = {
        400: "the request cannot be read, or is for another host",
        401: "the token is missing or wrong",
        408: "the request took too long to arrive",
        413: "the request is too large",
        415: "the request is not JSON",
        422: "something in the request is wrong; the answer names it",
        503: "too busy, out of time, or stopping; try again later",
    }
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}}
    return {code: {"description": words[code], "content": content} for code in codes}
