"""The OpenAPI document of the loaded model, with its covariates and examples."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from neuralsurv.service.covariates import Covariate
from neuralsurv.service.model_watch import ReadyModel
from neuralsurv.service.request_parsing import FARTHEST, Limits
from neuralsurv.service.schemas import PredictRequest, ProblemDocument

_DESCRIPTION = (
    "Predictions of one survival model, with bands. All times are in the unit of the training data. What is infinite, "
    "because a curve does not come that far within the training range, is null."
)
# What ``/predict`` takes; the service reads it itself, so FastAPI does not know.
REQUEST_BODY = {
    "required": True,
    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/PredictRequest"}}},
}


def openapi_document(app: FastAPI, ready: ReadyModel, limits: Limits, *, token: bool) -> dict[str, Any]:
    """Return the document for the model that is loaded; `token` says whether the service asks for one."""
    document = get_openapi(title="neuralsurv", version=app.version, description=_DESCRIPTION, routes=app.routes)
    schemas = document.setdefault("components", {}).setdefault("schemas", {})
    for model in (ProblemDocument, PredictRequest):
        schemas[model.__name__] = model.model_json_schema(ref_template="#/components/schemas/{model}")
    schemas["Person"] = person_schema(ready.covariates)
    fields, farthest = schemas["PredictRequest"]["properties"], FARTHEST * ready.predictor.time_scale
    fields["people"].update(items={"$ref": "#/components/schemas/Person"}, maxItems=limits.people)
    fields["times"]["maxItems"] = limits.times
    for kind in (fields["times"]["items"], *fields["horizon"]["anyOf"], *fields["given"]["anyOf"]):
        if kind["type"] == "number":
            kind["maximum"] = farthest
    predict = document["paths"]["/predict"]["post"]
    predict["requestBody"]["content"]["application/json"]["examples"] = examples(ready)
    if token:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        document["security"] = [{"token": []}]
        document["paths"]["/health"]["get"]["security"] = []
    return document


def person_schema(covariates: tuple[Covariate, ...]) -> dict[str, Any]:
    """Return the JSON schema of a person: a value for every covariate."""
    properties = {}
    for covariate in covariates:
        column = covariate.column
        entry: dict[str, Any] = {"type": ["number", "null"]}
        if column.kind == "category":
            kind = "boolean" if covariate.is_flag else "string"
            entry = {"type": [kind, "null"], "enum": [*covariate.levels, None]}
        elif column.low is not None:
            entry["description"] = f"{column.low:g} to {column.high:g} in training"
        properties[column.name] = entry
    needed = [covariate.column.name for covariate in covariates if not covariate.column.has_missing]
    person: dict[str, Any] = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**person, "required": needed} if needed else person


def examples(ready: ReadyModel) -> dict[str, Any]:
    """Return requests that the loaded model answers."""
    person = ready.typical_person()
    last = ready.predictor.time_scale
    times = [float(f"{last * share:.2g}") for share in (0.25, 0.5)]
    return {
        "survival": {"summary": "survival of one person", "value": {"people": [person], "times": times}},
        "all": {
            "summary": "every quantity, with 80 % intervals",
            "value": {
                "people": [person],
                "times": times,
                "quantities": ["survival", "hazard", "cumulative_hazard", "quantile", "rmst", "event_time"],
                "shares": [0.25, 0.5],
                "horizon": times[1],
                "level": 0.8,
            },
        },
    }
