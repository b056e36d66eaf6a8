"""The options of the commands, each with its help, and groups of them.

A group is a function or a class that takes options as parameters; a command gets the object that it returns.
"""

from __future__ import annotations

import csv
import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from neuralsurv.errors import InputError
from neuralsurv.names import counted

UNITS = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
_COLUMNS, _DATES, _TABLE, _RUN = "Columns", "Dates", "Table", "Run"
_SCORES, _PREDICTION, _REPORT, _SERVICE, _LIMITS = "Evaluation", "Prediction", "Report", "Service", "Limits"
_STREAM = "Large cohorts"

if TYPE_CHECKING:
    Texts = tuple[str, ...]
else:
    # typer takes a repeated option as a list; only a tuple can be the default of a field.
    Texts = list[str]


def _remember(context: typer.Context, value: bool) -> bool:
    """Keep --json where the handler of errors finds it."""
    context.meta["neuralsurv.json"] = value
    return value


def complete_column(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the columns of the text file that was named before."""
    # While an option lacks its value, the arguments have not been read.
    for given in (context.params.get("file"), context.params.get("data"), *context.args):
        suffix = "" if given is None else Path(given).suffix.lower()
        if given is not None and suffix in (".csv", ".tsv", ".tab", ".txt"):
            try:
                with open(given, encoding="utf-8-sig", newline="") as file:
                    header = next(csv.reader(file, delimiter="\t" if suffix in (".tsv", ".tab") else ","), [])
            except (OSError, UnicodeDecodeError, csv.Error):
                return []
            return [name for name in header if name.startswith(incomplete)]
    return []


def complete_unit(incomplete: str) -> list[str]:
    """Offer the units of time."""
    return [unit for unit in UNITS if unit.startswith(incomplete)]


def option(text: str, panel: str, metavar: str | None = None, *names: str, **more: Any) -> Any:
    """Return an option, called like its parameter unless it has names of its own, as a flag must."""
    return typer.Option(*names, help=text, rich_help_panel=panel, metavar=metavar, **more)


def _flag(name: str, text: str, panel: str, **more: Any) -> Any:
    return option(text, panel, None, name, **more)


def _column(text: str, panel: str = _COLUMNS, *names: str) -> Any:
    return option(text, panel, "COLUMN", *names, autocompletion=complete_column)


def with_options(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that replaces parameters of a function by the options that a group makes them from."""
    options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        shown: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            shown += options[name].values() if name in groups else [parameter]
        # In any order: some commands have required options after others.
        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]

        @wraps(function)
        def called(**given: Any) -> Any:
            given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
            made = {name: group(**{key: given.pop(key) for key in options[name]}) for name, group in groups.items()}
            return function(**made, **given)

        # typer reads the options of a command from these two.
        called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return called

    return decorate


def some_of(group: Callable[..., Any], *names: str, **given: Any) -> Callable[..., Any]:
    """Return a group with some of the options of another; `given` are other defaults, and values of the rest."""
    every = inspect.signature(group, eval_str=True).parameters

    def make(**typed: Any) -> Any:
        return group(**{**given, **typed})

    chosen = [every[name].replace(default=given.get(name, every[name].default)) for name in names]
    make.__signature__ = inspect.Signature(chosen)  # type: ignore[attr-defined]
    return make


_DATA = typer.Argument(metavar="DATA", help="CSV, TSV, Parquet or feather; .gz too.")
Data = Annotated[Path, _DATA]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="Model file written by fit.")]
Force = Annotated[bool, _flag("--force", "Replace a file that exists.", _RUN)]
Quiet = Annotated[bool, _flag("--quiet", "No progress, and no notes except on how the event was read.", _RUN)]
Json = Annotated[bool, _flag("--json", "Print one JSON object for programs.", _RUN, callback=_remember, is_eager=True)]
Level = Annotated[float, option("Level of the intervals.", _RUN)]
Configuration = Annotated[
    Path | None, option("TOML file with settings; options on the command line override it.", _RUN, "FILE")
]
WriteConfig = Annotated[Path | None, option("Write the settings of this run to a TOML file.", _RUN, "FILE")]
ModelOut = Annotated[Path | None, option("Where the model goes: m.neuralsurv.", _RUN, "FILE")]
ScoresOut = Annotated[Path | None, option("Write the scores of every fold to a table.", _RUN, "FILE")]
PredictionOut = Annotated[
    Path | None, option("CSV, TSV, Parquet or feather; to the screen as CSV if not given.", _RUN, "FILE")
]
Picture = Annotated[Path | None, option("Draw the first people: .png, .svg or .pdf. Needs no --times.", _RUN, "FILE")]
ReportOut = Annotated[Path, option("Where the page goes: report.html.", _RUN, "FILE")]
NoBrowser = Annotated[bool, _flag("--no-browser", "Do not open the page in a browser.", _SERVICE)]


