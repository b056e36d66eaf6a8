"""Groups of options: a function or data class takes options as parameters, and a command gets the object it returns.

What an option means is written once, in :mod:`neuralsurv.cli.options`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any

from neuralsurv.cli import options as o
from neuralsurv.cli.messages import Messages
from neuralsurv.cli.settings import Config, DataSettings, model_settings, read_config


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
    time: o.Time = None,
    event: o.Event = None,
    event_value: o.EventValue = None,
    entry: o.Entry = None,
    weight: o.Weight = None,
    id: o.Id = None,
    start_date: o.StartDate = None,
    end_date: o.EndDate = None,
    entry_date: o.EntryDate = None,
    unit: o.Unit = None,
    date_format: o.DateFormat = None,
    drop_missing_outcome: o.DropMissingOutcome = False,
    zero_times: o.ZeroTimes = None,
) -> DataSettings:
    """Read the options that name the columns of the outcome."""
    given = {name: value for name, value in locals().items() if name != "event_value"}
    return DataSettings(**given, event_values=tuple(event_value or ()))


def covariate_options(
    features: o.Features = None, drop: o.Drop = None, categorical: o.Categorical = None
) -> DataSettings:
    """Read the options that choose the covariates."""
    return DataSettings(features=tuple(features or ()), drop=tuple(drop or ()), categorical=tuple(categorical or ()))


def file_options(
    separator: o.Separator = None,
    decimal: o.Decimal = None,
    encoding: o.Encoding = None,
    missing: o.Missing = None,
) -> DataSettings:
    """Read the options that say how a table is written."""
    return DataSettings(separator=separator, decimal=decimal, encoding=encoding, missing=tuple(missing or ()))


def model_options(
    preset: o.Preset = None,
    hidden: o.Hidden = None,
    draws: o.Draws = None,
    setting: o.Setting = None,
    seed: o.Seed = None,
) -> dict[str, Any]:
    """Read the options of the model."""
    return model_settings(preset, hidden, seed, draws, setting)


def message_options(quiet: o.Quiet = False, json: o.Json = False) -> Messages:
    """Read how much the command prints, and in which form."""
    return Messages(machine=json, quiet=quiet)


@with_options(outcome=outcome_options, covariates=covariate_options, how=file_options, model=model_options)
def run_options(
    *,
    data: o.Data = None,
    outcome: DataSettings,
    covariates: DataSettings,
    how: DataSettings,
    model: dict[str, Any],
    config: o.ConfigFile = None,
) -> Config:
    """Read the table and the model of a run: from the command line first, then from the configuration file."""
    found = read_config(config)
    table = DataSettings(file=data).over(outcome).over(covariates).over(how).over(found.data)
    return Config(table, {**found.model, **model}, found.out)


@dataclass(frozen=True)
class StreamOptions:
    """Options of a fit to rows that are streamed."""

    stream: o.Stream = False
    method: o.Method = "auto"
    passes: o.Passes = None
    training_passes: o.TrainingPasses = None
    batch_size: o.BatchSize = None
    modes: o.Modes = None
    checkpoint: o.CheckpointFile = None
    own_rows: o.OwnRows = False


@dataclass(frozen=True)
class EvaluateOptions:
    """Options of a cross-validation."""

    folds: o.Folds = 5
    repeats: o.Repeats = 1
    cox_penalty: o.CoxPenalty = 0.1
    horizon: o.BrierHorizon = None


@dataclass(frozen=True)
class PredictOptions:
    """What to predict."""

    times: o.Times = None
    quantity: o.Quantity = "survival"
    given: o.Given = None
    horizon: o.MeanHorizon = None
    share: o.Share = 0.5
    level: o.Level = 0.9


@dataclass(frozen=True)
class ReportArguments:
    """What a report shows, as it is typed."""

    title: o.Title = None
    times: o.CalibrationTimes = None
    horizon: o.MeanHorizonOfReport = None
    level: o.Level = 0.9
    people: o.People = None
    rows: o.Rows = 1000


@dataclass(frozen=True)
class ServeOptions:
    """How a model is served."""

    host: o.Host = "127.0.0.1"
    port: o.Port = 8000
    token_file: o.TokenFile = None
    no_token: o.NoToken = False
    name: o.HostName = None
    threads: o.Threads = None
    max_bytes: o.MaxBytes = 2**20
    max_people: o.MaxPeople = 1000
    max_times: o.MaxTimes = 500
    timeout: o.Timeout = 30.0
    explorer: o.WithExplorer = False
