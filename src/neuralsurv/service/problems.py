"""Errors as a client sees them: problem documents (RFC 9457) with a sentence, never a stack trace."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from pydantic import ValidationError
from starlette.responses import Response

_MOST_SENTENCES = 5


def problem(
    status: int, detail: str, *, column: str | None = None, headers: Mapping[str, str] | None = None
) -> Response:
    """Return an answer that says what went wrong: what is wrong, how many, what to do."""
    content: dict[str, Any] = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
    }
    if column is not None:
        content["column"] = column
    return Response(json.dumps(content), status, dict(headers or {}), "application/problem+json")


def try_later(detail: str, **headers: str) -> Response:
    """Return an answer that asks the client to come back."""
    return problem(503, detail, headers={"Retry-After": "1", **headers})


def validation_sentence(error: ValidationError) -> str:
    """Say what is wrong with the form of a request: where, and what; never the value, which may be personal."""
    found = error.errors(include_url=False, include_context=False, include_input=False)
    said = []
    for item in found[:_MOST_SENTENCES]:
        # Parts of unions that did not match are ours, not the client's.
        place = _place([part for part in item["loc"] if part not in _UNION_PARTS])
        said.append(f"{place}: {_lower(str(item['msg']))}")
    unique = list(dict.fromkeys(said))
    more = f" (and {len(found) - _MOST_SENTENCES} more)" if len(found) > _MOST_SENTENCES else ""
    return "; ".join(unique) + more + "."


_UNION_PARTS = {"int", "float", "str", "bool"}


def _place(parts: list[Any]) -> str:
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f"{'.' if text else ''}{part}"
    return text or "the body"


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:].rstrip(".")
