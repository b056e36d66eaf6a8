"""``neuralsurv predict``: numbers in a table, or a picture."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from neuralsurv.arguments import check_level
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import DataSettings, PredictOptions
from neuralsurv.cli.output_files import csv_text, file_size, replacing, reserved, write_table
from neuralsurv.cli.tables.covariate_checks import code_warnings, refuse_decimal_commas, text_categories
from neuralsurv.cli.tables.survival_table import labels, settings_of_model
from neuralsurv.cli.tables.table_input import is_text_file, read_table, table_kind
from neuralsurv.data.cause_values import cause_number
from neuralsurv.data.columns import Column
from neuralsurv.errors import InputError
from neuralsurv.files.format import Fields, read_header
from neuralsurv.files.stored_columns import stored_causes, stored_columns, stored_roles
from neuralsurv.names import check_known, counted, printable

if TYPE_CHECKING:
    from neuralsurv.estimator.base import SurvivalEstimator
    from neuralsurv.prediction.prediction import Prediction

QUANTITIES = ("survival", "hazard", "cumulative-hazard", "median", "quantile", "event-time", "rmst", "path",
              "incidence", "rmtl")  # fmt: skip
_ALONG_TIMES = ("survival", "hazard", "cumulative-hazard", "path", "incidence")
_OF_CAUSES = ("incidence", "rmtl")
_BY_CAUSE = (*_OF_CAUSES, "hazard", "cumulative-hazard")
_MOST_TIMES = 100_000
# Points of a curve in a picture for which no times were given.
_TIMES_OF_A_PICTURE = 101
_KINDS = (".png", ".svg", ".pdf")
# With more bands than this a chart cannot be read; intervals stand below each other, so more of them fit.
_MOST_CURVES = 3
_MOST_INTERVALS = 30


def run(
    path: Path,
    data: Path,
    table: DataSettings,
    options: PredictOptions,
    out: Path | None,
    picture: Path | None,
    *,
    force: bool,
    messages: Messages,
) -> None:
    """Predict for the rows of a table: to `out`, as a picture, or without either as CSV to standard output."""
    check_known(options.quantity, QUANTITIES, what="quantity", where="--quantity")
    times = parse_times(options.times) if options.times is not None else None
    _check(options, times)
    if picture is not None and options.quantity in _OF_CAUSES and options.cause is None:
        raise InputError(f"a picture of {options.quantity} shows one cause; say which with --cause.")
    if picture is not None and picture.suffix.lower() not in _KINDS:
        raise InputError(f"--picture {picture.name!r} must end with {', '.join(_KINDS[:-1])} or {_KINDS[-1]}.")
    inputs = (path, data)
    with reserved(out, force=force, inputs=inputs), reserved(picture, force=force, inputs=inputs):
        if out is not None:
            table_kind(out)
        header = Fields(read_header(path), "header")
        columns, roles = stored_columns(header), stored_roles(header)
        if options.cause is not None:
            cause_number(options.cause, list(stored_causes(header)))
        frame = _labelled(_read(columns, roles, data, table, messages), roles, table.id)
        # Imported late: the model takes seconds that a mistake in the table should not cost.
        from neuralsurv.cli.modelling import open_model

        model = open_model(path, messages)
        chosen = times is None and options.quantity in _ALONG_TIMES
        if chosen and picture is not None:
            # At time 0 a hazard may be infinite.
            first = model.time_scale_ / 200 if options.quantity == "hazard" else 0.0
            times = np.linspace(first, model.time_scale_, _TIMES_OF_A_PICTURE)
        elif chosen:
            times = _usual_times(model, options, messages)
        found = _predict(model, frame, options, times)
        if found.extrapolated.any():
            messages.warn(f"beyond {model.time_scale_:g}, the last training time, the prediction is extrapolated.")
        if found.filled:
            messages.note(_filled(found.filled))
        answer: dict[str, Any] = {"quantity": found.name, "level": options.level}
        if picture is not None:
            _draw(found, picture, options.level, unit=model.columns_.get("time"), force=force, messages=messages)
            answer["picture"] = str(picture)
            if out is None:
                # Only the picture was asked for.
                messages.result(**answer)
                return
        result = found.to_frame(options.level)
        if chosen and picture is None and _with_median(options):
            result = _add_median(result, model.predict_median(frame), options.level)
        if out is not None:
            write_table(result, out, force=force)
            messages.say(f"wrote {out}: {counted(len(result), 'line')} ({file_size(out)})")
            messages.result(**{"out": str(out), "lines": len(result), "picture": None, **answer})
        elif messages.machine:
            messages.result(predictions=result.to_dict(orient="records"), **answer)
        else:
            text = csv_text(result, digits="%.6g")
            # A program gets the table as it is; a terminal would act on what is in it.
            sys.stdout.write(printable(text, keep="\n\t") if sys.stdout.isatty() else text)
            sys.stdout.flush()


def _filled(filled: Sequence[Sequence[str]]) -> str:
    """Return which covariates were filled in, and for how many of the people."""
    counts = Counter(name for names in filled for name in names)
    listed = ", ".join(f"{name} ({count})" for name, count in counts.most_common())
    lacking = sum(bool(names) for names in filled)
    return (
        f"filled in for {lacking} of {len(filled)} people who lack values: {listed}. Each draw takes another value, "
        "with the mean, spread and range of the training rows, so their bands are wider; the column filled_in names "
        "them."
    )


def _usual_times(model: SurvivalEstimator, options: PredictOptions, messages: Messages) -> np.ndarray:
    """Return the times of a prediction for which none were asked for, and say which."""
    if model.event_quartiles_ is not None:
        times, source = np.unique(model.event_quartiles_), "the quartiles of the training event times"
    else:
        times = np.unique(np.quantile(model.unique_times_, (0.25, 0.5, 0.75)))
        source = "the quartiles of all training times, since this older model file does not hold the event times"
    if options.given is not None:
        times, source = times[times > options.given], f"{source} after {options.given:g}"
        if len(times) == 0:
            raise InputError(
                f"there are none of {source}; say for which times to predict, for example --times "
                f"{options.given * 1.5:g}."
            )
    shown = ", ".join(f"{time:g}" for time in times)
    median = ", and the median event time" if _with_median(options) else ""
    messages.note(f"predicting {options.quantity} at {shown} ({source}){median}; --times chooses other times.")
    return times


def _with_median(options: PredictOptions) -> bool:
    return options.quantity == "survival" and options.given is None


def _add_median(curves: pd.DataFrame, medians: Prediction, level: float) -> pd.DataFrame:
    """Return curves with the median event time of each person beside them, and its interval."""
    found = medians.to_frame(level)
    each = np.repeat(np.arange(len(found)), len(curves) // len(found))
    columns = {"event_time": "median", "event_time_lower": "lower", "event_time_upper": "upper"}
    return curves.assign(**{f"median_{name}": found[own].to_numpy()[each] for name, own in columns.items()})


def _read(
    columns: Sequence[Column], roles: dict[str, str], file: Path, table: DataSettings, messages: Messages
) -> pd.DataFrame:
    """Read a table the way the model's training table was read: categories as text."""
    names = text_categories(columns)
    notes: list[str] = []
    if not table.missing and (missing := settings_of_model(roles).missing):
        notes.append(f"{', '.join(missing)} stands for a missing value, as in the fit.")
        table = replace(table, missing=missing)
    frame = read_table(file, text_columns=names, notes=notes, **table.reading)
    for column in columns:
        check_known(column.name, list(frame.columns), what="column", where="used by the model")
        if column.name in names:
            frame[column.name] = labels(frame[column.name])
    numbers = frame[[column.name for column in columns if column.kind == "number"]]
    refuse_decimal_commas(numbers, text_file=is_text_file(file))
    messages.note(*notes)
    messages.warn(*code_warnings(numbers))
    return frame


