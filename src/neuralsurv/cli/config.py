"""The configuration file of a repeatable run, in TOML.

It has three tables: ``[data]`` (the fields of :class:`~neuralsurv.cli.settings.DataSettings`), ``[model]`` (arguments
of :class:`~neuralsurv.NeuralSurv`) and ``[output]`` (``file``). Paths are relative to the file itself. What is given on
the command line comes before what the file says.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from neuralsurv.cli.settings import DataSettings
from neuralsurv.errors import InputError
from neuralsurv.names import check_known

_TABLES = ("data", "model", "output")
_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "true or false": lambda value: type(value) is bool,
    "a list of texts": lambda value: type(value) is list and set(map(type, value)) <= {str},
}


@dataclass(frozen=True)
class Config:
    """What a configuration file says."""

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
