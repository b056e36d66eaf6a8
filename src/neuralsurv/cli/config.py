"""What a run was asked to do: the options of its table and model, over a configuration file in TOML."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Annotated, Any

from neuralsurv.cli.options import Configuration, DataSettings, Texts, option, with_options
from neuralsurv.errors import InputError
from neuralsurv.names import check_known

_MODEL = "Model"
_TABLES = ("data", "model", "output")
_KINDS: dict[str, Callable[[Any], bool]] = {
    "text": lambda value: type(value) is str,
    "true or false": lambda value: type(value) is bool,
    "a list of texts": lambda value: type(value) is list and set(map(type, value)) <= {str},
}
# The arguments of each estimator that a command can give. The estimators have them too, but take seconds to import; a
# test holds both together.
MODEL_SETTINGS = {
    "default": (
        "hidden", "activation", "neighbourhoods", "headroom", "quadrature_points", "average", "tolerance", "max_sweeps",
        "standardise", "draws", "random_state",
    ),
    "paper": (
        "hidden", "activation", "rho", "phi_prior", "quadrature", "quadrature_points", "normaliser", "mode", "starts",
        "mode_tolerance", "spread", "tolerance", "max_sweeps", "accelerate", "solver", "standardise", "draws",
        "random_state",
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """The settings of a run.

    A configuration file has them in three tables: ``[data]`` (the fields of `DataSettings`), ``[model]`` (arguments of
    :class:`~neuralsurv.NeuralSurv`) and ``[output]`` (``file``). Its paths are relative to the file itself.
    """

    data: DataSettings
    model: dict[str, Any]  # arguments of the estimator
    out: Path | None  # where the model goes


def model_settings(
    preset: Annotated[
        str | None, option("The model: default, or paper for the method as published.", _MODEL, "NAME")
    ] = None,
    hidden: Annotated[
        str | None,
        option(
            "Widths of the hidden layers, for example 16,16; none for no network. The default model has a network only "
            "if this is given, in place of curves and neighbourhoods; with --stream it always has one.",
            _MODEL,
            "WIDTHS",
        ),
    ] = None,
    draws: Annotated[int | None, option("Posterior draws behind every prediction.", _MODEL, "N")] = None,
    setting: Annotated[
        Texts, option("Any other argument of NeuralSurv; may be repeated.", _MODEL, "NAME=VALUE", "--set")
    ] = (),
    seed: Annotated[int | None, option("Seed of draws and networks; 0 if not given.", _MODEL, "N")] = None,
) -> dict[str, Any]:
    """Return the arguments of the estimator that were typed; a linear model has no hidden layers (``"none"``)."""
    found: dict[str, Any] = {"preset": preset, "hidden": _widths(hidden), "random_state": seed, "draws": draws}
    found = {name: value for name, value in found.items() if value is not None}
    for text in setting:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise InputError(f"--set {text!r} is not of the form name=value, for example --set rho=0.8.")
        found[name.strip()] = _value(value.strip())
    return found


def check_settings(given: dict[str, Any]) -> None:
    """Refuse a preset or an argument of the estimator that does not exist."""
    preset = given.get("preset", "default")
    if preset not in MODEL_SETTINGS:
        raise InputError(f"preset {preset!r} is not known; use one of {', '.join(MODEL_SETTINGS)}.")
    for name in given:
        others = [each for each in MODEL_SETTINGS if name in MODEL_SETTINGS[each]]
        if others and preset not in others:
            raise InputError(f"{name!r} is a setting of --preset {others[0]}, and this is --preset {preset}.")
        check_known(name, ["preset", *MODEL_SETTINGS[preset]], what="setting", where="--set or [model]")


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


@with_options(data=DataSettings, model=model_settings)
def run_options(*, data: DataSettings, model: dict[str, Any], config: Configuration = None) -> Config:
    """Read the settings of a run: from the command line first, then from the configuration file."""
    found = read_config(config)
    return Config(data.over(found.data), {**found.model, **model}, found.out)


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
    by_default = {False: "true or false", (): "a list of texts"}
    kinds = {field.name: by_default.get(field.default, "text") for field in fields(DataSettings)}
    data = DataSettings(**_checked("data", content, kinds, path))
    out = _checked("output", content, {"file": "text"}, path)
    if data.file is not None:
        data = replace(data, file=path.parent / data.file)
    return Config(data, content.get("model", {}), path.parent / out["file"] if "file" in out else None)


def _checked(table: str, content: dict[str, Any], kinds: dict[str, str], path: Path) -> dict[str, Any]:
    """Return the keys of a table, lists as tuples; refuse a key that is unknown, or of another kind."""
    where, read = f"[{table}] of {path.name}", {}
    for name, value in content.get(table, {}).items():
        check_known(name, list(kinds), what="key", where=where)
        if not _KINDS[kinds[name]](value):
            raise InputError(f"{name!r} in {where} must be {kinds[name]}, but is {value!r}.")
        read[name] = tuple(value) if type(value) is list else value
    return read


def config_text(data: DataSettings, model: dict[str, Any], out: Path, folder: Path) -> str:
    """Return a configuration file that repeats a run; paths are relative to `folder`, where it will be."""
    blocks = ["# Settings of a neuralsurv run; repeat it with: neuralsurv fit --config THIS_FILE"]
    for name, table in {"data": data.given(), "model": model, "output": {"file": out}}.items():
        lines = [f"{key} = {_toml(value, folder)}" for key, value in table.items() if value is not None]
        blocks.append("\n".join([f"[{name}]", *lines]))
    return "\n\n".join([*blocks, ""])


def _toml(value: Any, folder: Path) -> str:
    """Write a plain value as TOML, which has the texts, whole numbers, truth values and lists of JSON."""
    if type(value) is float:
        return repr(value)
    if isinstance(value, Path):
        value = Path(os.path.relpath(value, folder)).as_posix()
    try:
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    except TypeError as error:
        what = type(value).__name__
        raise InputError(f"a setting of type {what} cannot be written to a config file: {value!r}.") from error
