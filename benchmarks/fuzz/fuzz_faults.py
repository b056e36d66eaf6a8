"""What is wrong with a cohort, worked out from its recipe alone, and which words an error about it must hold.

A second, plain reading of the rules, so that the harness sees more than whether an error is one of ours: a faultless
cohort that is refused, a fault that is accepted, and a message that names the wrong column are all broken.
"""

from __future__ import annotations

import math
from typing import Any

from fuzz_inputs import NUMBERS, Recipe, number

_HUGE = 1e100
_SIMPLE = (*NUMBERS, "Float64", "Int64")


def _value(cell: Any) -> float:
    return float(number(cell, "float64"))


def judged(recipe: Recipe) -> bool:
    """Return whether the second reading covers a recipe: frames of numbers, and outcomes in arrays of floats."""
    given = recipe["outcome"]
    parts = [given[name] for name in ("time", "entry", "weight") if name in given]
    names = [column["name"] for column in recipe["columns"]]
    return (
        recipe["container"] == "frame"
        and given["form"] in ("pair", "keywords", "frame")
        and "id" not in given
        and given["event"]["type"] == "bool"
        and all(part["type"] == "float64" for part in parts)
        and all(column["type"] in ("float64", "float32", "int64", "Float64", "str") for column in recipe["columns"])
        and all(isinstance(name, str) for name in names)
        and len({len(part["cells"]) for part in [*parts, *recipe["columns"], given["event"]]}) == 1
    )


def faults(recipe: Recipe) -> list[str]:
    """Return, for each fault, words that an error about it holds; one error is about one of them."""
    given = recipe["outcome"]
    rows = len(given["time"]["cells"])
    if rows == 0:
        return ["column 'time' is empty", "no rows", "0 feature"]
    time = [_value(cell) for cell in given["time"]["cells"]]
    entry = [_value(cell) for cell in given["entry"]["cells"]] if "entry" in given else [0.0] * rows
    weight = [_value(cell) for cell in given["weight"]["cells"]] if "weight" in given else [1.0] * rows
    found = []
    for name, values in (("time", time), ("entry", entry), ("weight", weight)):
        if any(not math.isfinite(value) for value in values):
            found.append(f"column '{name}'")
    if any(value <= 0 for value in time):
        found.append("column 'time' is zero or negative")
    if any(value < 0 for value in entry):
        found.append("column 'entry' is negative")
    if any(early >= late for early, late in zip(entry, time, strict=True)):
        found.append("column 'entry' is not before column 'time'")
    if any(value < 0 for value in weight):
        found.append("column 'weight' is negative")
    if not found:
        longest = max(time)
        if not 1e-300 <= longest <= 1e300:
            return ["the largest value of column 'time'"]
        if any(early / longest >= late / longest for early, late in zip(entry, time, strict=True)):
            found.append("column 'time' is so small")
        if sum(weight) > 1e12:
            found.append("column 'weight' adds up")
    present = [value > 0 for value in weight]
    if not any(present):
        found.append("weight of zero")
    if sum(present) == 1:
        found.append("only 1 row")
    if not any(bool(flag) and here for flag, here in zip(given["event"]["cells"], present, strict=True)):
        found.append("has an event")
    elif recipe["layer"] == "fit" and recipe["settings"].get("preset") == "paper":
        # Less than about one event leaves phi without a mode.
        events = (value for flag, value in zip(given["event"]["cells"], weight, strict=True) if flag)
        if sum(events) <= 1 - recipe["settings"].get("phi_prior", [1.0, 1.0])[0]:
            found.append("the weights of the events add up to")
    names = [str(column["name"]) for column in recipe["columns"]]
    if not names and not recipe.get("wide"):
        found.append("0 feature")
    for column in recipe["columns"]:
        cells = [cell for cell, here in zip(column["cells"], present, strict=True) if here]
        # Without scaling, huge numbers are refused; rows without weight are encoded too.
        raw = not recipe["settings"].get("standardise", True) and column["type"] != "str"
        huge = raw and any(abs(_value(cell)) > _HUGE for cell in column["cells"])
        if huge or names.count(column["name"]) > 1 or _faulty(column["type"], cells):
            found.append(f"column {column['name']!r}")
    return found


def _faulty(kind: str, cells: list[Any]) -> bool:
    if kind == "str":
        levels = {str(cell) for cell in cells if cell is not None}
        return len(levels) < 2
    if kind == "int64":
        whole = {int(min(max(value, -(2.0**62)), 2.0**62)) for value in map(_value, cells) if not math.isnan(value)}
        whole |= {0 for value in map(_value, cells) if math.isnan(value)}
        return len({float(value) for value in whole}) < 2
    values = [_value(cell) for cell in cells]
    if kind == "float32":
        import numpy as np

        with np.errstate(all="ignore"):
            values = [float(np.float32(value)) for value in values]
    present = [value for value in values if not math.isnan(value)]
    return any(math.isinf(value) for value in present) or len(set(present)) < 2
