"""The options of the commands, each with its help, and groups of them.

A group is a function or data class that takes options as parameters; a command gets the object it returns.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.settings import UNITS, Config, DataSettings, model_settings, read_config

_COLUMNS, _DATES, _TABLE, _MODEL, _RUN = "Columns", "Dates", "Table", "Model", "Run"
_SCORES, _PREDICTION, _REPORT, _SERVICE, _LIMITS = "Evaluation", "Prediction", "Report", "Service", "Limits"
_STREAM = "Large cohorts"


def _remember(context: typer.Context, value: bool) -> bool:
    """Keep --json where the handler of errors finds it."""
    context.meta["neuralsurv.json"] = value
    return value


def complete_column(context: typer.Context, incomplete: str) -> list[str]:
    """Offer the columns of the text file that was named before."""
    import csv

    # While an option lacks its value, the arguments have not been read.
    for given in (context.params.get("data"), *context.args):
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


def _option(name: str, text: str, panel: str, metavar: str | None = None, *others: str, **more: Any) -> Any:
    return typer.Option(name, *others, help=text, rich_help_panel=panel, metavar=metavar, **more)


def _column(name: str, text: str, panel: str = _COLUMNS, *others: str) -> Any:
    return _option(name, text, panel, "COLUMN", *others, autocompletion=complete_column)


Data = Annotated[Path | None, typer.Argument(metavar="DATA", help="CSV, TSV, Parquet or feather; .gz too.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model file that fit wrote.")]
Id = Annotated[str | None, _column("--id", "Subject, where several rows belong to one.")]
Force = Annotated[bool, _option("--force", "Replace a file that exists.", _RUN)]
Json = Annotated[
    bool, _option("--json", "Print one JSON object for programs.", _RUN, callback=_remember, is_eager=True)
]
Level = Annotated[float, _option("--level", "Level of the intervals.", _RUN)]
ModelOut = Annotated[Path | None, _option("--out", "Where the model goes: m.neuralsurv.", _RUN, "FILE")]
WriteConfig = Annotated[
    Path | None, _option("--write-config", "Write the settings of this run to a TOML file.", _RUN, "FILE")
]
ScoresOut = Annotated[Path | None, _option("--out", "Write the scores of every fold to a table.", _RUN, "FILE")]
PredictionOut = Annotated[
    Path | None, _option("--out", "CSV, TSV, Parquet or feather; to the screen as CSV if not given.", _RUN, "FILE")
]
Picture = Annotated[
    Path | None, _option("--picture", "Draw the first people: .png, .svg or .pdf. Needs no --times.", _RUN, "FILE")
]
ReportOut = Annotated[Path, _option("--out", "Where the page goes: report.html.", _RUN, "FILE")]
Host = Annotated[str, _option("--host", "Address to listen on.", _SERVICE)]
Port = Annotated[int, _option("--port", "Port to listen on; 0 takes a free one.", _SERVICE, min=0, max=65535)]
TokenFile = Annotated[
    Path | None,
    _option("--token-file", "File with the token that clients must show; or set NEURALSURV_TOKEN.", _SERVICE, "FILE"),
]
NoToken = Annotated[bool, _option("--no-token", "Let other machines ask without a token.", _SERVICE)]
NoBrowser = Annotated[bool, _option("--no-browser", "Do not open the page in a browser.", _SERVICE)]


def with_options(**groups: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that replaces parameters of a function by the options that a group makes them from.

    Examples
    --------
    >>> import inspect
    >>> @with_options(file=file_options)
    ... def show(rows: int, file) -> None: ...
    >>> list(inspect.signature(show).parameters)
    ['rows', 'separator', 'decimal', 'encoding', 'missing']
    """
    options = {name: inspect.signature(group, eval_str=True).parameters for name, group in groups.items()}

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        shown: list[inspect.Parameter] = []
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            shown += options[name].values() if name in groups else [parameter]
        # In any order: some commands have required options after others.
        shown = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in shown]

        @wraps(function)
        def called(**given: Any) -> Any:
            made = {name: group(**{key: given.pop(key) for key in options[name]}) for name, group in groups.items()}
            return function(**made, **given)

        # typer reads the options of a command from these two.
        called.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
        called.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
        return called

    return decorate


