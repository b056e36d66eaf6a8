"""A sheet of panels in the style of the documentation."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from neuralsurv.prediction.plots import COLOURS

BLUE, RED, GREEN = COLOURS[:3]
GREY = "0.55"
_PANEL_WIDTH, _PANEL_HEIGHT = 2.8, 2.6


def panels(columns: int, rows: int = 1, **options: Any) -> Any:
    """Return a figure and its axes, shape (rows, columns)."""
    from matplotlib import pyplot

    size = (columns * _PANEL_WIDTH, rows * _PANEL_HEIGHT)
    return pyplot.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False, **options)


def label(axes: Any, title: str, x: str, y: str = "") -> None:
    """Name a panel and its axes."""
    axes.set_title(title, fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.margins(x=0)


def save(figure: Any, path: Path) -> Path:
    """Write the sheet as a picture and close it."""
    from matplotlib import pyplot

    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return path
