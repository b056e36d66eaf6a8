"""Every accepted form of y, every refusal, and the weights that encodings are fitted with."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError

TIME = [5.0, 8.0, 3.0]
EVENT = [1, 0, 1]
STRUCTURED = np.array([(True, 5.0), (False, 8.0), (True, 3.0)], dtype=[("died", bool), ("days", float)])


def as_object(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


def read_only(values):
    array = np.array(values)
    array.flags.writeable = False
    return array


def assert_plain(outcome, *, time=TIME, event=EVENT, entry=(0, 0, 0), weight=(1, 1, 1)):
    for found, wanted in (
        (outcome.time, time),
        (outcome.event, event),
        (outcome.entry, entry),
        (outcome.weight, weight),
    ):
        assert found.tolist() == list(wanted)
    assert outcome.event.dtype == bool
    assert [values.dtype for values in (outcome.time, outcome.entry, outcome.weight)] == [np.float64] * 3


class TestForms:
    @pytest.mark.parametrize("fields", [["died", "days"], ["days", "died"]], ids=["event first", "time first"])
    def test_structured_array_in_either_order(self, fields):
        y = np.empty(3, dtype=[(name, STRUCTURED.dtype[name]) for name in fields])
        for name in fields:
            y[name] = STRUCTURED[name]
        assert_plain(Outcome.from_any(y))

    def test_structured_column_and_record_array(self):
        assert_plain(Outcome.from_any(STRUCTURED[:, None]))
        assert_plain(Outcome.from_any(STRUCTURED.view(np.recarray)))

    def test_structured_with_entry_and_weight(self):
        outcome = Outcome.from_any(STRUCTURED, entry=[1, 2, 0], weight=[2, 1, 3])
        assert_plain(outcome, entry=[1, 2, 0], weight=[2, 1, 3])

    def test_pair(self):
        assert_plain(Outcome.from_any((TIME, EVENT)))

    def test_pair_with_entry_and_weight(self):
        outcome = Outcome.from_any((TIME, EVENT), entry=[1, 2, 0], weight=[2, 0, 3])
        assert_plain(outcome, entry=[1, 2, 0], weight=[2, 0, 3])

    def test_triple(self):
        assert_plain(Outcome.from_any(([1, 2, 0], TIME, EVENT), weight=[2, 0, 3]), entry=[1, 2, 0], weight=[2, 0, 3])

    @pytest.mark.parametrize("extra", [{}, {"entry": [1, 2, 0]}, {"weight": [2, 0, 3]}], ids=str)
    def test_frame(self, extra):
        frame = pd.DataFrame({"event": EVENT, "time": TIME, "unrelated": "x", **extra})
        assert_plain(Outcome.from_any(frame), **extra)

    def test_frame_with_other_names(self):
        frame = pd.DataFrame({"days": TIME, "died": EVENT, "from": [1, 2, 0], "count": [2, 0, 3]})
        outcome = Outcome.from_frame(frame, "days", "died", "from", "count")
        assert_plain(outcome, entry=[1, 2, 0], weight=[2, 0, 3])

    def test_outcome_is_returned_as_it_is(self):
        outcome = Outcome.from_arrays(TIME, EVENT)
        assert Outcome.from_any(outcome) is outcome

    @pytest.mark.parametrize("form", [pd.DataFrame, lambda columns: Outcome.from_arrays(**columns)])
    def test_arguments_take_the_place_of_what_y_holds(self, form):
        y = form({"time": TIME, "event": EVENT, "entry": [1, 2, 0], "weight": [2, 0, 3]})
        assert_plain(Outcome.from_any(y, entry=[0, 0, 1]), entry=[0, 0, 1], weight=[2, 0, 3])
        assert_plain(Outcome.from_any(y, weight=[4, 5, 6]), entry=[1, 2, 0], weight=[4, 5, 6])

    @pytest.mark.parametrize(
        "convert",
        [
            list,
            tuple,
            np.array,
            read_only,
            as_object,
            lambda v: np.array(v, dtype=np.int32),
            lambda v: np.array(v, dtype=np.uint8),
            lambda v: np.array(v, dtype=np.float32),
            lambda v: np.array(v, dtype=np.longdouble),
            lambda v: np.array(v)[:, None],
            lambda v: np.ma.array(v, mask=False),
            lambda v: pd.Series(v, index=[7, 7, 2]),
            lambda v: pd.Series(v, dtype="Float64"),
            lambda v: pd.Series(v, dtype="Int64"),
            lambda v: pd.Series(v, dtype="double[pyarrow]"),
            lambda v: pd.Series(v, dtype="category"),
            lambda v: pd.Index(v),
            lambda v: as_object([decimal.Decimal(int(one)) for one in v]),
            lambda v: [str(one) for one in v],
        ],
    )
    def test_columns_of_numbers(self, convert):
        outcome = Outcome.from_arrays(*(convert(v) for v in (TIME, EVENT, [1, 2, 0], [2, 0, 3])))
        assert_plain(outcome, entry=[1, 2, 0], weight=[2, 0, 3])

    @pytest.mark.parametrize("dtype", [bool, "boolean", "bool[pyarrow]", object, np.int8, np.float32])
    def test_event_types(self, dtype):
        assert_plain(Outcome.from_arrays(TIME, pd.Series([True, False, True]).astype(dtype)))

    def test_event_column_of_bools(self):
        assert_plain(Outcome.from_arrays(TIME, np.array([[True], [False], [True]])))

    def test_nothing_is_shared_with_the_input(self):
        given = [np.array(TIME), np.array(EVENT, dtype=bool), np.zeros(3), np.ones(3)]
        before = [one.copy() for one in given]
        outcome = Outcome.from_arrays(*given)
        for mine in (outcome.time, outcome.event, outcome.entry, outcome.weight):
            mine[:] = 0
        for one, old in zip(given, before, strict=True):
            np.testing.assert_array_equal(one, old)

    def test_length_and_selection(self):
        outcome = Outcome.from_arrays(TIME, EVENT, [1, 2, 0], [2, 0, 3])
        assert len(outcome) == 3
        picked = outcome.select(np.array([False, True, True]))
        assert_plain(picked, time=[8, 3], event=[0, 1], entry=[2, 0], weight=[0, 3])


class TestRefusals:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"time": [5, np.nan, np.nan]},
                r"column 'time' is missing \(NaN\) in 2 rows \(rows 1, 2, counting from 0\); drop these rows",
            ),
            (
                {"time": pd.array([5, 8, None], "Float64")},
                r"'time' is missing \(NaN\) in 1 row \(row 2, counting from 0\); drop",
            ),
            (
                {"time": pd.array([5, None, 3], "Int64")},
                r"'time' is missing \(NaN\) in 1 row \(row 1, counting from 0\); drop",
            ),
            (
                {"time": as_object([pd.NA, 8, 3])},
                r"'time' is missing \(NaN\) in 1 row \(row 0, counting from 0\); drop",
            ),
            (
                {"time": np.ma.array(TIME, mask=[0, 1, 0])},
                r"'time' is missing \(NaN\) in 1 row \(row 1, counting from 0\); drop",
            ),
            ({"event": [1, np.nan, 0]}, r"column 'event' is missing \(NaN\) in 1 row \(row 1, counting from 0\); drop"),
            (
                {"event": pd.array([True, None, True], "boolean")},
                r"'event' is missing \(NaN\) in 1 row \(row 1, counting from 0\)",
            ),
            ({"entry": [0, None, 0]}, r"column 'entry' is missing \(NaN\) in 1 row \(row 1, counting from 0\); drop"),
            (
                {"weight": [np.nan, 1, 1]},
                r"column 'weight' is missing \(NaN\) in 1 row \(row 0, counting from 0\); drop",
            ),
            (
                {"time": [5, np.inf, 3]},
                r"column 'time' is infinite in 1 row \(row 1, counting from 0\); drop these rows or enter",
            ),
            ({"event": [1, -np.inf, 0]}, r"column 'event' is infinite in 1 row \(row 1, counting from 0\)"),
            ({"entry": [-np.inf, 0, 0]}, r"column 'entry' is infinite in 1 row \(row 0, counting from 0\)"),
            ({"weight": [1, 1, np.inf]}, r"column 'weight' is infinite in 1 row \(row 2, counting from 0\)"),
            (
                {"time": [0, -8, 3]},
                r"column 'time' is zero or negative in 2 rows \(rows 0, 1, counting from 0\); .* Drop these rows: df",
            ),
            ({"time": [0, 8, 3]}, r"zero or negative in 1 row .* df\.loc\[df\['time'\] == 0, 'time'\] = 1\.5\."),
            (
                {"entry": [0, -1, 0]},
                r"column 'entry' is negative in 1 row \(row 1, counting from 0\); time starts at 0",
            ),
            ({"entry": [5, 0, 0]}, r"'entry' is not before column 'time' in 1 row \(row 0, counting from 0\)"),
            (
                {"entry": [5, 9, 0]},
                r"'entry' is not before column 'time' in 2 rows \(rows 0, 1, counting from 0\); .* Drop or correct",
            ),
            (
                {"weight": [-1, 1, -2]},
                r"column 'weight' is negative in 2 rows \(rows 0, 2, counting from 0\); weights count rows",
            ),
            (
                {"time": [1e-310, 5e-324, 1e-301]},
                r"largest value of column 'time' is 1e-301; it must lie between 1e-300",
            ),
            ({"time": [5, 1e301, 3]}, r"largest value of column 'time' is 1e\+301; .* Count time in another unit"),
            (
                {"time": [1e-255, 1e111, 3]},
                r"'time' is so small beside the largest, 1e\+111, .* left of 1 row \(row 0, counting from 0\)",
            ),
            ({"weight": [1e12, 1, 1]}, r"column 'weight' adds up to 1e\+12; weights count rows, .* Divide the weights"),
            ({"weight": [1.7e308, 1.7e308, 1]}, r"column 'weight' adds up to inf; weights count rows"),
            (
                {"event": [1, 2, 0]},
                r"'event' must be 0/1 or True/False, but holds 2 and the like in 1 row \(row 1, counting from 0\)",
            ),
            (
                {"event": [0.5, 1, -1]},
                r"holds 0\.5 and the like in 2 rows \(rows 0, 2, counting from 0\); say which value means the event",
            ),
            (
                {"event": [1, 2, 2]},
                r"R codes censored as 1 and the event as 2: .*, for example df\['event'\] = .* == 2\.",
            ),
            (
                {"event": ["yes", "no", "no"]},
                r"must be 0/1 .*, but holds words \('no', 'yes'\); .* df\['event'\] = df\['event'\] == 'yes'\.",
            ),
            (
                {"event": ["Dead", "alive", "dead"]},
                r"holds words \('Dead', 'alive', 'dead'\); .* = df\['event'\]\.isin\(\['Dead', 'dead'\]\)\.",
            ),
            (
                {"event": ["yes", None, "no"]},
                r"event' is missing \(NaN\) in 1 row \(row 1, counting from 0\); .* df\.dropna\(subset=\['event'\]\)\.",
            ),
            ({"time": ["5", "x", "3"]}, r"column 'time' cannot be read as numbers: .*[\"']x[\"'] at position 1"),
            ({"time": [5, 10**400, 3]}, r"column 'time' cannot be read as numbers: int too large.* Convert the column"),
            ({"time": as_object([5, [8], 3])}, r"column 'time' cannot be read as numbers: .* Convert the column first"),
            ({"time": [5, [8, 1], 3]}, r"column 'time' cannot be read as one value for each row"),
            ({"time": np.array([5, 8, 3j])}, r"column 'time' holds complex numbers; give real ones"),
            ({"time": as_object([5, 8, 3j])}, r"column 'time' holds complex numbers; give real ones"),
            ({"time": np.ones((3, 2))}, r"column 'time' has 2 dimensions; give one value for each row"),
            ({"event": np.ones((3, 2), dtype=bool)}, r"column 'event' has 2 dimensions; give one value for each row"),
            ({"time": 5.0}, r"column 'time' has 0 dimensions; give one value for each row"),
            ({"event": [1, 0]}, r"column 'event' has 2 rows but column 'time' has 3; both need one value per row"),
            ({"entry": [0, 0]}, r"column 'entry' has 2 rows but column 'time' has 3"),
            ({"weight": [1, 1, 1, 1]}, r"column 'weight' has 4 rows but column 'time' has 3"),
            ({"time": [], "event": []}, r"column 'time' is empty: there are no rows to fit"),
        ],
    )
    def test_bad_column(self, change, message):
        with pytest.raises(InputError, match=message):
            Outcome.from_arrays(**{"time": TIME, "event": EVENT, **change})

    @pytest.mark.parametrize(
        "dates",
        [
            pd.to_datetime(["2020-01-01"] * 3),
            pd.Series(pd.to_datetime(["2020-01-01"] * 3)).dt.tz_localize("UTC"),
            pd.to_timedelta([1, 2, 3], unit="D"),
            np.array(["2020-01-01"] * 3, dtype="datetime64[D]"),
            as_object([datetime.datetime(2020, 1, 1)] * 3),
            as_object([datetime.timedelta(days=3)] * 3),
            as_object([pd.Timestamp("2020-01-01"), pd.NaT, None]),
        ],
    )
    @pytest.mark.parametrize("column", ["time", "event", "entry"])
    def test_dates_are_never_read_as_nanoseconds(self, dates, column):
        message = rf"column '{column}' holds dates or durations of type .*; turn them into numbers first.*\.dt\.days"
        with pytest.raises(InputError, match=message):
            Outcome.from_arrays(**{"time": TIME, "event": EVENT, column: dates})

    def test_plain_dates(self):
        with pytest.raises(InputError, match=r"column 'time' cannot be read as numbers"):
            Outcome.from_arrays([datetime.date(2020, 1, 1)] * 3, EVENT)

    def test_names_of_the_user_are_in_the_message(self):
        frame = pd.DataFrame({"days": [-1, 2], "died": [1, 0]})
        with pytest.raises(InputError, match=r"column 'days' is zero or negative"):
            Outcome.from_frame(frame, "days", "died")
        bad = STRUCTURED.copy()
        bad["days"][1] = 0
        with pytest.raises(InputError, match=r"column 'days' is zero or negative in 1 row \(row 1, counting from 0\)"):
            Outcome.from_any(bad)

    def test_missing_column(self):
        with pytest.raises(InputError, match=r"there is no column 'event'; the columns are time, died\."):
            Outcome.from_any(pd.DataFrame({"time": TIME, "died": EVENT}))

    def test_repeated_column(self):
        frame = pd.DataFrame(np.ones((3, 3)), columns=["time", "time", "event"])
        with pytest.raises(InputError, match=r"column 'time' has 2 dimensions"):
            Outcome.from_any(frame)

    @pytest.mark.parametrize(
        "y", [None, np.array(TIME), [TIME, EVENT], (TIME,), (TIME, EVENT, TIME, EVENT), {"time": TIME}, "days"]
    )
    def test_unknown_form(self, y):
        message = rf"y of type {type(y).__name__} is not understood\. Give a structured array .* a pair .* a triple .*"
        with pytest.raises(InputError, match=message):
            Outcome.from_any(y)

    @pytest.mark.parametrize(
        "dtype",
        [
            [("days", float), ("died", int)],
            [("days", bool), ("died", bool)],
            [("days", float), ("died", bool), ("more", float)],
            [("days", float)],
        ],
    )
    def test_wrong_fields(self, dtype):
        names = ", ".join(name for name, _ in dtype)
        message = rf"the structured array y has fields {names}; it needs exactly two, one bool \(the event\)"
        with pytest.raises(InputError, match=message):
            Outcome.from_any(np.zeros(3, dtype=dtype))

    def test_entry_twice(self):
        with pytest.raises(InputError, match=r"entry is given twice: in the triple .* and as an argument"):
            Outcome.from_any(([0, 0, 0], TIME, EVENT), entry=[0, 0, 0])

    def test_errors_are_value_errors(self):
        with pytest.raises(ValueError, match="not understood"):
            Outcome.from_any(None)


class TestFittable:
    def test_good(self):
        Outcome.from_arrays(TIME, EVENT).check_fittable()

    def test_one_row(self):
        with pytest.raises(InputError, match=r"there is only 1 row \(n_samples=1\); a survival model needs at least 2"):
            Outcome.from_arrays([5], [1]).check_fittable()

    def test_no_event(self):
        with pytest.raises(InputError, match=r"none of the 3 rows has an event: .* Check that the event column codes"):
            Outcome.from_arrays(TIME, [0, 0, 0]).check_fittable()

    def test_events_only_where_the_weight_is_zero(self):
        with pytest.raises(InputError, match=r"none of the 2 rows with a weight has an event"):
            Outcome.from_arrays([5, 8, 3, 4], [1, 0, 1, 0], weight=[0, 1, 0, 1]).check_fittable()

    def test_one_row_with_a_weight(self):
        with pytest.raises(InputError, match=r"there is only 1 row with a weight \(n_samples=1\)"):
            Outcome.from_arrays(TIME, EVENT, weight=[0, 1, 0]).check_fittable()

    def test_no_row_with_a_weight(self):
        with pytest.raises(InputError, match=r"every one of the 3 rows has a weight of zero"):
            Outcome.from_arrays(TIME, EVENT, weight=[0, 0, 0]).check_fittable()


class TestRiskWeight:
    def test_by_hand(self):
        # Events at 2 (weight 3), at 4 (weight 1) and again at 4 (weight 1).
        outcome = Outcome.from_arrays(
            time=[2, 4, 4, 1, 6, 4, 2],
            event=[1, 1, 1, 0, 0, 0, 0],
            entry=[0, 0, 3, 0, 2, 0, 1],
            weight=[3, 1, 1, 1, 5, 1, 1],
        )
        # Row by row: (0,2] sees 3; (0,4] sees 3+1+1; (3,4] sees 1+1; (0,1] none; (2,6] only the two at 4, five times
        # over, for it enters after the event at 2; (0,4] sees all five; (1,2] the three at 2.
        assert outcome.risk_weight().tolist() == [9, 5, 2, 0, 10, 5, 3]

    @pytest.fixture
    def cohort(self):
        rng = np.random.default_rng(5)
        entry = rng.integers(0, 10, 60).astype(float)
        return Outcome.from_arrays(
            entry + rng.integers(1, 10, 60), rng.integers(0, 2, 60), entry, rng.integers(0, 4, 60) / 2
        )

    def test_against_counting(self, cohort):
        count = [
            weight
            * sum(w for t, e, w in zip(cohort.time, cohort.event, cohort.weight, strict=True) if e and a < t <= b)
            for a, b, weight in zip(cohort.entry, cohort.time, cohort.weight, strict=True)
        ]
        np.testing.assert_allclose(cohort.risk_weight(), count, rtol=1e-12)

    @pytest.mark.parametrize("cut", [0.5, 3.0, 7.25])
    def test_adds_up_over_the_pieces_of_a_row(self, cohort, cut):
        row = int(np.argmax(cohort.risk_weight()))
        length = cohort.time[row] - cohort.entry[row]
        middle = cohort.entry[row] + length * cut / 8
        pieces = Outcome.from_arrays(
            np.append(cohort.time, middle),
            np.append(cohort.event, False),
            np.append(np.where(np.arange(60) == row, middle, cohort.entry), cohort.entry[row]),
            np.append(cohort.weight, cohort.weight[row]),
        ).risk_weight()
        whole = cohort.risk_weight()
        assert whole[row] > 0
        np.testing.assert_allclose(pieces[row] + pieces[-1], whole[row], rtol=1e-12)
        np.testing.assert_allclose(np.delete(pieces, [row, 60]), np.delete(whole, row), rtol=1e-12)

    def test_does_not_depend_on_order(self, cohort):
        order = np.random.default_rng(6).permutation(60)
        np.testing.assert_allclose(cohort.select(order).risk_weight(), cohort.risk_weight()[order], rtol=1e-12)

    @pytest.mark.parametrize("unit", [365.25, 1e-3, 1e12])
    def test_does_not_depend_on_the_unit_of_time(self, cohort, unit):
        scaled = Outcome.from_arrays(cohort.time * unit, cohort.event, cohort.entry * unit, cohort.weight)
        np.testing.assert_array_equal(scaled.risk_weight(), cohort.risk_weight())

    def test_a_weight_of_two_counts_as_the_row_twice(self, cohort):
        whole = Outcome.from_arrays(cohort.time, cohort.event, cohort.entry, np.full(60, 2.0)).risk_weight()
        single = cohort.select(np.repeat(np.arange(60), 2))
        doubled = Outcome.from_arrays(single.time, single.event, single.entry).risk_weight()
        np.testing.assert_allclose(doubled.reshape(60, 2).sum(1), whole, rtol=1e-12)
