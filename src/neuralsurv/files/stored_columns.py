"""The columns of a model as its file describes them; reading them needs neither the model nor torch."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from neuralsurv.data.columns import Column
from neuralsurv.errors import StorageError
from neuralsurv.files.format import Fields

_MOST_AXES = 16


def stored_roles(header: Fields) -> dict[str, str]:
    """Return the columns of the training table that held the outcome, by what they were."""
    roles = header.table("roles")
    return {key: roles.text(key) for key in roles.names()}


def stored_columns(header: Fields) -> tuple[Column, ...]:
    """Return the covariates in their order."""
    columns = []
    for item in header.items("columns"):
        table = Fields(item, "column")
        kind = table.text("kind")
        if kind not in ("number", "category", "array"):
            raise StorageError("the model file is damaged: a column is neither number nor category nor array.")
        described = (table.text("name"), kind, table.texts("levels"), table.flag("has_missing"))
        # Files written before gaps could go without an indicator have one for each.
        indicator = table.raw("gap_indicator") is None or table.flag("gap_indicator")
        column = Column(*described, *_training_range(table), gap_indicator=indicator)
        if len(set(column.levels)) < max(len(column.levels), 2 if kind == "category" else 0):
            raise StorageError(
                f"the model file is damaged: the levels of column {column.name!r} are too few, or one is repeated."
            )
        columns.append(replace(column, **_part(table)))
    return tuple(columns)


def _part(table: Fields) -> dict[str, Any]:
    """Return which part of X a column belongs to, and the shape of its arrays."""
    if table.raw("part") is None:
        return {}
    shape = tuple(table.items("shape"))
    whole = len(shape) <= _MOST_AXES and all(type(size) is int and size > 0 for size in shape)
    if not whole or math.prod(shape) > 10**7:
        raise StorageError("the model file is damaged: the shape of a column is out of range.")
    return {"part": table.text("part"), "shape": shape, "whole": table.flag("whole")}


def _training_range(table: Fields) -> tuple[float | None, float | None, bool]:
    """Return smallest and largest training value of a column and whether all were whole."""
    # Categories have no range, and files written before ranges were stored have none at all.
    if table.raw("low") is None and table.raw("high") is None:
        return None, None, False
    low, high = table.number("low"), table.number("high")
    if not low < high:
        raise StorageError("the model file is damaged: the training range of a column is empty.")
    return low, high, table.flag("whole")


def stored_causes(header: Fields) -> dict[int | str, int]:
    """Return the causes of events with their numbers of events; there are none where the model has one cause."""
    found: dict[int | str, int] = {}
    for pair in [] if header.raw("causes") is None else header.items("causes"):
        whole = isinstance(pair, list) and len(pair) == 2 and type(pair[1]) is int and pair[1] > 0
        if not whole or type(pair[0]) not in (int, str) or pair[0] in found:
            raise StorageError("the model file is damaged: 'causes' are not names with numbers of events.")
        found[pair[0]] = pair[1]
    return found
