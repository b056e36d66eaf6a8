"""What two streamed fits differ in, in words: the fingerprints of checkpoints, by the names that users know."""

from __future__ import annotations

from reprlib import repr as shortened
from typing import Any

import numpy as np

from neuralsurv.inference.stream.packed_rows import BLOCK_ROWS
from neuralsurv.names import listed

# Sums over another number of processes are rounded differently.
_ROUNDING = 1e-9
_METHODS = {True: "exact", False: "mini-batch"}
_BLOCKS = {"training_blocks": "training_batch_size", "blocks": "batch_size"}
_TOTALS = {
    "rows": "the number of rows",
    "events": "the number of events",
    "truncated": "the number of rows with late entry",
    "weightless": "the number of rows with a weight of 0",
    "weighted_events": "the sum of the weights of the events",
    "exposure": "the time at risk of all rows",
    "last_time": "the largest time",
}
_OF_COLUMN = {
    "kind": "the kind",
    "low": "the smallest value",
    "high": "the largest value",
    "present": "the number of values",
}
_OTHER_CONTENT = "its rows hold other values"
_OTHER_VERSION = "it was written by another version of neuralsurv"

Keys = tuple[str | int, ...]


def difference(theirs: Any, ours: Any, keys: Keys = ()) -> Keys | None:
    """Return the keys that lead to the first difference of two fingerprints, or None if they are the same."""
    pairs: list[tuple[str | int, Any, Any]]
    match theirs, ours:
        case dict(), dict():
            alone = [key for key in (*ours, *theirs) if not (key in ours and key in theirs)]
            if alone:
                return (*keys, alone[0])
            pairs = [(key, theirs[key], ours[key]) for key in ours]
        case list(), list() if len(theirs) == len(ours):
            pairs = [(place, a, b) for place, (a, b) in enumerate(zip(theirs, ours, strict=True))]
        case float(), float():
            return None if np.isclose(theirs, ours, rtol=_ROUNDING, atol=0.0) else keys
        case _:
            return None if type(theirs) is type(ours) and theirs == ours else keys
    return next((found for key, a, b in pairs if (found := difference(a, b, (*keys, key))) is not None), None)


def difference_in_words(theirs: Any, ours: Any) -> str | None:
    """Return a clause on the first difference between the fingerprints of a checkpoint and of this fit, or None."""
    keys = difference(theirs, ours)
    if keys is None:
        return None
    try:
        return _clause(keys, theirs, ours)
    except (LookupError, TypeError):
        # What the keys lead to is missing on one side, or of another kind.
        return _OTHER_VERSION


def _clause(keys: Keys, theirs: Any, ours: Any) -> str:
    values = _at(theirs, keys), _at(ours, keys)
    match keys:
        case ():
            return _OTHER_VERSION
        case ("cohort", "columns", *rest):
            return _covariates(_at(theirs, keys[:2]), _at(ours, keys[:2]), rest)
        case ("cohort", str(total), *_) if total not in _TOTALS:
            return _OTHER_CONTENT
        case ("rows", "order"):
            return "its rows come in another order"
        case ("rows", "rows" | "content"):
            return _OTHER_CONTENT
        case ("encoding", part, *_) if part != "standardise":
            return "its covariates are encoded differently"
        case ("seed",):
            return "random_state was another one"
        case ("settings", str(name), *_) if name != "ablation":
            # A parameter with several values is shown as a whole.
            keys = keys[:2]
            values = _at(theirs, keys), _at(ours, keys)
    return _there_and_here(*_typed(keys, *values))


def _at(tree: Any, keys: Keys) -> Any:
    for key in keys:
        tree = tree[key]
    return tree


def _there_and_here(name: str, theirs: Any, ours: Any) -> str:
    return f"{name} is {shortened(theirs)} there and {shortened(ours)} here"


def _typed(keys: Keys, theirs: Any, ours: Any) -> tuple[str, Any, Any]:
    """Return the name that a value has for users, and both values as they would type them."""
    match keys:
        case ("settings" | "encoding", str(name)):
            theirs, ours = (tuple(value) if isinstance(value, list) else value for value in (theirs, ours))
            return name, theirs, ours
        case ("columns", str(role)):
            return f"the {role} column", theirs, ours
        case ("cohort", str(total)):
            return _TOTALS[total], theirs, ours
        case ("plan", "exact"):
            return "method", _METHODS[theirs], _METHODS[ours]
        case ("plan", "training_blocks" | "blocks" as blocks):
            return _BLOCKS[blocks], theirs * BLOCK_ROWS, ours * BLOCK_ROWS
        case ("plan", "keep_all"):
            return "directions", theirs, ours
        case ("plan", str(name)):
            return name, theirs, ours
    return ".".join(map(str, keys)), theirs, ours


def _covariates(theirs: list[dict[str, Any]], ours: list[dict[str, Any]], rest: list[str | int]) -> str:
    """Return a clause on columns of which one, at the first of the keys, is not the same."""
    names = [[column["name"] for column in columns] for columns in (theirs, ours)]
    if names[0] != names[1]:
        return f"the covariates are {listed(names[0])} there and {listed(names[1])} here"
    place, field = int(rest[0]), str(rest[1])
    if field not in _OF_COLUMN:
        return f"column {names[0][place]!r} holds other values there"
    return _there_and_here(
        f"{_OF_COLUMN[field]} of column {names[0][place]!r}", theirs[place][field], ours[place][field]
    )
