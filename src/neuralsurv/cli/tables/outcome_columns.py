"""The columns of the outcome as a file has them: dates, values of the event, gaps, rows whose time is 0."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import numpy as np
import pandas as pd

from neuralsurv.cli.options import UNITS
from neuralsurv.data.outcome_advice import half_step, is_word, likely_events, plain_form
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError
from neuralsurv.names import counted, listed, suggestion

ZERO_TIMES = ("half-step", "drop")
# From here on whole numbers are not exact as floats.
_LARGEST_WHOLE = 2.0**53
# Values of an event column that are listed by name.
_MOST_VALUES = 6
# With more different values than this, numbers are amounts and no codes.
_MOST_CODES = 10
_DAY = 86400.0
# Months and years are the mean ones of the Gregorian calendar: a year of 365.2425 days, a month a twelfth of it.
_SECONDS = dict(zip(UNITS, (1.0, 60.0, 3600.0, _DAY, 7 * _DAY, 365.2425 * _DAY / 12, 365.2425 * _DAY), strict=True))


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
    blank = text.map(lambda value: isinstance(value, str) and not value.strip()).astype(bool)
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


def event_note(text: pd.Series, flags: pd.Series) -> str:
    """Return a sentence on how :func:`event_flags` has read each value of the event column, given as text."""
    event = flags.astype(float) == 1
    parts = [
        f"{_listed(text[rows].value_counts())} → {meaning}"
        for rows, meaning in ((event, "event"), (~event, "censored"))
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
