"""Requests parsed and checked; their size is checked before their contents.

A megabyte can hold half a million people. What is too much is refused by its number, so that no request makes the
service collect more than a few errors.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from pydantic import ValidationError
from starlette.exceptions import HTTPException

from neuralsurv.errors import InputError
from neuralsurv.names import check_known, counted
from neuralsurv.service.covariates import Covariate, abbreviated, check_names
from neuralsurv.service.schemas import ALONG_TIMES, PredictRequest

# Times may be asked for up to this many times the last training time. Further out a curve is a guess about a guess, the
# integrals up to there cost many times as much, and a restricted mean is read off steps that are too coarse.
FARTHEST = 10.0
_MOST_SENTENCES = 5
_UNION_PARTS = ("int", "float", "str", "bool")


@dataclass(frozen=True)
class Limits:
    """Limits of the service; a request beyond one is refused before any work is done for it."""

    body_bytes: int = 2**20  # of a request
    people: int = 1000
    times: int = 500
    cells: int = 50_000  # people times times: the size of an answer
    seconds: float = 30.0  # from the arrival of a request to its answer, waiting included
    body_seconds: float = 10.0  # from the first byte of a request to its last
    waiting: int = 128  # predictions that may wait or run at the same time

    def __post_init__(self) -> None:
        """Refuse limits that would refuse everything."""
        for field in fields(self):
            value = getattr(self, field.name)
            if not value > 0:
                raise InputError(f"the limit {field.name}={value!r} must be above 0.")


def read_request(body: bytes, limits: Limits, covariates: Sequence[Covariate]) -> PredictRequest:
    """Parse and check a request."""
    try:
        content = json.loads(body, object_pairs_hook=_names_once)
    except InputError:
        raise
    except (ValueError, RecursionError) as error:
        raise HTTPException(400, "the body is not valid JSON.") from error
    _check_amounts(content, limits, covariates)
    try:
        return PredictRequest.model_validate(content)
    except ValidationError as error:
        raise InputError(_sentence(error)) from None


def _sentence(error: ValidationError) -> str:
    """Say what is wrong with the form of a request: where, and what; never the value, which may be personal."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = []
    for item in found[:_MOST_SENTENCES]:
        place = ""
        # Parts of unions that did not match are ours, not the client's.
        for part in (part for part in item["loc"] if part not in _UNION_PARTS):
            place += f"[{part}]" if isinstance(part, int) else f"{'.' if place else ''}{part}"
        words = item["msg"]
        said.append(f"{place or 'the body'}: {words[:1].lower()}{words[1:].rstrip('.')}")
    more = f" (and {len(found) - _MOST_SENTENCES} more)" if len(found) > _MOST_SENTENCES else ""
    return "; ".join(dict.fromkeys(said)) + more + "."


def _names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object of JSON, which may hold a name twice; one of the two values would be lost in silence."""
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise InputError(f"{abbreviated(name)!r} is given twice in the same object; give it once.")
        found[name] = value
    return found


def _check_amounts(content: Any, limits: Limits, covariates: Sequence[Covariate]) -> None:
    """Refuse what is too much; what has the wrong form is left to the schema."""
    if not isinstance(content, dict):
        return
    for name in content:
        # The schema would refuse it too, but with an error for each name.
        check_known(abbreviated(name), tuple(PredictRequest.model_fields), what="field")
    people, times = (content[name] if isinstance(content.get(name), list) else [] for name in ("people", "times"))
    for name, values, most in (("people", people, limits.people), ("times", times, limits.times)):
        if len(values) > most:
            raise InputError(f"{name}: there are {len(values)}; send at most {most} at a time.")
    if len(people) * len(times) > limits.cells:
        raise InputError(
            f"{counted(len(people), 'person', 'people')} at {counted(len(times), 'time')} are "
            f"{len(people) * len(times)} values of each quantity; ask for at most {limits.cells} at a time."
        )
    check_names([person for person in people if isinstance(person, dict)], covariates)


def check_time_range(asked: PredictRequest, last: float) -> None:
    """Refuse a request that lacks times, or whose times lie so far beyond `last` that nothing can be said of them."""
    along = [name for name in asked.quantities if name in ALONG_TIMES]
    if along and not asked.times:
        raise InputError(f"times: {along[0]} needs at least one time.")
    for name, values in (("times", asked.times), ("horizon", [asked.horizon]), ("given", [asked.given])):
        far = [value for value in values if value is not None and value > FARTHEST * last]
        if far:
            raise InputError(
                f"{name}: {far[0]:g} lies beyond {FARTHEST * last:g}, {FARTHEST:g} times the last training time; ask "
                "for earlier times."
            )
