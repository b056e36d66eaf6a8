"""From a file to a table that can be fitted, and an account of all that was done to it on the way."""

from __future__ import annotations

import json
import shlex
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.cli.durations import duration, read_dates
from neuralsurv.cli.settings import DataSettings
from neuralsurv.cli.tables import read_table
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.names import check_known, listed, suggestion

ROLES = ("time", "event", "entry", "weight", "id")
_DATE_ROLES = ("start_date", "end_date", "entry_date")


@dataclass(frozen=True)
class CohortTable:
    """A table with an outcome.

    Attributes
    ----------
    frame : DataFrame
        Covariates and the columns of the outcome.
    roles : dict
        Which column is time, event, entry, weight and id.
    notes : tuple of str
        What was done to the table, in words.
    settings : DataSettings
        Where it came from.
    """

    frame: pd.DataFrame
    roles: dict[str, str]
    notes: tuple[str, ...]
    settings: DataSettings

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
        """Whose row each is, if there is such a column."""
        return self.frame[self.roles["id"]].to_numpy() if "id" in self.roles else None


def read_cohort(settings: DataSettings) -> CohortTable:
    """Read a table and prepare its outcome; the covariates are as they are in the file.

    Parameters
    ----------
    settings : DataSettings
        What to read. Columns are checked before anything else, so that a typo is found at once.
    """
    if settings.file is None:
        raise InputError("there is no data file; name one, or set file in the [data] table of the config.")
    _check_roles(settings)
    as_text = {*settings.categorical, *([settings.event] if settings.event_values and settings.event else [])}
    frame = read_table(
        settings.file,
        text_columns=as_text,
        missing=settings.missing,
        separator=settings.separator,
        decimal=settings.decimal,
        encoding=settings.encoding,
    )
    _check_columns(settings, [str(name) for name in frame.columns])
    roles = {role: getattr(settings, role) for role in ROLES if getattr(settings, role) is not None}
    frame = _selected(frame, settings)
    notes: list[str] = []
    if settings.start_date is not None:
        frame, roles = _with_durations(frame, settings, roles, notes)
    if settings.event_values:
        frame[settings.event] = _event_flags(frame[str(settings.event)], settings)
    else:
        _check_event_is_no_word(frame[str(settings.event)])
    for name in settings.categorical:
        if name in frame:
            frame[name] = labels(frame[name])
    if settings.drop_missing_outcome:
        outcome_columns = [roles[role] for role in ROLES if role in roles]
        complete = frame[outcome_columns].notna().all(axis=1)
        if not complete.all():
            notes.append(f"left out {int((~complete).sum())} of {len(frame)} rows, which have no complete outcome.")
            frame = frame[complete].reset_index(drop=True)
        if len(frame) == 0:
            raise InputError("no row has a complete outcome; nothing is left.")
    return CohortTable(frame, roles, tuple(notes), settings)


def labels(values: pd.Series) -> pd.Series:
    """Return a column as text, whole numbers without a decimal point and gaps as they are."""
    if pd.api.types.is_float_dtype(values.dtype) and (values.dropna() % 1 == 0).all():
        values = values.astype("Int64")
    return values.map(str, na_action="ignore").astype(object).where(values.notna(), None)


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
    for role in (*ROLES, *_DATE_ROLES):
        name = getattr(settings, role)
        if name is not None and name in taken:
            raise InputError(f"column {name!r} is given as {_option(taken[name])} and as {_option(role)}.")
        if name is not None:
            taken[name] = role


def _option(role: str) -> str:
    return "--" + role.replace("_", "-")


def _check_columns(settings: DataSettings, columns: list[str]) -> None:
    for role in (*ROLES, *_DATE_ROLES):
        name = getattr(settings, role)
        if name is not None:
            check_known(name, columns, what="column", where=_option(role))
    for many in ("features", "drop", "categorical"):
        for name in getattr(settings, many):
            check_known(name, columns, what="column", where=_option(many))


def _selected(frame: pd.DataFrame, settings: DataSettings) -> pd.DataFrame:
    """Return the outcome and the covariates that were asked for."""
    outcome = [getattr(settings, role) for role in (*ROLES, *_DATE_ROLES) if getattr(settings, role) is not None]
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


def _event_flags(values: pd.Series, settings: DataSettings) -> Any:
    text = labels(values)
    present = sorted(set(text.dropna()))
    for value in settings.event_values:
        if value not in present:
            raise InputError(
                f"no row of column {settings.event!r} holds {value!r} (--event-value); "
                f"{suggestion(value, present)}Its values are {listed(present)}."
            )
    flags = text.isin(settings.event_values).astype(float)
    return flags.where(text.notna(), np.nan)


def _check_event_is_no_word(values: pd.Series) -> None:
    """Refuse words in the event column in a way that says what to type."""
    present = values.dropna()
    if pd.api.types.is_object_dtype(present.dtype) or pd.api.types.is_string_dtype(present.dtype):
        words = sorted(set(present.map(str)[pd.to_numeric(present, errors="coerce").isna()]))
        if words:
            raise InputError(
                f"column {values.name!r} holds words ({listed(words)}); say which of them mean the event, "
                f"for example --event-value {shlex.quote(words[-1])}."
            )


def kept_roles(cohort: CohortTable) -> dict[str, str]:
    """Return what a model file has to hold of how the outcome was read, so that other commands read it the same way."""
    settings = cohort.settings
    found = {role: getattr(settings, role) for role in (*_DATE_ROLES, "unit", "date_format")}
    if settings.event_values:
        found["event_values"] = json.dumps(list(settings.event_values))
    return {**cohort.roles, **{role: value for role, value in found.items() if value is not None}}


def settings_of_model(columns: dict[str, str]) -> DataSettings:
    """Return how the outcome of a model's training rows was read, from what :func:`kept_roles` put into its file."""
    found = {role: columns[role] for role in (*ROLES, *_DATE_ROLES, "unit", "date_format") if role in columns}
    settings = replace(DataSettings(), **found)  # type: ignore[arg-type]
    if "event_values" in columns:
        settings = replace(settings, event_values=tuple(json.loads(columns["event_values"])))
    if settings.start_date is not None:
        # Time and entry are made from the dates again.
        settings = replace(settings, time=None, entry=None if settings.entry_date is not None else settings.entry)
    return settings