def outcome_options(
    time: Annotated[str | None, _column("--time", "Follow-up time.")] = None,
    # torchrun takes --event for an option of its own, cut short; the longer name is for there.
    event: Annotated[
        str | None,
        _column("--event", "Whether it ended with the event: 1 or 0, true or false.", _COLUMNS, "--event-column"),
    ] = None,
    event_value: Annotated[
        list[str] | None,
        _option("--event-value", "Value of the event column that means the event; may be repeated.", _COLUMNS, "VALUE"),
    ] = None,
    entry: Annotated[str | None, _column("--entry", "When the row comes under observation (late entry).")] = None,
    weight: Annotated[str | None, _column("--weight", "Row weight; 2 counts as the row twice.")] = None,
    id: Id = None,
    start_date: Annotated[
        str | None, _column("--start-date", "Date at which time starts, in place of --time.", _DATES)
    ] = None,
    end_date: Annotated[str | None, _column("--end-date", "Date at which follow-up ends.", _DATES)] = None,
    entry_date: Annotated[
        str | None, _column("--entry-date", "Date at which the row comes under observation.", _DATES)
    ] = None,
    unit: Annotated[
        str | None,
        _option(
            "--unit", f"Unit: {', '.join(UNITS)}; days if not given.", _DATES, "UNIT", autocompletion=complete_unit
        ),
    ] = None,
    date_format: Annotated[
        str | None,
        _option("--date-format", "How dates are written, for example %d.%m.%Y; ISO by default.", _DATES, "TEXT"),
    ] = None,
    drop_missing_outcome: Annotated[
        bool, _option("--drop-missing-outcome", "Leave out rows without an outcome instead of refusing them.", _TABLE)
    ] = False,
    zero_times: Annotated[
        str | None,
        _option(
            "--zero-times",
            "Rows whose time is 0: half-step (half of the smallest step is added) or drop; refused if not given.",
            _TABLE,
            "NAME",
        ),
    ] = None,
) -> DataSettings:
    """Read the options that name the columns of the outcome."""
    given = {name: value for name, value in locals().items() if name != "event_value"}
    return DataSettings(**given, event_values=tuple(event_value or ()))


def covariate_options(
    features: Annotated[
        list[str] | None, _column("--features", "Use this covariate; repeat it. All columns if not given.")
    ] = None,
    drop: Annotated[list[str] | None, _column("--drop", "Leave this column out; may be repeated.")] = None,
    categorical: Annotated[
        list[str] | None, _column("--categorical", "Numbers in this column are names; may be repeated.")
    ] = None,
) -> DataSettings:
    """Read the options that choose the covariates."""
    return DataSettings(features=tuple(features or ()), drop=tuple(drop or ()), categorical=tuple(categorical or ()))


def file_options(
    separator: Annotated[
        str | None,
        _option("--separator", "What stands between two cells of a text file; guessed if not given.", _TABLE, "TEXT"),
    ] = None,
    decimal: Annotated[
        str | None,
        _option("--decimal", "Decimal sign of a text file, for example a comma: --decimal ,", _TABLE, "TEXT"),
    ] = None,
    encoding: Annotated[
        str | None, _option("--encoding", "How a text file is encoded; UTF-8 by default.", _TABLE, "NAME")
    ] = None,
    missing: Annotated[
        list[str] | None,
        _option(
            "--missing",
            "A text or number that means a missing value, such as 999; age=999 for one column. May be repeated.",
            _TABLE,
            "TEXT",
        ),
    ] = None,
) -> DataSettings:
    """Read the options that say how a table is written."""
    return DataSettings(separator=separator, decimal=decimal, encoding=encoding, missing=tuple(missing or ()))


def model_options(
    preset: Annotated[
        str | None, _option("--preset", "The model: default, or paper for the method as published.", _MODEL, "NAME")
    ] = None,
    hidden: Annotated[
        str | None, _option("--hidden", "Widths of the hidden layers, for example 16,16.", _MODEL, "WIDTHS")
    ] = None,
    draws: Annotated[int | None, _option("--draws", "Posterior draws behind every prediction.", _MODEL, "N")] = None,
    setting: Annotated[
        list[str] | None, _option("--set", "Any other argument of NeuralSurv; may be repeated.", _MODEL, "NAME=VALUE")
    ] = None,
    seed: Annotated[int | None, _option("--seed", "Seed of all that is random; 0 if not given.", _MODEL, "N")] = None,
) -> dict[str, Any]:
    """Read the options of the model."""
    return model_settings(preset, hidden, seed, draws, setting)


def message_options(
    quiet: Annotated[
        bool, _option("--quiet", "No progress, and no notes except on how the event was read.", _RUN)
    ] = False,
    json: Json = False,
) -> Messages:
    """Read how much the command prints, and in which form."""
    return Messages(machine=json, quiet=quiet)


