"""What a run was asked to do, in options or in a configuration file: settings of the data and of the model."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from neuralsurv.errors import InputError
from neuralsurv.names import check_known

UNITS = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")
_TABLES = ("data", "model", "output")
_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "true or false": lambda value: type(value) is bool,
    "a list of texts": lambda value: type(value) is list and set(map(type, value)) <= {str},
}


@dataclass(frozen=True)
class DataSettings:
    """Which table is read, and what its columns are."""

    file: Path | None = None
    # Columns of the outcome, as in :meth:`neuralsurv.NeuralSurv.fit`.
    time: str | None = None
    event: str | None = None
    entry: str | None = None
    weight: str | None = None
    id: str | None = None
    event_values: tuple[str, ...] = ()  # values of the event column that mean the event; 0/1 or true/false if empty
    # Columns with dates, in place of time and entry.
    start_date: str | None = None
    end_date: str | None = None
    entry_date: str | None = None
    unit: str | None = None  # unit that dates are turned into
    date_format: str | None = None  # format of the dates, as in ``strptime``; ISO 8601 if not given
    # The covariates to use (all if empty) and those to leave out.
    features: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categorical: tuple[str, ...] = ()  # columns of numbers that are names and not amounts
    missing: tuple[str, ...] = ()  # further texts that mean a missing value; ``column=text`` for one column
    # How a text file is written; by default guessed, with a point, in UTF-8.
    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    drop_missing_outcome: bool = False  # whether rows without an outcome are left out instead of refused
    # What is done with rows whose time is 0: ``half-step`` or ``drop``; they are refused if not given.
    zero_times: str | None = None

    def over(self, other: DataSettings) -> DataSettings:
        """Return these settings, with those of `other` where nothing is set here."""
        empty = DataSettings()
        unset = {
            field.name: getattr(other, field.name)
            for field in fields(self)
            if getattr(self, field.name) == getattr(empty, field.name)
        }
        return replace(self, **unset)

    def plain(self) -> dict[str, Any]:
        """Return what is set, as plain values."""
        empty = DataSettings()
        found: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value != getattr(empty, field.name):
                found[field.name] = (
                    str(value) if isinstance(value, Path) else list(value) if isinstance(value, tuple) else value
                )
        return found


def model_settings(
    preset: str | None, hidden: str | None, seed: int | None, draws: int | None, assignments: list[str] | None
) -> dict[str, Any]:
    """Return the arguments of the estimator that were given on the command line.

    `hidden` is a list such as ``"16,16"``, or ``"none"`` for a linear model; `assignments` are further ``name=value``.
    """
    found: dict[str, Any] = {"preset": preset, "hidden": _widths(hidden), "random_state": seed, "draws": draws}
    found = {name: value for name, value in found.items() if value is not None}
    for text in assignments or []:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {text!r} is not of the form name=value, for example --set rho=0.8.")
        found[name.strip()] = _value(value.strip())
    return found


def _widths(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [] if text == "none" else [int(width) for width in text.split(",")]
    except ValueError as error:
        raise InputError(
            f"--hidden {text!r} must be whole numbers with commas between them, for example 16,16."
        ) from error


def _value(text: str) -> Any:
    """Read a value as TOML does: numbers, true and false, lists; anything else is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


@dataclass(frozen=True)
class Config:
    """What a configuration file in TOML says.

    It has three tables: ``[data]`` (the fields of `DataSettings`), ``[model]`` (arguments of
    :class:`~neuralsurv.NeuralSurv`) and ``[output]`` (``file``). Paths are relative to the file itself. What is given
    on the command line comes before what the file says.
    """

    data: DataSettings
    model: dict[str, Any]  # arguments of the estimator
    out: Path | None  # where the model goes


def read_config(path: Path | None) -> Config:
    """Read a configuration file; an empty configuration if there is none."""
    if path is None:
        return Config(DataSettings(), {}, None)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the config file {str(path)!r} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"the config file {str(path)!r} is not valid TOML: {error}.") from error
    for name, table in content.items():
        check_known(name, _TABLES, what="table", where=f"in {path.name}")
        if not isinstance(table, dict):
            raise InputError(f"{name!r} in {path.name} must be a table: write [{name}] on a line of its own.")
    data = _data(content.get("data", {}), path)
    out = content.get("output", {})
    for name, value in out.items():
        check_known(name, ("file",), what="key", where=f"[output] of {path.name}")
        _checked(name, value, "text", f"[output] of {path.name}")
    return Config(data, content.get("model", {}), path.parent / out["file"] if "file" in out else None)


def _data(table: dict[str, Any], path: Path) -> DataSettings:
    where = f"[data] of {path.name}"
    by_default = {False: "true or false", (): "a list of texts"}
    kinds = {field.name: by_default.get(field.default, "text") for field in fields(DataSettings)}
    read: dict[str, Any] = {}
    for name, value in table.items():
        check_known(name, list(kinds), what="key", where=where)
        read[name] = _checked(name, value, kinds[name], where)
    settings = DataSettings(**read)
    return replace(settings, file=path.parent / read["file"]) if "file" in read else settings


def _checked(name: str, value: Any, kind: str, where: str) -> Any:
    """Return a value of a key, a list as a tuple; refuse one of another kind."""
    if not _KINDS[kind](value):
        raise InputError(f"{name!r} in {where} must be {kind}, but is {value!r}.")
    return tuple(value) if kind == "a list of texts" else value


def config_text(data: DataSettings, model: dict[str, Any], out: Path, folder: Path) -> str:
    """Return a configuration file that repeats a run; paths are relative to `folder`, where it will be."""
    source = {**data.plain(), **({"file": _relative(data.file, folder)} if data.file is not None else {})}
    tables = {"data": source, "model": model, "output": {"file": _relative(out, folder)}}
    blocks = []
    for name, table in tables.items():
        lines = [f"{key} = {_toml(value)}" for key, value in table.items() if value is not None]
        blocks.append("\n".join([f"[{name}]", *lines]))
    return "# Settings of a neuralsurv run; repeat it with: neuralsurv fit --config THIS_FILE\n\n" + "\n\n".join(
        [*blocks, ""]
    )


def _relative(path: Path, folder: Path) -> str:
    return Path(os.path.relpath(path, folder)).as_posix()


def _toml(value: Any) -> str:
    """Write a plain value as TOML, which has the texts, whole numbers, truth values and lists of JSON."""
    if type(value) is float:
        return repr(value)
    try:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    except TypeError as error:
        what = type(value).__name__
        raise InputError(f"a setting of type {what} cannot be written to a config file: {value!r}.") from error
