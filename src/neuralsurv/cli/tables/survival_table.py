"""A table with an outcome, read from a file, with a note on everything that was changed on the way.

The outcome is as a file has it: dates, values of the event, gaps, rows whose time is 0.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from neuralsurv.cli.messages import Messages
from neuralsurv.cli.options import UNITS, DataSettings
from neuralsurv.cli.tables.covariate_checks import refuse_decimal_commas, row_number_columns
from neuralsurv.cli.tables.roles import DATE_ROLES, ROLES, check_file, option_name, outcome_columns
from neuralsurv.cli.tables.table_input import is_text_file, read_table
from neuralsurv.data.cause_values import CauseColumn, read_causes
from neuralsurv.data.comma_numbers import decimal_comma
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.outcome_advice import half_step, is_word, likely_events, plain_form
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.names import check_known, counted, listed, suggestion

# How the columns are read, which a model file keeps as well.
_HOW = ("unit", "date_format", "zero_times")
_LISTS = ("event_values", "missing")
ZERO_TIMES = ("half-step", "drop")
# From here on whole numbers are not exact as floats.
_LARGEST_WHOLE = 2.0**53
# Values of an event column that are listed by name.
_MOST_VALUES = 6
# With more different values than this, numbers are amounts and no codes.
_MOST_CODES = 10
_DAY = 86400.0
# Files of up to this many bytes are read in a fraction of a second.
_READ_TWICE = 2**23
# Months and years are the mean ones of the Gregorian calendar: a year of 365.2425 days, a month a twelfth of it.
_SECONDS = dict(zip(UNITS, (1.0, 60.0, 3600.0, _DAY, 7 * _DAY, 365.2425 * _DAY / 12, 365.2425 * _DAY), strict=True))


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
            names=[self.roles.get(role, role) for role in ROLES[:4]], several=True,
        )  # fmt: skip

    @property
    def subject(self) -> np.ndarray | None:
        """The subject of each row, if there is such a column."""
        return self.frame[self.roles["id"]].to_numpy() if "id" in self.roles else None


def read_survival_table(
    settings: DataSettings, needed: Collection[str] = (), *, several: bool = False
) -> SurvivalTable:
    """Read a table and prepare its outcome; the covariates are as they are in the file.

    With `several`, an event column may name several causes where no value is said to mean the event.

    Columns are checked before anything else, so that a typo is found at once. Of the covariates only the `needed` ones
    of a fitted model are checked, or all if there are none.
    """
    file = check_file(settings)
    as_text = {*settings.categorical, *([settings.event] if settings.event_values and settings.event else [])}
    notes: list[str] = []
    frame = read_table(file, text_columns=as_text, notes=notes, **settings.reading)
    check_columns(settings, [str(name) for name in frame.columns])
    roles = {role: getattr(settings, role) for role in ROLES if getattr(settings, role) is not None}
    frame = _selected(frame, settings)
    frame = frame if needed else _without_row_numbers(frame, settings, notes)
    event = str(settings.event)
    texts = {event, *settings.categorical}
    looked_at = [name for name in frame if name not in texts and (not needed or name in {*needed, *roles.values()})]
    refuse_decimal_commas(frame[looked_at], text_file=is_text_file(file))
    if settings.start_date is not None:
        frame, roles = _with_durations(frame, settings, roles, notes)
    words = labels(frame[event])
    causes = several_causes(words) if several and not settings.event_values else None
    if causes is None:
        frame[event] = event_flags(frame[event], settings.event_values)
    else:
        frame[event] = words.where(~is_blank(words), None)
    for name in settings.categorical:
        if name in frame:
            frame[name] = labels(frame[name])
            if decimal_comma(frame[name].dropna()) is not None:
                # As text they would be refused, but --categorical says that these are not numbers.
                frame[name] = frame[name].astype("category")
    of_outcome = [roles[role] for role in ROLES if role in roles]
    if settings.drop_missing_outcome:
        complete = frame[of_outcome].notna().all(axis=1)
        if not complete.all():
            notes.append(f"left out {int((~complete).sum())} of {len(frame)} rows, which have no complete outcome.")
            frame = frame[complete]
        if len(frame) == 0:
            raise InputError("no row has a complete outcome; nothing is left.")
    refuse_gaps(frame, of_outcome)
    dates = settings.start_date is not None
    frame, note = without_zero_times(frame, roles["time"], settings.zero_times, dates=dates)
    notes += [note] if note else []
    read_as = event_note(words[frame.index], frame[event], causes)
    return SurvivalTable(frame.reset_index(drop=True), roles, tuple(notes), read_as, settings)


def check_table(settings: DataSettings) -> None:
    """Refuse settings whose file or columns are not there, before anything is imported that takes long.

    The columns of a large file are left to who reads it: reading it twice would take longer.
    """
    file = check_file(settings)
    if not (file.is_file() and file.stat().st_size > _READ_TWICE):
        check_columns(settings, [str(name) for name in read_table(file, **settings.reading).columns])


def _without_row_numbers(frame: pd.DataFrame, settings: DataSettings, notes: list[str]) -> pd.DataFrame:
    """Leave out columns that do nothing but number the rows, unless they are asked for."""
    asked = {*settings.features, *settings.categorical, *outcome_columns(settings).values()}
    found = {name: note for name, note in row_number_columns(frame).items() if name not in asked}
    notes += found.values()
    return frame.drop(columns=list(found))


def check_columns(settings: DataSettings, columns: list[str]) -> None:
    """Refuse settings that name a column which is not there."""
    named = list(outcome_columns(settings).items())
    named += [(many, name) for many in ("features", "drop", "categorical") for name in getattr(settings, many)]
    for setting, name in named:
        check_known(name, columns, what="column", where=option_name(setting))


def _selected(frame: pd.DataFrame, settings: DataSettings) -> pd.DataFrame:
    """Return the outcome and the covariates that were asked for."""
    outcome = list(outcome_columns(settings).values())
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
    found = {role: getattr(settings, role) for role in (*DATE_ROLES, *_HOW)}
    for many in _LISTS:
        if getattr(settings, many):
            found[many] = json.dumps(list(getattr(settings, many)))
    return {**cohort.roles, **{role: value for role, value in found.items() if value is not None}}


def settings_of_model(columns: dict[str, str]) -> DataSettings:
    """Return how the outcome of a model's training rows was read, from what :func:`kept_roles` put into its file."""
    found = {role: columns[role] for role in (*ROLES, *DATE_ROLES, *_HOW) if role in columns}
    lists = {many: tuple(json.loads(columns[many])) for many in _LISTS if many in columns}
    settings = replace(DataSettings(), **found, **lists)  # type: ignore[arg-type]
    if settings.start_date is not None:
        # Time and entry are made from the dates again.
        settings = replace(settings, time=None, entry=None if settings.entry_date is not None else settings.entry)
    return settings


