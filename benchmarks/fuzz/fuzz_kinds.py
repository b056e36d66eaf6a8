"""Which hazards a case carries, so that the page can show that every kind occurred and what came of it."""

from __future__ import annotations

import math
from typing import Any

from fuzz_inputs import Recipe


def _numbers(cells: list[Any]) -> list[float]:
    found = []
    for value in cells:
        try:
            found.append(float(value))
        except (TypeError, ValueError, OverflowError):
            continue
    return found


def kinds(recipe: Recipe) -> list[str]:
    """Return the kinds of a case."""
    if recipe["layer"] in ("file", "table"):
        ending = f", {recipe['ending'] or 'no ending'}" if recipe["layer"] == "table" else ""
        return [f"{recipe['layer']}: {recipe['kind']}{ending}"]
    found = {*(f"hazard: {name}" for name in recipe["hazards"]), f"preset: {recipe['settings']['preset']}"}
    found |= {f"type: {column['type']}" for column in recipe["columns"]}
    found |= {f"X as: {recipe['container']}", f"y as: {recipe['outcome']['form']}"}
    if recipe["container"] == "array":
        found.add(f"array: {recipe.get('layout', 'plain')}")
    if recipe["container"] in ("frame", "arrow"):
        found.add(f"index: {recipe.get('index', 'plain')}")
    if recipe["layer"] == "fit":
        found |= {f"asked: {ask['what']}" for ask in recipe["asks"]}
    found |= {f"new rows: {ask['change']}" for ask in recipe["asks"]}
    found |= _of_outcome(recipe["outcome"])
    if recipe.get("wide") == 10_000:
        found.add("hazard: 10,000 columns")
    if not recipe["hazards"]:
        found.add("hazard: none")
    return sorted(found)


def _of_outcome(given: dict[str, Any]) -> set[str]:
    times = _numbers(given["time"]["cells"])
    present = [value for value in times if value > 0 and math.isfinite(value)]
    checks = {
        "outcome: times tied": len(set(times)) < len(times),
        "outcome: times below 1e-200": any(value < 1e-200 for value in present),
        "outcome: times above 1e200": any(value > 1e200 for value in present),
        "outcome: times zero or negative": any(value <= 0 for value in times),
        "outcome: times NaN or infinite": any(not math.isfinite(value) for value in times),
        "outcome: entry": "entry" in given,
        "outcome: weight of 1e16 or more": any(
            value >= 1e16 for value in _numbers(given.get("weight", {}).get("cells", []))
        ),
        "outcome: weight of zero": 0.0 in _numbers(given.get("weight", {}).get("cells", [])),
    }
    return {name for name, holds in checks.items() if holds}
