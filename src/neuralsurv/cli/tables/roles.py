"""Which columns of a table hold the outcome, as they were named; nothing here reads the table."""

from __future__ import annotations

from pathlib import Path

from neuralsurv.cli.options import DataSettings
from neuralsurv.errors import InputError

ROLES = ("time", "event", "entry", "weight", "id")
DATE_ROLES = ("start_date", "end_date", "entry_date")


def check_file(settings: DataSettings) -> Path:
    """Return the file of a table; refuse settings without one, or without an outcome."""
    if settings.file is None:
        raise InputError("there is no data file; name one, or set file in the [data] table of the config.")
    check_roles(settings)
    return settings.file


def check_there(*files: Path) -> None:
    """Refuse files that are not there."""
    for file in files:
        if not file.exists():
            raise InputError(f"there is no file {str(file)!r}.")


def check_roles(settings: DataSettings) -> None:
    """Refuse settings without an outcome, or with a contradiction in it."""
    if (settings.start_date is None) != (settings.end_date is None):
        raise InputError("--start-date and --end-date belong together; give both, or --time.")
    if settings.start_date is not None and settings.time is not None:
        raise InputError("the time is given twice: --time, and --start-date with --end-date; give one of them.")
    if settings.start_date is None and settings.time is None:
        raise InputError("say which column holds the time: --time COLUMN, or --start-date and --end-date for dates.")
    if settings.event is None:
        raise InputError("say which column holds the event: --event COLUMN (1 for the event, 0 for censored).")
    if settings.entry_date is not None and (settings.start_date is None or settings.entry is not None):
        raise InputError("--entry-date goes with --start-date and --end-date, and not with --entry.")
    if settings.start_date is None and (settings.unit is not None or settings.date_format is not None):
        raise InputError("--unit and --date-format are for dates; name the columns with --start-date and --end-date.")
    taken: dict[str, str] = {}
    for role, name in outcome_columns(settings).items():
        if name in taken:
            raise InputError(f"column {name!r} is given as {option_name(taken[name])} and as {option_name(role)}.")
        taken[name] = role


def outcome_columns(settings: DataSettings) -> dict[str, str]:
    """Return the columns that were given, by what they hold."""
    return {role: name for role in (*ROLES, *DATE_ROLES) if (name := getattr(settings, role)) is not None}


def option_name(setting: str) -> str:
    """Return the option of a setting of the data."""
    return "--event-value" if setting == "event_values" else "--" + setting.replace("_", "-")