def labels(values: pd.Series) -> pd.Series:
    """Return a column as text, whole numbers without a decimal point and gaps as they are."""
    if pd.api.types.is_float_dtype(values.dtype):
        present = values.dropna()
        if (present % 1 == 0).all() and (present.abs() < _LARGEST_WHOLE).all():
            # As objects: a whole number beside a gap would be mapped as a float.
            values = values.astype("Int64").astype(object)
    return values.map(str, na_action="ignore").astype(object).where(values.notna(), None)


def event_flags(values: pd.Series, chosen: tuple[str, ...]) -> pd.Series:
    """Return 1 where an event column means the event, 0 where it holds another value, NaN where it is missing.

    `chosen` are the texts that mean the event (``--event-value``); without any the column must hold 0 and 1, or true
    and false.
    """
    text = labels(values)
    # A cell of spaces or tabs is as empty as one of nothing.
    blank = is_blank(text)
    values, text = (column.mask(blank) if blank.any() else column for column in (values, text))
    counts = text.value_counts()
    if not chosen:
        _check_is_flag(values, counts)
        return values
    for value in chosen:
        if value not in counts.index:
            raise InputError(
                f"no row of column {values.name!r} holds {value!r} (--event-value); "
                + suggestion(value, sorted(counts.index), f"Its values are {_listed(counts)}.")
            )
    _refuse_variants(str(values.name), chosen, counts)
    return text.isin(chosen).astype(float).where(text.notna(), np.nan)


