"""Pictures of predictions, as files."""

from __future__ import annotations

from pathlib import Path

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.output_files import check_new, file_size, replacing
from neuralsurv.errors import InputError
from neuralsurv.prediction.plots import plot_prediction
from neuralsurv.prediction.prediction import Prediction

_KINDS = (".png", ".svg", ".pdf")
# With more bands than this a chart cannot be read; intervals stand below each other, so more of them fit.
_MOST_CURVES = 3
_MOST_INTERVALS = 30


def check_picture(path: Path, *, force: bool, inputs: tuple[Path | None, ...]) -> None:
    """Refuse, before any work is done, a place or a kind that a picture cannot have."""
    if path.suffix.lower() not in _KINDS:
        raise InputError(f"--picture {path.name!r} must end with {', '.join(_KINDS[:-1])} or {_KINDS[-1]}.")
    check_new(path, force=force, inputs=inputs)


def draw(found: Prediction, path: Path, level: float, *, unit: str | None, force: bool, messages: Messages) -> None:
    """Draw the first people of a prediction into a file, and say how many; `unit` is the name of the time axis."""
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("a picture needs matplotlib: pip install 'neuralsurv[plot]'.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    people, most = len(found.index), _MOST_INTERVALS if found.columns is None else _MOST_CURVES
    if people > most:
        messages.note(f"the picture shows the first {most} of {people} people.")
        found = found.head(most)
    # People who are called by a number alone are called by their row.
    numbered = found.index.name == "row"
    axes = plot_prediction(found, level=level, labels=[f"row {name}" if numbered else name for name in found.index])
    if unit is not None and found.columns is not None:
        axes.set_xlabel(unit)
    axes.set_title(f"{found.name}: median and {level:.0%} interval", fontsize=10)
    with replacing(path, force=force) as temporary:
        axes.figure.savefig(temporary, format=path.suffix[1:].lower(), dpi=130)
    pyplot.close(axes.figure)
    messages.say(f"wrote {path} ({file_size(path)})")
