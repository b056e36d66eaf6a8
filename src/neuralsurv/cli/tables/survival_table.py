"""A table with an outcome, read from a file, with a note on everything that was changed on the way."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import DataSettings
from neuralsurv.cli.tables.covariate_checks import refuse_decimal_commas, row_number_columns
from neuralsurv.cli.tables.outcome_columns import (
    duration,
    event_flags,
    event_note,
    labels,
    read_dates,
    refuse_gaps,
    without_zero_times,
)
from neuralsurv.cli.tables.table_input import is_text_file, read_table
from neuralsurv.data.comma_numbers import decimal_comma
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.names import check_known

ROLES = ("time", "event", "entry", "weight", "id")
_DATE_ROLES = ("start_date", "end_date", "entry_date")
# How the columns are read, which a model file keeps as well.
_HOW = ("unit", "date_format", "zero_times")
_LISTS = ("event_values", "missing")


@dataclass(frozen=True)
class SurvivalTable:
    """A table with an outcome."""

    frame: pd.DataFrame  # covariates and the columns of the outcome
    roles: dict[str, str]  # which column is time, event, entry, weight and id
    notes: tuple[str, ...]  # what was changed in the table, in words
    event_note: str  # how each value of the event column was read
    settings: DataSettings  # where it came from

    def show_notes(self, messages: Messages) -> None:
        """Say what was changed, and how the event was read: that decides what every result means."""
        messages.note(*self.notes)
        messages.note(self.event_note, always=True)

    @property
    def covariates(self) -> pd.DataFrame:
        """The columns that are not of the outcome."""
        return self.frame.drop(columns=list(self.roles.values()))

    def outcome(self) -> Outcome:
        """Return the checked outcome."""
        given = {role: self.frame[self.roles[role]] if role in self.roles else None for role in ROLES}
        return Outcome.from_arrays(
            given["time"], given["event"], given["entry"], given["weight"],
            names=[self.roles.get(role, role) for role in ROLES[:4]],
        )  # fmt: skip

    @property
    def subject(self) -> np.ndarray | None:
        """The subject of each row, if there is such a column."""
        return self.frame[self.roles["id"]].to_numpy() if "id" in self.roles else None


def read_survival_table(settings: DataSettings, needed: Collection[str] = ()) -> SurvivalTable:
    """Read a table and prepare its outcome; the covariates are as they are in the file.

    Columns are checked before anything else, so that a typo is found at once. Of the covariates only the `needed` ones
    of a fitted model are checked, or all if there are none.
    """
    if settings.file is None:
        raise InputError("there is no data file; name one, or set file in the [data] table of the config.")
    _check_roles(settings)
    as_text = {*settings.categorical, *([settings.event] if settings.event_values and settings.event else [])}
    notes: list[str] = []
    frame = read_table(settings.file, text_columns=as_text, notes=notes, **settings.reading)
    check_columns(settings, [str(name) for name in frame.columns])
    roles = {role: getattr(settings, role) for role in ROLES if getattr(settings, role) is not None}
    frame = _selected(frame, settings)
    frame = frame if needed else _without_row_numbers(frame, settings, notes)
    event = str(settings.event)
    texts = {event, *settings.categorical}
    looked_at = [name for name in frame if name not in texts and (not needed or name in {*needed, *roles.values()})]
    refuse_decimal_commas(frame[looked_at], text_file=is_text_file(settings.file))
    if settings.start_date is not None:
        frame, roles = _with_durations(frame, settings, roles, notes)
    words = labels(frame[event])
    frame[event] = event_flags(frame[event], settings.event_values)
    for name in settings.categorical:
        if name in frame:
            frame[name] = labels(frame[name])
            if decimal_comma(frame[name].dropna()) is not None:
                # As text they would be refused, but --categorical says that these are not numbers.
                frame[name] = frame[name].astype("category")
    outcome_columns = [roles[role] for role in ROLES if role in roles]
    if settings.drop_missing_outcome:
        complete = frame[outcome_columns].notna().all(axis=1)
        if not complete.all():
            notes.append(f"left out {int((~complete).sum())} of {len(frame)} rows, which have no complete outcome.")
            frame = frame[complete]
        if len(frame) == 0:
            raise InputError("no row has a complete outcome; nothing is left.")
    refuse_gaps(frame, outcome_columns)
    dates = settings.start_date is not None
    frame, note = without_zero_times(frame, roles["time"], settings.zero_times, dates=dates)
    notes += [note] if note else []
    read_as = event_note(words[frame.index], frame[event])
    return SurvivalTable(frame.reset_index(drop=True), roles, tuple(notes), read_as, settings)


def _without_row_numbers(frame: pd.DataFrame, settings: DataSettings, notes: list[str]) -> pd.DataFrame:
    """Leave out columns that do nothing but number the rows, unless they are asked for."""
    asked = {*settings.features, *settings.categorical, *_outcome_columns(settings).values()}
    found = {name: note for name, note in row_number_columns(frame).items() if name not in asked}
    notes += found.values()
    return frame.drop(columns=list(found))


def _check_roles(settings: DataSettings) -> None:
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
    for role, name in _outcome_columns(settings).items():
        if name in taken:
            raise InputError(f"column {name!r} is given as {option_name(taken[name])} and as {option_name(role)}.")
        taken[name] = role


def _outcome_columns(settings: DataSettings) -> dict[str, str]:
    """Return the columns that were given, by what they hold."""
    return {role: name for role in (*ROLES, *_DATE_ROLES) if (name := getattr(settings, role)) is not None}


def option_name(setting: str) -> str:
    """Return the option of a setting of the data."""
    return "--event-value" if setting == "event_values" else "--" + setting.replace("_", "-")


def check_columns(settings: DataSettings, columns: list[str]) -> None:
    """Refuse settings that name a column which is not there."""
    named = list(_outcome_columns(settings).items())
    named += [(many, name) for many in ("features", "drop", "categorical") for name in getattr(settings, many)]
    for setting, name in named:
        check_known(name, columns, what="column", where=option_name(setting))


def _selected(frame: pd.DataFrame, settings: DataSettings) -> pd.DataFrame:
    """Return the outcome and the covariates that were asked for."""
    outcome = list(_outcome_columns(settings).values())
    clash = [name for name in (*settings.features, *settings.drop, *settings.categorical) if name in outcome]
    if clash:
        raise InputError(f"column {clash[0]!r} belongs to the outcome and cannot be a covariate or be dropped.")
    both = [name for name in settings.features if name in settings.drop]
    if both:
        raise InputError(f"column {both[0]!r} is given as --features and as --drop.")
    wanted = set(settings.features) or set(frame.columns)
    kept = [name for name in frame.columns if name in outcome or (name in wanted and name not in settings.drop)]
    return frame[kept].copy()


def _with_durations(
    frame: pd.DataFrame, settings: DataSettings, roles: dict[str, str], notes: list[str]
) -> tuple[pd.DataFrame, dict[str, str]]:
    unit = settings.unit or "days"
    dates = {
        name: read_dates(frame[name], name, settings.date_format)
        for name in (settings.start_date, settings.end_date, settings.entry_date)
        if name is not None
    }
    made = {}
    for role, last in (("time", settings.end_date), ("entry", settings.entry_date)):
        if last is not None:
            name = f"{unit} from {settings.start_date} to {last}"
            made[name] = duration(dates[str(settings.start_date)], dates[last], unit)
            roles = {**roles, role: name}
            notes.append(f"the {role} is counted in {name}.")
    return frame.drop(columns=list(dates)).assign(**made), roles


def kept_roles(cohort: SurvivalTable) -> dict[str, str]:
    """Return how the outcome was read, for the model file, so that other commands read it the same way."""
    settings = cohort.settings
    found = {role: getattr(settings, role) for role in (*_DATE_ROLES, *_HOW)}
    for many in _LISTS:
        if getattr(settings, many):
            found[many] = json.dumps(list(getattr(settings, many)))
    return {**cohort.roles, **{role: value for role, value in found.items() if value is not None}}


def settings_of_model(columns: dict[str, str]) -> DataSettings:
    """Return how the outcome of a model's training rows was read, from what :func:`kept_roles` put into its file."""
    found = {role: columns[role] for role in (*ROLES, *_DATE_ROLES, *_HOW) if role in columns}
    lists = {many: tuple(json.loads(columns[many])) for many in _LISTS if many in columns}
    settings = replace(DataSettings(), **found, **lists)  # type: ignore[arg-type]
    if settings.start_date is not None:
        # Time and entry are made from the dates again.
        settings = replace(settings, time=None, entry=None if settings.entry_date is not None else settings.entry)
    return settings
