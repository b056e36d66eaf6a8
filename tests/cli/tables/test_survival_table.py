import numpy as np
import pandas as pd
import pytest

from neuralsurv.cli.options import UNITS
from neuralsurv.cli.tables.survival_table import (
    duration,
    event_flags,
    event_note,
    labels,
    read_dates,
    refuse_gaps,
    without_zero_times,
)
from neuralsurv.errors import InputError


def status(*values):
    return pd.Series(values, name="status")


def read(values, *chosen):
    flags = event_flags(values, chosen)
    return event_note(labels(values), flags)


def test_every_value_is_named_with_what_it_means():
    assert (
        read(status(*["Dead"] * 3, "Alive", "lost"), "Dead")
        == "status: Dead (3) → event; Alive (1), lost (1) → censored."
    )
    assert read(status(1, 0, 1)) == "status: 1 (2) → event; 0 (1) → censored."
    assert read(status(1.0, 0.0, 1.0)) == "status: 1 (2) → event; 0 (1) → censored."
    assert read(status(True, False, True)) == "status: True (2) → event; False (1) → censored."
    assert read(status("1", "2", "2"), "2") == "status: 2 (2) → event; 1 (1) → censored."
    assert read(status(1, 1)) == "status: 1 (2) → event."


def test_of_many_values_the_most_frequent_are_named():
    values = status("dead", *[f"code {k}" for k in range(10)], "code 3")
    assert read(values, "dead").startswith("status: dead (1) → event; code 3 (2), ")
    assert read(values, "dead").endswith(" and 4 other values (4) → censored.")


@pytest.mark.parametrize(
    ("variant", "typed"),
    [
        ("dead", "--event-value dead"),
        ("Dead ", "--event-value 'Dead '"),
        ("De ad", "--event-value 'De ad'"),
        ("Déad", "--event-value 'Déad'"),
    ],
)
def test_another_spelling_of_the_event_is_refused(variant, typed):
    values = status("Dead", "Dead", "Alive", variant)
    with pytest.raises(InputError) as caught:
        event_flags(values, ("Dead",))
    assert str(caught.value) == (
        f"column 'status' holds {variant!r} (1 row) beside 'Dead' (2 rows), written differently only in case, spaces, "
        f"accents or zeros; if they mean the event too, add {typed}, otherwise rename them in the file."
    )
    assert event_flags(values, ("Dead", variant)).tolist() == [1, 1, 0, 1]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ((1, 2, 2), r"holds 1 \(1\), 2 \(2\); R codes censored as 1 and the event as 2; .*: --event-value 2\."),
        ((0, 1, 2), r"must be 0/1 or true/false, but holds 0 \(1\), 1 \(1\), 2 \(1\); say which .*: --event-value 2\."),
        (("no", "yes"), r"holds words \(no, yes\); .* for example --event-value yes\."),
        (("Alive", "Dead", "dead"), r"words .* for example --event-value Dead --event-value dead\."),
    ],
)
def test_other_codings_are_refused_with_the_flag(values, message):
    with pytest.raises(InputError, match=message):
        event_flags(status(*values), ())


def test_an_amount_is_left_to_the_other_checks():
    values = pd.Series(np.arange(30.0), name="age")
    assert event_flags(values, ()) is values


def test_whole_numbers_are_text_without_a_point_unless_they_are_huge():
    assert labels(pd.Series([1.0, np.nan, 2.0])).tolist() == ["1", None, "2"]
    assert labels(pd.Series([1.0, 1e300])).tolist() == ["1.0", "1e+300"]


def test_a_cell_of_spaces_is_a_gap():
    for chosen in ((), ("1",)):
        flags = event_flags(status("1", "\t", "0"), chosen)
        assert flags.isna().tolist() == [False, True, False]


def test_gaps_are_neither_event_nor_censored_and_are_refused():
    flags = event_flags(status("Dead", None, "Alive"), ("Dead",))
    assert flags.isna().tolist() == [False, True, False]
    with pytest.raises(
        InputError,
        match=r"'status' is missing \(NaN\) in 1 row \(row 1, counting from 0\); .* --drop-missing-outcome\.",
    ):
        refuse_gaps(flags.to_frame("status"), ["status"])


TIMES = pd.DataFrame({"days": [0, 3, 5, 0, 12], "age": range(5)})


def test_zero_times():
    with pytest.raises(
        InputError,
        match=r"'days' is 0 in 2 rows \(rows 0, 3, counting from 0\); .*, 1, to .* half-step; .*--zero-times drop\.",
    ):
        without_zero_times(TIMES, "days", None, dates=False)
    with pytest.raises(InputError, match=r"2 rows \(rows 0, 3, counting from 0\): both dates are the same; a row"):
        without_zero_times(TIMES, "days", None, dates=True)
    with pytest.raises(InputError, match="--zero-times 'halfstep' is not known; use half-step or drop"):
        without_zero_times(TIMES, "days", "halfstep", dates=False)
    frame, told = without_zero_times(TIMES, "days", "half-step", dates=False)
    assert frame["days"].tolist() == [1, 3, 5, 1, 12]
    assert told == (
        "added 1, half of the smallest step between times, to 2 of 5 rows, in which 'days' is 0 "
        "(--zero-times half-step)."
    )
    frame, told = without_zero_times(TIMES, "days", "drop", dates=False)
    assert frame["days"].tolist() == [3, 5, 12]
    assert told == "left out 2 of 5 rows, in which 'days' is 0 (--zero-times drop)."
    assert TIMES["days"].tolist() == [0, 3, 5, 0, 12]


def test_rows_are_counted_as_in_the_file():
    with pytest.raises(InputError, match=r"is 0 in 1 row \(row 3, counting from 0\)"):
        without_zero_times(TIMES.drop(index=[0, 1]), "days", None, dates=False)


def test_times_without_zeros_and_times_that_are_no_numbers_are_as_they_are():
    for frame in (TIMES[TIMES["days"] > 0], pd.DataFrame({"days": ["a"]})):
        found, told = without_zero_times(frame, "days", "drop", dates=False)
        assert found is frame
        assert told == ""


def test_negative_times_and_nothing_left():
    negative = pd.DataFrame({"days": [-2, 0, 3]})
    with pytest.raises(
        InputError,
        match=r"'days' is negative in 1 row \(row 0, counting from 0\): a duration starts at 0; correct or drop",
    ):
        without_zero_times(negative, "days", "drop", dates=False)
    with pytest.raises(
        InputError, match=r"\(row 0, counting from 0\): the end date lies before the start date; correct"
    ):
        without_zero_times(negative, "days", "drop", dates=True)
    with pytest.raises(InputError, match="'days' is 0 in every row; nothing is left"):
        without_zero_times(pd.DataFrame({"days": [0, 0]}), "days", "drop", dates=False)


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
