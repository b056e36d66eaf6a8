"""What a run was asked to do: one plain object for the data and one for the model, whatever they came from."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from neuralsurv.errors import InputError

UNITS = ("seconds", "minutes", "hours", "days", "weeks", "months", "years")


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