def is_blank(text: pd.Series) -> pd.Series:
    """Return where a column of text has no more than spaces."""
    return text.map(lambda value: isinstance(value, str) and not value.strip()).astype(bool)


def several_causes(text: pd.Series) -> CauseColumn | None:
    """Return how an event column of text, with gaps, is read if it names several causes; else None."""
    given = text[text.notna() & ~is_blank(text)]
    try:
        return read_causes(given.to_numpy(dtype=object), str(text.name)) if len(given) else None
    except InputError:
        # Unclear columns are refused with what to type.
        return None


def event_note(text: pd.Series, flags: pd.Series, causes: CauseColumn | None = None) -> str:
    """Return a sentence on how each value of the event column, given as text, was read."""
    event = flags.astype(float) == 1 if causes is None else text != causes.censoring
    parts = [
        f"{_listed(text[rows].value_counts())} → {meaning}"
        for rows, meaning in ((event, "event" if causes is None else "causes of events"), (~event, "censored"))
        if rows.any()
    ]
    return f"{text.name}: {'; '.join(parts)}."


def _listed(counts: pd.Series) -> str:
    """Return the most frequent values with their counts, and how many others there are."""
    shown = ", ".join(f"{value} ({count})" for value, count in counts.iloc[:_MOST_VALUES].items())
    others = counts.iloc[_MOST_VALUES:]
    return shown + (f" and {counted(len(others), 'other value')} ({others.sum()})" if len(others) else "")


def _refuse_variants(name: str, chosen: tuple[str, ...], counts: pd.Series) -> None:
    """Refuse values that differ from those of the event only in how they are written."""
    meant = {plain_form(value): value for value in chosen}
    variants = [value for value in counts.index if value not in chosen and plain_form(value) in meant]
    if variants:
        first = meant[plain_form(variants[0])]
        written = ", ".join(f"{value!r} ({counted(counts[value], 'row')})" for value in variants)
        raise InputError(
            f"column {name!r} holds {written} beside {first!r} ({counted(counts[first], 'row')}), written differently "
            f"only in case, spaces, accents or zeros; if they mean the event too, add {_typed(variants)}, otherwise "
            "rename them in the file."
        )


def _typed(values: Sequence[str]) -> str:
    return " ".join(f"--event-value {shlex.quote(value)}" for value in values)


def _check_is_flag(values: pd.Series, counts: pd.Series) -> None:
    """Refuse a column of words, or of codes other than 0 and 1, and say what to type."""
    if pd.api.types.is_bool_dtype(values.dtype) or set(counts.index) <= {"True", "False"}:
        return
    words = sorted(value for value in counts.index if is_word(value))
    if words:
        raise InputError(
            f"column {values.name!r} holds words ({listed(words)}); say which of them mean the event, "
            f"for example {_typed(likely_events(words))}."
        )
    found = {float(value): value for value in counts.index}
    if set(found) <= {0.0, 1.0} or len(found) > _MOST_CODES:
        # Amounts are refused with the other checks of the outcome.
        return
    highest = found[max(found)]
    r = "R codes censored as 1 and the event as 2; " if set(found) == {1.0, 2.0} else ""
    raise InputError(
        f"column {values.name!r} must be 0/1 or true/false, but holds {_listed(counts.sort_index())}; {r}say which "
        f"value means the event: --event-value {highest}."
    )


def refuse_gaps(frame: pd.DataFrame, columns: Sequence[str]) -> None:
    """Refuse rows that lack a value of the outcome."""
    for name in columns:
        gone = frame[name].isna().to_numpy()
        if gone.any():
            raise InputError(
                f"column {name!r} is missing (NaN) in {rows_phrase(gone)}; fill them in, or leave these rows out: "
                "--drop-missing-outcome."
            )