def _labelled(frame: pd.DataFrame, roles: dict[str, str], wanted: str | None) -> pd.DataFrame:
    """Set the column that names people as index; else rows are numbered from 0, as in messages."""
    if wanted is not None:
        check_known(wanted, list(frame.columns), what="column", where="--id")
    name = wanted or roles.get("id")
    if name is not None and name in frame.columns:
        return frame.set_index(pd.Index(frame[name], name=name))
    return frame.rename_axis("row")


def _check(options: PredictOptions, times: np.ndarray | None) -> None:
    check_level(options.level)
    if options.quantity not in _ALONG_TIMES and times is not None:
        raise InputError(f"--quantity {options.quantity} does not take --times.")
    if options.given is not None and options.quantity != "survival":
        raise InputError("--given goes with --quantity survival only.")
    if options.horizon is not None and options.quantity not in ("rmst", "rmtl"):
        raise InputError("--horizon goes with --quantity rmst or rmtl only.")
    if options.cause is not None and options.quantity not in _BY_CAUSE:
        raise InputError(f"--cause goes with --quantity {', '.join(_BY_CAUSE[:-1])} or {_BY_CAUSE[-1]} only.")


def _predict(
    model: SurvivalEstimator, frame: pd.DataFrame, options: PredictOptions, times: np.ndarray | None
) -> Prediction:
    if options.given is not None:
        return model.predict_conditional_survival(frame, times, options.given)
    names = {"path": "survival_path", "incidence": "cumulative_incidence"}
    name = names.get(options.quantity, options.quantity.replace("-", "_"))
    horizon = model.time_scale_ if options.horizon is None else options.horizon
    more: dict[str, tuple[Any, ...]] = {
        "quantile": (options.share,),
        "rmst": (horizon,),
        "rmtl": (horizon,),
        **{along: (times,) for along in _ALONG_TIMES},
    }
    by_cause = {"cause": options.cause} if options.quantity in _BY_CAUSE else {}
    found: Prediction = getattr(model, f"predict_{name}")(frame, *more.get(options.quantity, ()), **by_cause)
    return found


def parse_times(text: str) -> np.ndarray:
    """Read ``90,180,365`` or ``0:365:5`` (first, last, step; the last one included where it is met)."""
    try:
        if ":" in text:
            first, last, step = (float(part) for part in text.split(":"))
            if not (step > 0 and first <= last and np.isfinite([first, last, step]).all()):
                raise ValueError
        else:
            return np.array([float(part) for part in text.split(",")])
    except ValueError as error:
        raise InputError(
            f"--times {text!r} is not understood; give times with commas between them, or first:last:step."
        ) from error
    count = int((last - first) / step * (1 + 1e-12)) + 1
    if count > _MOST_TIMES:
        raise InputError(f"--times {text} are {count} times; give at most {_MOST_TIMES}.")
    return first + step * np.arange(count)


def _draw(found: Prediction, path: Path, level: float, *, unit: str | None, force: bool, messages: Messages) -> None:
    """Draw the first people of a prediction into a file, and say how many; `unit` is the name of the time axis."""
    try:
        import matplotlib
    except ImportError as error:
        raise InputError("a picture needs matplotlib: pip install 'neuralsurv[plot]'.") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    from neuralsurv.prediction.plots import plot_prediction

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
