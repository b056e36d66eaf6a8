"""Dates turned into durations."""

from __future__ import annotations

import numpy as np
import pandas as pd

from neuralsurv.cli.settings import UNITS
from neuralsurv.data.row_values import rows_phrase
from neuralsurv.errors import InputError

_DAY = 86400.0
# Months and years are the mean ones of the Gregorian calendar: a year of 365.2425 days, a month a twelfth of it.
_SECONDS = dict(zip(UNITS, (1.0, 60.0, 3600.0, _DAY, 7 * _DAY, 365.2425 * _DAY / 12, 365.2425 * _DAY), strict=True))


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
            problem = (
                f"are not of the format {date_format}"
                if date_format
                else "are not dates like 2024-03-31 (years 1678 to 2261)"
            )
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