@with_options(outcome=outcome_options, covariates=covariate_options, how=file_options, model=model_options)
def run_options(
    *,
    data: Data = None,
    outcome: DataSettings,
    covariates: DataSettings,
    how: DataSettings,
    model: dict[str, Any],
    config: Annotated[
        Path | None, _option("--config", "TOML file with settings; what is typed comes before it.", _RUN, "FILE")
    ] = None,
) -> Config:
    """Read the table and the model of a run: from the command line first, then from the configuration file."""
    found = read_config(config)
    table = DataSettings(file=data).over(outcome).over(covariates).over(how).over(found.data)
    return Config(table, {**found.model, **model}, found.out)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a fit to rows that are streamed."""

    stream: Annotated[
        bool,
        _option(
            "--stream", "Read Parquet files (a file, a folder, a pattern) as a stream; memory stays small.", _STREAM
        ),
    ] = False
    method: Annotated[
        str, _option("--method", "How the posterior of a stream is found: auto, exact or mini-batch.", _STREAM, "NAME")
    ] = "auto"
    passes: Annotated[int | None, _option("--passes", "Passes of the mini-batch method.", _STREAM, "N")] = None
    training_passes: Annotated[
        int | None, _option("--training-passes", "Passes of feature learning.", _STREAM, "N")
    ] = None
    batch_size: Annotated[int | None, _option("--batch-size", "Rows of a mini-batch step.", _STREAM, "N")] = None
    modes: Annotated[
        int | None, _option("--modes", "Posterior modes to find; the work grows in proportion.", _STREAM, "N")
    ] = None
    checkpoint: Annotated[
        Path | None, _option("--checkpoint", "Save the state here, and go on from it if it is there.", _STREAM, "FILE")
    ] = None
    own_rows: Annotated[
        bool, _option("--own-rows", "Under torchrun: every process reads files of its own under this name.", _STREAM)
    ] = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of a cross-validation."""

    folds: Annotated[int, _option("--folds", "Folds.", _SCORES)] = 5
    repeats: Annotated[int, _option("--repeats", "How often to repeat it, with other folds.", _SCORES)] = 1
    cox_penalty: Annotated[float, _option("--cox-penalty", "Penalty of the ridge Cox model.", _SCORES)] = 0.1
    horizon: Annotated[
        float | None,
        _option("--horizon", "Where the Brier score ends; as far as it is defined if not given.", _SCORES, "TIME"),
    ] = None


@dataclass(frozen=True)
class PredictOptions:
    """What to predict."""

    times: Annotated[
        str | None,
        _option(
            "--times",
            "Times with commas between them, or first:last:step; quartiles of the training event times if not given.",
            _PREDICTION,
            "TIMES",
        ),
    ] = None
    quantity: Annotated[
        str,
        _option(
            "--quantity",
            "survival, hazard, cumulative-hazard, median, quantile, event-time, rmst or path.",
            _PREDICTION,
            "NAME",
        ),
    ] = "survival"
    given: Annotated[
        float | None, _option("--given", "Survival of people who have reached this time.", _PREDICTION, "TIME")
    ] = None
    horizon: Annotated[
        float | None, _option("--horizon", "Horizon of rmst; the last training time if not given.", _PREDICTION, "TIME")
    ] = None
    share: Annotated[float, _option("--share", "Share of people for quantile.", _PREDICTION)] = 0.5
    level: Level = 0.9


@dataclass(frozen=True)
class ReportArguments:
    """What a report shows, as it is typed."""

    title: Annotated[str | None, _option("--title", "Title of the page.", _REPORT, "TEXT")] = None
    times: Annotated[
        str | None,
        _option("--times", "Times for calibration; quartiles of the event times if not given.", _REPORT, "TIMES"),
    ] = None
    horizon: Annotated[
        float | None,
        _option(
            "--horizon", "Where curves and means end; where a tenth is still watched if not given.", _REPORT, "TIME"
        ),
    ] = None
    level: Level = 0.9
    people: Annotated[
        str | None,
        _option("--people", "Rows whose curves are drawn, from 0, with commas between them.", _REPORT, "ROWS"),
    ] = None
    rows: Annotated[int, _option("--rows", "More rows are thinned at random for predictions.", _REPORT)] = 1000


@dataclass(frozen=True)
class ServeOptions:
    """How a model is served."""

    host: Host = "127.0.0.1"
    port: Port = 8000
    token_file: TokenFile = None
    no_token: NoToken = False
    name: Annotated[
        list[str] | None,
        _option("--name", "Host name under which clients call the service; may be repeated.", _SERVICE, "NAME"),
    ] = None
    threads: Annotated[
        int | None, _option("--threads", "Predictions at the same time.", _SERVICE, "N", min=1, max=256)
    ] = None
    max_bytes: Annotated[int, _option("--max-bytes", "Size of a request.", _LIMITS, "N", min=1)] = 2**20
    max_people: Annotated[int, _option("--max-people", "People in a request.", _LIMITS, "N", min=1)] = 1000
    max_times: Annotated[int, _option("--max-times", "Times in a request.", _LIMITS, "N", min=1)] = 500
    timeout: Annotated[float, _option("--timeout", "Seconds until an answer.", _LIMITS, "SECONDS")] = 30.0
    explorer: Annotated[bool, _option("--explorer", "Serve the explorer's page too, at /.", _SERVICE)] = False
