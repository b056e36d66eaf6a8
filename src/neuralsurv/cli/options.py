"""The arguments and options of the commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from neuralsurv.cli.settings import UNITS

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
Time = Annotated[str | None, _column("--time", "Follow-up time.")]
# torchrun takes --event for an option of its own, cut short; the longer name is for there.
Event = Annotated[
    str | None,
    _column("--event", "Whether it ended with the event: 1 or 0, true or false.", _COLUMNS, "--event-column"),
]
EventValue = Annotated[
    list[str] | None,
    _option("--event-value", "Value of the event column that means the event; may be repeated.", _COLUMNS, "VALUE"),
]
Entry = Annotated[str | None, _column("--entry", "When the row comes under observation (late entry).")]
Weight = Annotated[str | None, _column("--weight", "Row weight; 2 counts as the row twice.")]
Id = Annotated[str | None, _column("--id", "Subject, where several rows belong to one.")]
Features = Annotated[
    list[str] | None, _column("--features", "Use this covariate; repeat it. All columns if not given.")
]
Drop = Annotated[list[str] | None, _column("--drop", "Leave this column out; may be repeated.")]
Categorical = Annotated[
    list[str] | None, _column("--categorical", "Numbers in this column are names; may be repeated.")
]
StartDate = Annotated[str | None, _column("--start-date", "Date at which time starts, in place of --time.", _DATES)]
EndDate = Annotated[str | None, _column("--end-date", "Date at which follow-up ends.", _DATES)]
EntryDate = Annotated[str | None, _column("--entry-date", "Date at which the row comes under observation.", _DATES)]
Unit = Annotated[
    str | None,
    _option("--unit", f"Unit: {', '.join(UNITS)}; days if not given.", _DATES, "UNIT", autocompletion=complete_unit),
]
DateFormat = Annotated[
    str | None, _option("--date-format", "How dates are written, for example %d.%m.%Y; ISO by default.", _DATES, "TEXT")
]
Separator = Annotated[
    str | None,
    _option("--separator", "What stands between two cells of a text file; guessed if not given.", _TABLE, "TEXT"),
]
Decimal = Annotated[
    str | None, _option("--decimal", "Decimal sign of a text file, for example a comma: --decimal ,", _TABLE, "TEXT")
]
Encoding = Annotated[str | None, _option("--encoding", "How a text file is encoded; UTF-8 by default.", _TABLE, "NAME")]
Missing = Annotated[
    list[str] | None,
    _option(
        "--missing",
        "A text or number that means a missing value, such as 999; age=999 for one column. May be repeated.",
        _TABLE,
        "TEXT",
    ),
]
DropMissingOutcome = Annotated[
    bool, _option("--drop-missing-outcome", "Leave out rows without an outcome instead of refusing them.", _TABLE)
]
ZeroTimes = Annotated[
    str | None,
    _option(
        "--zero-times",
        "Rows whose time is 0: half-step (half of the smallest step is added) or drop; refused if not given.",
        _TABLE,
        "NAME",
    ),
]
Preset = Annotated[
    str | None, _option("--preset", "The model: default, or paper for the method as published.", _MODEL, "NAME")
]
Hidden = Annotated[str | None, _option("--hidden", "Widths of the hidden layers, for example 16,16.", _MODEL, "WIDTHS")]
Draws = Annotated[int | None, _option("--draws", "Posterior draws behind every prediction.", _MODEL, "N")]
Setting = Annotated[
    list[str] | None, _option("--set", "Any other argument of NeuralSurv; may be repeated.", _MODEL, "NAME=VALUE")
]
Seed = Annotated[int | None, _option("--seed", "Seed of all that is random; 0 if not given.", _MODEL, "N")]
Stream = Annotated[
    bool,
    _option("--stream", "Read Parquet files (a file, a folder, a pattern) as a stream; memory stays small.", _STREAM),
]
Method = Annotated[
    str,
    _option(
        "--method",
        "How the posterior of a stream is found: auto, exact or mini-batch.",
        _STREAM,
        "NAME",
    ),
]
Passes = Annotated[int | None, _option("--passes", "Passes of the mini-batch method.", _STREAM, "N")]
TrainingPasses = Annotated[int | None, _option("--training-passes", "Passes of feature learning.", _STREAM, "N")]
BatchSize = Annotated[int | None, _option("--batch-size", "Rows of a mini-batch step.", _STREAM, "N")]
Modes = Annotated[
    int | None, _option("--modes", "Posterior modes to find; the work grows in proportion.", _STREAM, "N")
]
CheckpointFile = Annotated[
    Path | None, _option("--checkpoint", "Save the state here, and go on from it if it is there.", _STREAM, "FILE")
]
OwnRows = Annotated[
    bool, _option("--own-rows", "Under torchrun: every process reads files of its own under this name.", _STREAM)
]
ConfigFile = Annotated[
    Path | None, _option("--config", "TOML file with settings; what is typed comes before it.", _RUN, "FILE")
]
Force = Annotated[bool, _option("--force", "Replace a file that exists.", _RUN)]
Quiet = Annotated[bool, _option("--quiet", "No progress, and no notes except on how the event was read.", _RUN)]
Json = Annotated[
    bool, _option("--json", "Print one JSON object for programs.", _RUN, callback=_remember, is_eager=True)
]
Level = Annotated[float, _option("--level", "Level of the intervals.", _RUN)]
ModelOut = Annotated[Path | None, _option("--out", "Where the model goes: m.neuralsurv.", _RUN, "FILE")]
WriteConfig = Annotated[
    Path | None, _option("--write-config", "Write the settings of this run to a TOML file.", _RUN, "FILE")
]
Folds = Annotated[int, _option("--folds", "Folds.", _SCORES)]
Repeats = Annotated[int, _option("--repeats", "How often to repeat it, with other folds.", _SCORES)]
CoxPenalty = Annotated[float, _option("--cox-penalty", "Penalty of the ridge Cox model.", _SCORES)]
BrierHorizon = Annotated[
    float | None,
    _option("--horizon", "Where the Brier score ends; as far as it is defined if not given.", _SCORES, "TIME"),
]
ScoresOut = Annotated[Path | None, _option("--out", "Write the scores of every fold to a table.", _RUN, "FILE")]
Times = Annotated[
    str | None,
    _option(
        "--times",
        "Times with commas between them, or first:last:step; quartiles of the training event times if not given.",
        _PREDICTION,
        "TIMES",
    ),
]
Quantity = Annotated[
    str,
    _option(
        "--quantity",
        "survival, hazard, cumulative-hazard, median, quantile, event-time, rmst or path.",
        _PREDICTION,
        "NAME",
    ),
]
Given = Annotated[
    float | None, _option("--given", "Survival of people who have reached this time.", _PREDICTION, "TIME")
]
MeanHorizon = Annotated[
    float | None, _option("--horizon", "Horizon of rmst; the last training time if not given.", _PREDICTION, "TIME")
]
Share = Annotated[float, _option("--share", "Share of people for quantile.", _PREDICTION)]
PredictionOut = Annotated[
    Path | None,
    _option("--out", "CSV, TSV, Parquet or feather; to the screen as CSV if not given.", _RUN, "FILE"),
]
Picture = Annotated[
    Path | None,
    _option("--picture", "Draw the first people: .png, .svg or .pdf. Needs no --times.", _RUN, "FILE"),
]
ReportOut = Annotated[Path, _option("--out", "Where the page goes: report.html.", _RUN, "FILE")]
Title = Annotated[str | None, _option("--title", "Title of the page.", _REPORT, "TEXT")]
CalibrationTimes = Annotated[
    str | None,
    _option("--times", "Times for calibration; quartiles of the event times if not given.", _REPORT, "TIMES"),
]
MeanHorizonOfReport = Annotated[
    float | None,
    _option("--horizon", "Where curves and means end; where a tenth is still watched if not given.", _REPORT, "TIME"),
]
People = Annotated[
    str | None, _option("--people", "Rows whose curves are drawn, from 0, with commas between them.", _REPORT, "ROWS")
]
Rows = Annotated[
    int,
    _option("--rows", "More rows are thinned at random for predictions.", _REPORT),
]
Host = Annotated[str, _option("--host", "Address to listen on.", _SERVICE)]
Port = Annotated[
    int,
    _option("--port", "Port to listen on; 0 takes a free one.", _SERVICE, min=0, max=65535),
]
TokenFile = Annotated[
    Path | None,
    _option("--token-file", "File with the token that clients must show; or set NEURALSURV_TOKEN.", _SERVICE, "FILE"),
]
NoToken = Annotated[bool, _option("--no-token", "Let other machines ask without a token.", _SERVICE)]
HostName = Annotated[
    list[str] | None,
    _option("--name", "Host name under which clients call the service; may be repeated.", _SERVICE, "NAME"),
]
NoBrowser = Annotated[bool, _option("--no-browser", "Do not open the page in a browser.", _SERVICE)]
Threads = Annotated[int | None, _option("--threads", "Predictions at the same time.", _SERVICE, "N", min=1, max=256)]
WithExplorer = Annotated[bool, _option("--explorer", "Serve the explorer's page too, at /.", _SERVICE)]
MaxBytes = Annotated[int, _option("--max-bytes", "Size of a request.", _LIMITS, "N", min=1)]
MaxPeople = Annotated[int, _option("--max-people", "People in a request.", _LIMITS, "N", min=1)]
MaxTimes = Annotated[int, _option("--max-times", "Times in a request.", _LIMITS, "N", min=1)]
Timeout = Annotated[
    float,
    _option("--timeout", "Seconds until an answer.", _LIMITS, "SECONDS"),
]