@dataclass(frozen=True)
class DataSettings:
    """Which table is read, and what its columns are: the options of a command and the keys of a configuration file."""

    file: Annotated[Path | None, _DATA] = None
    time: Annotated[str | None, _column("Follow-up time.")] = None
    # torchrun takes --event for an option of its own, cut short; the longer name is for there.
    event: Annotated[
        str | None,
        _column("Whether it ended with the event: 1 or 0, true or false.", _COLUMNS, "--event", "--event-column"),
    ] = None
    event_values: Annotated[
        Texts,
        option("Value of the event column that means the event; may be repeated.", _COLUMNS, "VALUE", "--event-value"),
    ] = ()
    entry: Annotated[str | None, _column("When the row comes under observation (late entry).")] = None
    weight: Annotated[str | None, _column("Row weight; 2 counts as the row twice.")] = None
    id: Annotated[str | None, _column("Subject, where several rows belong to one.")] = None
    start_date: Annotated[str | None, _column("Date at which time starts, in place of --time.", _DATES)] = None
    end_date: Annotated[str | None, _column("Date at which follow-up ends.", _DATES)] = None
    entry_date: Annotated[str | None, _column("Date at which the row comes under observation.", _DATES)] = None
    unit: Annotated[
        str | None,
        option(f"Unit: {', '.join(UNITS)}; days if not given.", _DATES, "UNIT", autocompletion=complete_unit),
    ] = None
    date_format: Annotated[
        str | None, option("How dates are written, for example %d.%m.%Y; ISO by default.", _DATES, "TEXT")
    ] = None
    drop_missing_outcome: Annotated[
        bool, _flag("--drop-missing-outcome", "Leave out rows without an outcome instead of refusing them.", _TABLE)
    ] = False
    zero_times: Annotated[
        str | None,
        option(
            "Rows whose time is 0: half-step (half of the smallest step is added) or drop; refused if not given.",
            _TABLE,
            "NAME",
        ),
    ] = None
    features: Annotated[Texts, _column("Use this covariate; repeat it. All columns if not given.")] = ()
    drop: Annotated[Texts, _column("Leave this column out; may be repeated.")] = ()
    categorical: Annotated[Texts, _column("Treat the numbers of this column as categories; may be repeated.")] = ()
    separator: Annotated[
        str | None, option("Separator of the columns of a text file; guessed if not given.", _TABLE, "TEXT")
    ] = None
    decimal: Annotated[
        str | None, option("Decimal sign of a text file, for example a comma: --decimal ,", _TABLE, "TEXT")
    ] = None
    encoding: Annotated[str | None, option("How a text file is encoded; UTF-8 by default.", _TABLE, "NAME")] = None
    missing: Annotated[
        Texts,
        option(
            "A text or number that means a missing value, such as 999; age=999 for one column. May be repeated.",
            _TABLE,
            "TEXT",
        ),
    ] = ()

    def given(self) -> dict[str, Any]:
        """Return what is set."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {field.name: values[field.name] for field in fields(self) if values[field.name] != field.default}

    def over(self, other: DataSettings) -> DataSettings:
        """Return these settings, with those of `other` where nothing is set here."""
        return replace(other, **self.given())

    @property
    def reading(self) -> dict[str, Any]:
        """How a text file is written, as :func:`~neuralsurv.cli.tables.table_input.read_table` takes it."""
        return {name: getattr(self, name) for name in FILE}


# How a table is written, and what its outcome is.
FILE = ("separator", "decimal", "encoding", "missing")
OUTCOME = tuple(field.name for field in fields(DataSettings)[1:14])


@dataclass(frozen=True)
class StreamOptions:
    """Options of a fit to rows that are streamed."""

    stream: Annotated[
        bool,
        _flag("--stream", "Read Parquet files (a file, a folder, a pattern) as a stream; memory stays small.", _STREAM),
    ] = False
    method: Annotated[
        str, option("How the posterior of a stream is found: auto, exact or mini-batch.", _STREAM, "NAME")
    ] = "auto"
    passes: Annotated[int | None, option("Passes of the mini-batch method.", _STREAM, "N")] = None
    training_passes: Annotated[int | None, option("Passes of feature learning.", _STREAM, "N")] = None
    batch_size: Annotated[int | None, option("Rows of a mini-batch step.", _STREAM, "N")] = None
    modes: Annotated[int | None, option("Posterior modes to find; the work grows in proportion.", _STREAM, "N")] = None
    checkpoint: Annotated[
        Path | None, option("Save the state here, and resume from it if it exists.", _STREAM, "FILE")
    ] = None
    own_rows: Annotated[
        bool, _flag("--own-rows", "Under torchrun: every process reads files of its own under this name.", _STREAM)
    ] = False


def processes() -> int:
    """Return how many processes torchrun has started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of a cross-validation."""

    folds: Annotated[int, option("Number of folds.", _SCORES)] = 5
    repeats: Annotated[int, option("Repetitions, each with other folds.", _SCORES)] = 1
    cox_penalty: Annotated[float, option("Penalty of the ridge Cox model.", _SCORES)] = 0.1
    horizon: Annotated[
        float | None, option("Where the Brier score ends; as far as it is defined if not given.", _SCORES, "TIME")
    ] = None

    def __post_init__(self) -> None:
        """Refuse a cross-validation that cannot be run."""
        if self.folds < 2 or self.repeats < 1:
            raise InputError(
                f"{counted(self.folds, 'fold')} and {counted(self.repeats, 'repeat')} cannot be run; use at least 2 "
                "folds and 1 repeat."
            )


@dataclass(frozen=True)
class PredictOptions:
    """What to predict."""

    times: Annotated[
        str | None,
        option(
            "Times with commas between them, or first:last:step; quartiles of the training event times if not given.",
            _PREDICTION,
            "TIMES",
        ),
    ] = None
    quantity: Annotated[
        str,
        option(
            "survival, hazard, cumulative-hazard, median, quantile, event-time, rmst or path; with several causes also "
            "incidence (cumulative incidence) and rmtl (restricted mean time lost).",
            _PREDICTION,
            "NAME",
        ),
    ] = "survival"
    cause: Annotated[
        str | None,
        option(
            "Cause of events for incidence, rmtl, hazard or cumulative-hazard. All causes if not given; for hazards, "
            "events of any cause.",
            _PREDICTION,
            "NAME",
        ),
    ] = None
    given: Annotated[float | None, option("Survival given that this time has been reached.", _PREDICTION, "TIME")] = (
        None
    )
    horizon: Annotated[
        float | None, option("Horizon of rmst and rmtl; the last training time if not given.", _PREDICTION, "TIME")
    ] = None
    share: Annotated[float, option("Share of people for quantile.", _PREDICTION)] = 0.5
    level: Level = 0.9


@dataclass(frozen=True)
class ReportArguments:
    """What a report shows, as it is typed."""

    title: Annotated[str | None, option("Title of the page.", _REPORT, "TEXT")] = None
    times: Annotated[
        str | None, option("Times for calibration; quartiles of the event times if not given.", _REPORT, "TIMES")
    ] = None
    horizon: Annotated[
        float | None,
        option(
            "Where curves and means end; where a tenth of the rows is still followed if not given.", _REPORT, "TIME"
        ),
    ] = None
    level: Level = 0.9
    people: Annotated[
        str | None, option("Rows whose curves are drawn, from 0, with commas between them.", _REPORT, "ROWS")
    ] = None
    rows: Annotated[int, option("More rows are thinned at random for predictions.", _REPORT)] = 1000


@dataclass(frozen=True)
class ServeOptions:
    """How a model is served."""

    host: Annotated[str, option("Address to listen on.", _SERVICE)] = "127.0.0.1"
    port: Annotated[int, option("Port to listen on; 0 takes a free one.", _SERVICE, min=0, max=65535)] = 8000
    token_file: Annotated[
        Path | None, option("File with the token that clients must send; or set NEURALSURV_TOKEN.", _SERVICE, "FILE")
    ] = None
    no_token: Annotated[bool, _flag("--no-token", "Accept requests from other machines without a token.", _SERVICE)] = (
        False
    )
    name: Annotated[
        Texts, option("Host name under which clients call the service; may be repeated.", _SERVICE, "NAME")
    ] = ()
    workers: Annotated[int, option("Processes that share the port.", _SERVICE, "N", min=1, max=64)] = 1
    threads: Annotated[
        int | None,
        option("Large predictions at the same time, in each process.", _SERVICE, "N", min=1, max=256),
    ] = None
    max_bytes: Annotated[int, option("Largest request, in bytes.", _LIMITS, "N", min=1)] = 2**20
    max_people: Annotated[int, option("Most people in a request.", _LIMITS, "N", min=1)] = 1000
    max_times: Annotated[int, option("Most times in a request.", _LIMITS, "N", min=1)] = 500
    timeout: Annotated[float, option("Time limit of a request, in seconds.", _LIMITS, "SECONDS")] = 30.0
    explorer: Annotated[bool, _flag("--explorer", "Serve the explorer's page too, at /.", _SERVICE)] = False
