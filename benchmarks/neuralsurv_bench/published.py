"""The figures that the paper printed, from `published.json`; the experiments take their sizes and cohorts from here."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any, Literal

from neuralsurv_bench.methods.interface import Method

Table = Literal["central", "ablation", "synthetic", "classical", "runtime_minutes", "prior"]

# The row of the paper's tables that every method of ours is compared with.
PAPERS_OWN = "NeuralSurv"


@lru_cache(maxsize=1)
def _figures() -> dict[str, Any]:
    text = files("neuralsurv_bench").joinpath("published.json").read_text(encoding="utf-8")
    figures: dict[str, Any] = json.loads(text)
    return figures


def source() -> str:
    """Return the paper's citation."""
    return str(_figures()["source"])


def columns(table: Table) -> tuple[str, ...]:
    """Return the cohorts of a table, or the numbers of rows where it is about sizes, in the paper's order."""
    return tuple(_figures()[table])


def rows(table: Table) -> tuple[str, ...]:
    """Return the methods of a table, or its priors, in the paper's order."""
    return tuple(dict.fromkeys(row for column in _figures()[table].values() for row in column))


def figure(table: Table, column: str, row: str, metric: str) -> float | None:
    """Return one printed number, or None where the paper has none."""
    number = _figures()[table].get(column, {}).get(row, {}).get(metric)
    return None if number is None else float(number)


def row_of(method: Method) -> str:
    """Return the row of the paper's tables that a method is compared with, whether or not the paper has it."""
    return PAPERS_OWN if method.family == "ours" else method.name


def metrics(table: Table) -> tuple[str, ...]:
    """Return what a table gives for each of its rows: metrics, or hidden layers."""
    return tuple(
        dict.fromkeys(name for column in _figures()[table].values() for row in column.values() for name in row)
    )
