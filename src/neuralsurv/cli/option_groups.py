"""Options in groups: a function or a data class has options as parameters, and a command gets what it makes of them.

What an option means is written once, in :mod:`neuralsurv.cli.arguments`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from neuralsurv.cli import arguments as a
from neuralsurv.cli.config import Config, read_config
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.settings import DataSettings, model_settings


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
    time: a.Time = None,
    event: a.Event = None,
    event_value: a.EventValue = None,
    entry: a.Entry = None,
    weight: a.Weight = None,
    id: a.Id = None,
    start_date: a.StartDate = None,
    end_date: a.EndDate = None,
    entry_date: a.EntryDate = None,
    unit: a.Unit = None,
    date_format: a.DateFormat = None,
    drop_missing_outcome: a.DropMissingOutcome = False,
    zero_times: a.ZeroTimes = None,
) -> DataSettings:
    """Read the options that name the columns of the outcome."""
    given = {name: value for name, value in locals().items() if name != "event_value"}
    return DataSettings(**given, event_values=tuple(event_value or ()))


def covariate_options(
    features: a.Features = None, drop: a.Drop = None, categorical: a.Categorical = None
) -> DataSettings:
    """Read the options that choose the covariates."""
    return DataSettings(features=tuple(features or ()), drop=tuple(drop or ()), categorical=tuple(categorical or ()))


def file_options(
    separator: a.Separator = None,
    decimal: a.Decimal = None,
    encoding: a.Encoding = None,
    missing: a.Missing = None,
) -> DataSettings:
    """Read the options that say how a table is written."""
    return DataSettings(separator=separator, decimal=decimal, encoding=encoding, missing=tuple(missing or ()))


def model_options(
    preset: a.Preset = None,
    hidden: a.Hidden = None,
    draws: a.Draws = None,
    setting: a.Setting = None,
    seed: a.Seed = None,
) -> dict[str, Any]:
    """Read the options of the model."""
    return model_settings(preset, hidden, seed, draws, setting)


def message_options(quiet: a.Quiet = False, json: a.Json = False) -> Messages:
    """Read how much the command prints, and in which form."""
    return Messages(machine=json, quiet=quiet)


@with_options(outcome=outcome_options, covariates=covariate_options, how=file_options, model=model_options)
def run_options(
    *,
    data: a.Data = None,
    outcome: DataSettings,
    covariates: DataSettings,
    how: DataSettings,
    model: dict[str, Any],
    config: a.ConfigFile = None,
) -> Config:
    """Read the table and the model of a run: from the command line first, then from the configuration file."""
    found = read_config(config)
    table = DataSettings(file=data).over(outcome).over(covariates).over(how).over(found.data)
    return Config(table, {**found.model, **model}, found.out)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a fit to rows that are streamed."""

    stream: a.Stream = False
    method: a.Method = "auto"
    passes: a.Passes = None
    training_passes: a.TrainingPasses = None
    batch_size: a.BatchSize = None
    modes: a.Modes = None
    checkpoint: a.CheckpointFile = None
    own_rows: a.OwnRows = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of a cross-validation."""

    folds: a.Folds = 5
    repeats: a.Repeats = 1
    cox_penalty: a.CoxPenalty = 0.1
    horizon: a.BrierHorizon = None


@dataclass(frozen=True)
class PredictOptions:
    """What to predict."""

    times: a.Times = None
    quantity: a.Quantity = "survival"
    given: a.Given = None
    horizon: a.MeanHorizon = None
    share: a.Share = 0.5
    level: a.Level = 0.9


@dataclass(frozen=True)
class ReportArguments:
    """What a report shows, as it is typed."""

    title: a.Title = None
    times: a.CalibrationTimes = None
    horizon: a.MeanHorizonOfReport = None
    level: a.Level = 0.9
    people: a.People = None
    rows: a.Rows = 1000


@dataclass(frozen=True)
class ServeOptions:
    """How a model is served."""

    host: a.Host = "127.0.0.1"
    port: a.Port = 8000
    token_file: a.TokenFile = None
    no_token: a.NoToken = False
    name: a.HostName = None
    threads: a.Threads = None
    max_bytes: a.MaxBytes = 2**20
    max_people: a.MaxPeople = 1000
    max_times: a.MaxTimes = 500
    timeout: a.Timeout = 30.0
    explorer: a.WithExplorer = False
