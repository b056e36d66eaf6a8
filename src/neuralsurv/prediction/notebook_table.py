"""How a prediction is displayed: one line of text, and a small table in a notebook."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuralsurv.names import counted, printable

if TYPE_CHECKING:
    from neuralsurv.prediction.prediction import Prediction

# The largest table.
_MOST_PEOPLE = 10
_MOST_COLUMNS = 6


def in_words(prediction: Prediction) -> str:
    """Return what is predicted, for how many people and times, and from how many draws."""
    words = f"{prediction.name} of {counted(len(prediction.index), 'person', 'people', form=',')}"
    columns = prediction.columns
    if columns is not None:
        named = "" if columns.name in (None, "time") else f" of {columns.name}"
        words += f" at {counted(len(columns), 'value' if named else 'time', form=',')}{named}"
        if pd.api.types.is_numeric_dtype(columns):
            low, high = f"{columns.min():g}", f"{columns.max():g}"
            words += f" ({low})" if low == high else f" ({low} to {high})"
    return printable(f"{words}, {counted(prediction.count, 'draw', form=',')}")


def html_table(prediction: Prediction) -> str:
    """Return mean and 90 % interval for the first people at a few evenly spaced columns, as HTML."""
    people = min(len(prediction.index), _MOST_PEOPLE)
    first = prediction if people == len(prediction.index) else prediction.head(people)
    found = first.arrays(0.9)
    width = found["mean"].shape[1]
    columns = np.unique(np.linspace(0, width - 1, min(width, _MOST_COLUMNS)).round().astype(int))
    parts = [found[name][:, columns] for name in ("mean", "lower", "upper")]
    cells = [[_cell(*triple) for triple in zip(*row, strict=True)] for row in zip(*parts, strict=True)]
    table = pd.DataFrame(cells, index=first.index, columns=_heads(prediction, columns))
    shown = ["mean [90% interval]"]
    if people < len(prediction.index):
        shown.append(f"the first {people} people")
    if len(columns) < width:
        shown.append(f"{len(columns)} of {width} columns")
    caption = html.escape(f"{in_words(prediction)}: {', '.join(shown)}")
    return f"<p>{caption}</p>{table.to_html(border=0)}"


def _heads(prediction: Prediction, columns: np.ndarray) -> pd.Index:
    if prediction.columns is None:
        return pd.Index([prediction.name])
    beyond = prediction.extrapolated[columns]
    labels = [
        _label(value) + (" (extrapolated)" if far else "")
        for value, far in zip(prediction.columns[columns], beyond, strict=True)
    ]
    return pd.Index(labels, name=prediction.columns.name)


def _cell(mean: float, lower: float, upper: float) -> str:
    return f"{mean:.3g} [{lower:.3g}, {upper:.3g}]".replace("inf", "∞")


def _label(value: Any) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_label, value))
    return f"{value:g}" if np.issubdtype(type(value), np.number) else str(value)