def without_zero_times(frame: pd.DataFrame, time: str, wanted: str | None, *, dates: bool) -> tuple[pd.DataFrame, str]:
    """Return a table without rows whose time is 0, and a note on what was done to them (empty if there are none).

    `wanted` is one of ``ZERO_TIMES``, or None to refuse such rows; `dates` whether the time was counted between two
    dates.
    """
    if wanted is not None and wanted not in ZERO_TIMES:
        raise InputError(f"--zero-times {wanted!r} is not known; use {' or '.join(ZERO_TIMES)}.")
    if not pd.api.types.is_numeric_dtype(frame[time].dtype):
        return frame, ""
    times = frame[time].to_numpy(dtype=np.float64, na_value=np.nan)
    if (times < 0).any():
        why = "the end date lies before the start date" if dates else "a duration starts at 0"
        where = _in_file(frame, times < 0)
        raise InputError(f"column {time!r} is negative in {where}: {why}; correct or drop these rows.")
    zero = times == 0
    if not zero.any():
        return frame, ""
    step = half_step(times[np.isfinite(times)])
    if wanted is None:
        why = ": both dates are the same" if dates else ""
        raise InputError(
            f"column {time!r} is 0 in {_in_file(frame, zero)}{why}; a row must be observed for some time. Add half of "
            f"the smallest step between times, {step:g}, to these rows: --zero-times half-step; or leave them out: "
            "--zero-times drop."
        )
    if wanted == "drop":
        if zero.all():
            raise InputError(f"column {time!r} is 0 in every row; nothing is left.")
        note = f"left out {int(zero.sum())} of {len(frame)} rows, in which {time!r} is 0 (--zero-times drop)."
        return frame[~zero], note
    note = (
        f"added {step:g}, half of the smallest step between times, to {int(zero.sum())} of {len(frame)} rows, in which "
        f"{time!r} is 0 (--zero-times half-step)."
    )
    return frame.assign(**{time: np.where(zero, step, times)}), note


def _in_file(frame: pd.DataFrame, rows: np.ndarray) -> str:
    """Name rows by their place in the file, from which some may have been left out."""
    found = np.zeros(int(frame.index.max()) + 1, dtype=bool)
    found[frame.index[rows]] = True
    return rows_phrase(found)


def read_dates(values: pd.Series, name: str, date_format: str | None) -> pd.Series:
    """Return a column as dates, NaT where a value is missing.

    They are ISO 8601 (2024-03-31) unless a format as in ``strptime`` is given, because 03/04/2024 means two days.
    """
    if pd.api.types.is_datetime64_any_dtype(values.dtype):
        dates = pd.Series(values)
    else:
        if pd.api.types.is_numeric_dtype(values.dtype) and date_format is None and values.notna().any():
            raise InputError(
                f"column {name!r} holds numbers such as {values.dropna().iloc[0]:g}, not dates; say how they are "
                "written, for example --date-format %Y%m%d, or use --time for a duration."
            )
        text = values.map(_as_text, na_action="ignore")
        try:
            dates = pd.to_datetime(text, format=date_format or "ISO8601", errors="coerce", utc=True)
        except ValueError as error:
            raise InputError(f"--date-format {date_format!r} is not a format of dates: {error}.") from error
        bad = (dates.isna() & values.notna()).to_numpy()
        if bad.any():
            example = text[bad].iloc[0]
            usual = "are not dates like 2024-03-31 (years 1678 to 2261)"
            problem = f"are not of the format {date_format}" if date_format else usual
            raise InputError(
                f"column {name!r} holds {example!r} and the like in {rows_phrase(bad)}, which {problem}; "
                "say how they are written, for example --date-format %d.%m.%Y."
            )
    # Milliseconds: differences of nanoseconds overflow after 292 years.
    dates = dates.dt.as_unit("ms")
    return dates.dt.tz_localize("UTC") if dates.dt.tz is None else dates.dt.tz_convert("UTC")


def _as_text(value: object) -> str:
    # 20240331 in a column with gaps has been read as 20240331.0
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value).strip()


def duration(start: pd.Series, end: pd.Series, unit: str) -> np.ndarray:
    """Return the time from one date to another in one of ``UNITS``, NaN where one is missing."""
    if unit not in _SECONDS:
        raise InputError(f"the unit {unit!r} is not known; use one of {', '.join(UNITS)}.")
    return np.asarray((end - start).dt.total_seconds().to_numpy(dtype=np.float64) / _SECONDS[unit])
