"""``neuralsurv fit --stream``: rows are streamed from Parquet files, by one process or several under torchrun."""

from __future__ import annotations

import os
import re
import signal
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

from neuralsurv.cli.config import Config
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import DataSettings, StreamOptions, processes
from neuralsurv.cli.output_files import file_size, reserved
from neuralsurv.cli.tables.covariate_checks import (
    MOST_SENTENCES,
    first_few,
    many_levels,
    refuse_decimal_commas,
    row_number_columns,
)
from neuralsurv.cli.tables.roles import option_name
from neuralsurv.cli.tables.survival_table import check_columns
from neuralsurv.errors import InputError, MissingCodeWarning, NeuralSurvWarning, ProcessLostError

if TYPE_CHECKING:
    from neuralsurv.data.stream.batches import ParquetSource
    from neuralsurv.estimator.neuralsurv import NeuralSurv

# How pandas calls an index without a name in a file.
_INDEX = re.compile(r"__index_level_\d+__$")
# What a stream can have; the other settings are for a table that is read as a whole.
_STREAMED = ("file", "time", "event", "entry", "weight", "features", "drop")
# Options that are left to the estimator if they are not given.
_NUMBERS = ("passes", "training_passes", "batch_size", "modes")


def run(given: Config, options: StreamOptions, out: Path, *, force: bool, messages: Messages) -> None:
    """Fit a model to Parquet files that are read as a stream, and save it; process 0 alone prints and writes."""
    settings, first = given.data, int(os.environ.get("RANK", "0")) == 0
    if given.model.get("preset") == "paper":
        raise InputError("--stream is for the default model; --preset paper needs all rows in memory.")
    with reserved(out if first else None, force=force):
        features = _features(settings, messages if first else Messages(quiet=True))
        from neuralsurv.cli.modelling import make_estimator
        from neuralsurv.estimator.model_file import save

        # That it is the default model was checked with the options.
        model = cast("NeuralSurv", make_estimator(given.model, verbose=messages.progress))
        began = time.perf_counter()
        with _warnings_shown(messages if first else None), _stopped_by_torchrun(options.checkpoint):
            model.fit_stream(
                str(settings.file),
                time=str(settings.time),
                event=str(settings.event),
                entry=settings.entry,
                sample_weight=settings.weight,
                features=features,
                method=options.method,
                checkpoint=options.checkpoint,
                shards="own" if options.own_rows else "shared",
                **{name: value for name in _NUMBERS if (value := getattr(options, name)) is not None},
            )
        seconds = time.perf_counter() - began
        if not first:
            return
        rows, events = model.training_["rows"], model.training_["events"]
        messages.note(f"{settings.event}: 1 ({events}) → event; 0 ({rows - events}) → censored.", always=True)
        save(model, out, replace=force)
        messages.say(str(model.summary()).partition("\n\nWarnings")[0])
        shared = f" by {processes()} processes" if processes() > 1 else ""
        messages.say(f"\nfitted{shared} in {seconds:.1f} s; wrote {out} ({file_size(out)})")
        messages.result(
            model=str(out),
            rows=model.training_["rows"],
            events=model.training_["events"],
            processes=processes(),
            seconds=round(seconds, 3),
            converged=model.diagnostics_.converged,
            elbo=float(model.elbo_[-1]),
        )


def _features(settings: DataSettings, messages: Messages) -> list[str]:
    """Return the covariates, by the columns of the first file; a wrong name is found before any row is read."""
    if settings.file is None:
        raise InputError("there is no data file; name a Parquet file, a folder or a pattern in quotes.")
    for role in ("time", "event"):
        if getattr(settings, role) is None:
            raise InputError(f"say which column holds the {role}: --{role} COLUMN.")
    unused = [name for name in settings.given() if name not in _STREAMED]
    if unused:
        shown = ", ".join(option_name(name) for name in unused)
        raise InputError(f"{shown} cannot be used with --stream: prepare the columns before you write Parquet.")
    from neuralsurv.data.stream.batches import open_parquet

    # torchrun streams without being asked.
    asked = "--stream" if processes() == 1 else "a fit under torchrun"
    instead = f"leave out {asked.split()[-1]} to read the whole table into memory"
    source = open_parquet(settings.file, asked=asked, instead=instead)
    known = source.column_names()
    check_columns(settings, known)
    left_out = (settings.time, settings.event, settings.entry, settings.weight, *settings.drop)
    features = [name for name in settings.features or known if name not in left_out]
    return _looked_at(source, features, settings, messages)


def _looked_at(source: ParquetSource, features: list[str], settings: DataSettings, messages: Messages) -> list[str]:
    """Return the covariates without row numbers, after a look at the first rows for what is probably a mistake."""
    # An index that pandas has written beside the columns is no column when it is read back.
    hidden = [name for name in features if _INDEX.match(name)]
    for name in hidden:
        messages.note(f"left out column {name!r}: it is the index of the table that was written.")
    features = [name for name in features if name not in hidden]
    first = next(iter(source.chunks(lambda number: number == 0, features)), None)
    if first is None:
        return features
    found = {name: text for name, text in row_number_columns(first.frame).items() if name not in settings.features}
    messages.note(*found.values())
    features = [name for name in features if name not in found]
    head = first.frame[features]
    refuse_decimal_commas(head, text_file=False, categorical=False)
    messages.warn(*many_levels(head))
    return features


@contextmanager
def _warnings_shown(messages: Messages | None) -> Iterator[None]:
    """Show the warnings of a fit as they come: those on the table are worth more before hours of work than after."""
    codes: list[str] = []

    def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
        if messages is None or not issubclass(category, NeuralSurvWarning):
            return
        if issubclass(category, MissingCodeWarning):
            codes.append(str(message))
            # Of many, what is left is said at the end.
            messages.warn(*codes[:MOST_SENTENCES])
        else:
            messages.warn(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always", NeuralSurvWarning)
        warnings.showwarning = show
        yield
    if messages is not None:
        messages.warn(*first_few(codes))


@contextmanager
def _stopped_by_torchrun(checkpoint: Path | None) -> Iterator[None]:
    """Raise an error that says why, if torchrun stops this process because another one is gone."""
    if processes() == 1:
        yield
        return

    def stop(number: int, frame: FrameType | None) -> None:
        kept = ""
        if checkpoint is not None:
            written = checkpoint.exists()
            kept = f"; the checkpoint {str(checkpoint)!r} is intact" if written else "; no checkpoint was written yet"
        raise ProcessLostError(
            f"process {os.environ['RANK']} of {processes()} was stopped, most likely because another one is "
            f"gone{kept}. Start the command again, with any number of processes."
        )

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
