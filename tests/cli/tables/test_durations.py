import numpy as np
import pandas as pd
import pytest

from neuralsurv.cli.settings import UNITS
from neuralsurv.cli.tables.durations import duration, read_dates
from neuralsurv.errors import InputError


def test_dates_and_gaps():
    dates = read_dates(pd.Series(["2024-02-28", None, "2024-03-01T12:00:00"]), "left", None)
    ends = duration(dates.iloc[[0, 1]].reset_index(drop=True), dates.iloc[[2, 2]].reset_index(drop=True), "days")
    # 2024 is a leap year: one day to the 29th, one to 1 March, and a half.
    assert ends[0] == 2.5
    assert np.isnan(ends[1])


def test_units_are_consistent():
    start = read_dates(pd.Series(["1700-01-01"]), "a", None)
    end = read_dates(pd.Series(["2100-01-01"]), "b", None)
    # 400 years of the Gregorian calendar are 146,097 days.
    found = {unit: duration(start, end, unit)[0] for unit in UNITS}
    assert found["days"] == 146_097
    assert found["years"] == pytest.approx(400, rel=1e-12)
    assert found["months"] == pytest.approx(4800, rel=1e-12)
    assert found["weeks"] == 146_097 / 7
    assert found["hours"] == 24 * 146_097
    assert found["minutes"] == 60 * found["hours"]
    assert found["seconds"] == 60 * found["minutes"]


def test_real_dates_zones_and_numbers_with_a_format():
    local = pd.Series(pd.to_datetime(["2024-01-01 00:00", "2024-01-02 00:00"]).tz_localize("Europe/Berlin"))
    utc = pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"]))
    assert duration(read_dates(local, "a", None), read_dates(utc, "b", None), "hours").tolist() == [1, 1]
    packed = read_dates(pd.Series([20240131.0, np.nan]), "c", "%Y%m%d")
    assert packed[0] == pd.Timestamp("2024-01-31", tz="UTC")
    assert packed.isna()[1]


@pytest.mark.parametrize(
    ("values", "date_format", "message"),
    [
        (
            ["2024-01-01", "03/04/2024"],
            None,
            r"holds '03/04/2024' and the like in 1 row \(row 1, counting from 0\), which are not dates",
        ),
        (["2024-01-01"], "%d.%m.%Y", "which are not of the format %d.%m.%Y; say how they are written"),
        ([45000, 45001], None, "column 'left' holds numbers such as 45000, not dates"),
        (["2024-01-01"], "%Q", "--date-format '%Q' is not a format of dates"),
    ],
)
def test_what_is_not_a_date(values, date_format, message):
    with pytest.raises(InputError, match=message):
        read_dates(pd.Series(values), "left", date_format)


def test_unknown_unit():
    day = read_dates(pd.Series(["2024-01-01"]), "a", None)
    with pytest.raises(InputError, match="the unit 'fortnights' is not known; use one of seconds, minutes"):
        duration(day, day, "fortnights")
