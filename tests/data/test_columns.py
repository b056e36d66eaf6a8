"""Columns: what is learned from the training rows, and what is refused."""

import datetime
import decimal

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

from data.encodings import as_object, fit, frame, raw
from neuralsurv.data.columns import Column
from neuralsurv.data.frames import as_frame
from neuralsurv.errors import InputError


class TestColumns:
    def test_names_and_kinds(self, encoding):
        assert encoding.columns == (
            Column("age", "number", (), True, 45.0, 61.0, True),
            Column("dose", "number", (), False, 1.0, 7.0, True),
            Column("site", "category", ("bonn", "oslo", "rome"), False),
            Column("sex", "category", ("f", "m"), True),
            Column("smoker", "category", ("False", "True"), False),
        )
        assert encoding.outputs == (
            *("age", "age missing", "dose", "site=bonn", "site=oslo", "site=rome"),
            *("sex=m", "sex missing", "smoker=True"),
        )

    @pytest.mark.parametrize("dtype", [">f8", ">i4", "<f4"])
    def test_numbers_of_any_byte_order(self, dtype):
        numbers = np.array([[1, 5], [2, 6], [4, 7]], dtype=dtype)
        assert raw(numbers) == {"x0": [1, 2, 4], "x1": [5, 6, 7]}
        table = pd.DataFrame({"a": numbers[:, 0], "s": ["u", "v", "u"]}, index=[7, 7, 8])
        read = as_frame(table)
        # Rows of another byte order cannot be selected.
        assert read[np.array([True, False, True])]["a"].tolist() == [1, 4]
        assert read.index.tolist() == [7, 7, 8]
        assert read["a"].tolist() == [1, 2, 4]

    def test_numbers_are_left_as_they_are(self):
        assert raw(frame(a=[1, 2, 4])) == {"a": [1, 2, 4]}

    @pytest.mark.parametrize("dtype", [bool, "boolean", "bool[pyarrow]", object, "category"])
    def test_bools(self, dtype):
        assert raw(frame(a=pd.Series([True, False, True]).astype(dtype))) == {"a=True": [1, 0, 1]}

    @pytest.mark.parametrize("dtype", [object, "string", "string[pyarrow]", "category"])
    def test_text_of_three_levels_has_three_columns(self, dtype):
        values = pd.Series(["b", "c", "a", "b"]).astype(dtype)
        assert raw(frame(s=values)) == {"s=a": [0, 0, 1, 0], "s=b": [1, 0, 0, 1], "s=c": [0, 1, 0, 0]}

    def test_text_of_two_levels_has_one_column(self):
        assert raw(frame(s=["b", "a", "b"])) == {"s=b": [1, 0, 1]}

    def test_categories_keep_their_order_and_unused_ones_are_left_out(self):
        values = pd.Categorical(["low", "high", "mid"], categories=["low", "mid", "high", "extreme"], ordered=True)
        assert fit(frame(s=values)).columns[0].levels == ("low", "mid", "high")

    def test_categories_that_are_numbers(self):
        assert raw(frame(s=pd.Categorical([10, 9, 10]))) == {"s=10": [1, 0, 1]}

    def test_categories_with_the_same_text_are_one(self):
        assert fit(frame(s=pd.Categorical([1, "1", 2], categories=[1, "1", 2]))).columns[0].levels == ("1", "2")

    @pytest.mark.parametrize(
        "values",
        [
            pd.array([1, None, 4], dtype="Int64"),
            pd.array([1, None, 4], dtype="Float64"),
            pd.array([1, None, 4], dtype="double[pyarrow]"),
            pd.Series([1, 0, 4], dtype="Float64") / pd.Series([1, 0, 1], dtype="Float64"),
            as_object([1, None, 4]),
            as_object([1, pd.NA, 4.0]),
            as_object([decimal.Decimal(1), None, np.int64(4)]),
            [1.0, np.nan, 4.0],
        ],
    )
    def test_gaps_in_numbers_take_the_weighted_mean_and_are_marked(self, values):
        assert raw(frame(a=values), [3, 5, 1]) == {"a": [1, 1.75, 4], "a missing": [0, 1, 0]}

    @pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
    def test_gaps_in_categories_take_the_weighted_shares_and_are_marked(self, gap):
        assert raw(frame(s=as_object(["x", gap, "y", "z"])), [1, 5, 2, 1]) == {
            "s=x": [1, 0.25, 0, 0],
            "s=y": [0, 0.5, 1, 0],
            "s=z": [0, 0.25, 0, 1],
            "s missing": [0, 1, 0, 0],
        }

    def test_gaps_in_bools(self):
        values = pd.array([True, None, False, True], dtype="boolean")
        assert raw(frame(a=values)) == {"a=True": [1, 2 / 3, 0, 1], "a missing": [0, 1, 0, 0]}


class TestFitRefusals:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([1, 1, 1], r"column 'a' is constant \(1 in all 3 rows\); drop it"),
            ([1.5, np.nan, 1.5], r"column 'a' is constant \(1\.5 in all 2 rows that have a value\); drop it"),
            ([7.0, np.nan, np.nan], r"column 'a' is constant \(7 in the one row that has a value\); drop it"),
            (["x", "x", "x"], r"column 'a' is constant \(x in all 3 rows\); drop it"),
            (["x", None, "x"], r"column 'a' is constant \(x in all 2 rows that have a value\); drop it"),
            ([True, True, True], r"column 'a' is constant \(True in all 3 rows\); drop it"),
            (pd.Categorical(["x"] * 3, ["x", "y"]), r"column 'a' is constant \(x in all 3 rows\); drop it"),
            ([np.nan] * 3, r"column 'a' has no value in any of the 3 rows; drop it"),
            ([None] * 3, r"column 'a' has no value in any of the 3 rows; drop it"),
            (pd.array([None] * 3, "Float64"), r"column 'a' has no value in any of the 3 rows; drop it"),
            (
                [1, np.inf, -np.inf],
                r"column 'a' is infinite in 2 rows \(rows 1, 2, counting from 0\); drop these rows or enter the true",
            ),
            (np.array([1, 2, "1e4000"], np.longdouble), r"column 'a' is infinite in 1 row \(row 2, counting from 0\)"),
            (
                pd.to_datetime(["2020", "2021", None]),
                r"column 'a' holds dates or durations of type .*; turn them into numbers first, for exam",
            ),
            (
                pd.to_datetime(["2020", "2021", "2022"]).tz_localize("UTC"),
                r"column 'a' holds dates or durations of type",
            ),
            (pd.to_timedelta([1, 2, 3], unit="D"), r"column 'a' holds dates or durations of type"),
            (pd.period_range("2020", periods=3), r"column 'a' of type period.* cannot be read as numbers: .* Convert"),
            (as_object([datetime.date(2020, 1, d) for d in (1, 2, 3)]), r"'a' holds values of type date; .* convert"),
            (np.array([1j, 2, 3]), r"Complex data not supported: column 'a' holds complex numbers; give real ones"),
            (as_object(["x", 1, 2.5]), r"'a' holds values of type float, int, str; every argument must be a string or"),
            (as_object([True, 1, 2]), r"column 'a' holds values of type bool, int; every argument must be a string"),
            (as_object([[1], [2], [3]]), r"column 'a' holds values of type list; .*: convert the column first"),
        ],
    )
    def test_bad_column(self, values, message):
        with pytest.raises(InputError, match=message):
            fit(frame(good=[1, 2, 3], a=values))

    def test_number_out_of_range(self):
        X = frame(a=[1, 2, 3]).astype(object)
        X.iloc[0, 0] = 10**400
        with pytest.raises(InputError, match=r"column 'a' of type object cannot be read as numbers: int too large"):
            fit(X)
        # pandas 3 keeps such a matrix as it is, and the column is refused like any other.
        message = r"(X holds a number that is out of range|column 'x0' of type object cannot be .*): int too large"
        with pytest.raises(InputError, match=message):
            fit(np.array([[10**400], [2], [3]], dtype=object))

    def test_decimal_commas_are_no_categories(self):
        X = frame(a=["1,4", "2,5", "3", None])
        message = r"'a' holds numbers with a decimal comma, such as '1,4', .* df\['a'\]\.str\.replace\(',', '\.'\)"
        with pytest.raises(InputError, match=message):
            fit(X)
        assert fit(X.astype({"a": "category"})).columns[0].levels == ("1,4", "2,5", "3")

    @pytest.mark.parametrize(
        ("rows", "levels", "refused"), [(30, 20, False), (30, 21, True), (60, 30, False), (60, 31, True)]
    )
    def test_identifier(self, rows, levels, refused):
        X = frame(a=[f"p{k % levels}" for k in range(rows)])
        if not refused:
            assert len(fit(X).outputs) == levels
            return
        message = rf"column 'a' has {levels} different values in {rows} rows and looks like an identifier; drop it, or"
        with pytest.raises(InputError, match=message):
            fit(X)

    @pytest.mark.parametrize("names", [["a", "a", "b"], ["1", 1, "b"]])
    def test_repeated_names(self, names):
        X = pd.DataFrame(np.eye(3), columns=names)
        with pytest.raises(InputError, match=rf"column '{names[0]}' occurs more than once; give every column its own"):
            fit(X)

    @pytest.mark.parametrize(
        ("X", "message"),
        [
            (scipy.sparse.csr_matrix(np.eye(3)), r"X is a sparse matrix of type csr_matrix; .*: use X\.toarray\(\)"),
            (scipy.sparse.coo_array(np.eye(3)), r"X is a sparse matrix of type coo_array; dense data is required"),
            (np.ones(3), r"X has 1 dimension\(s\), shape \(3,\); it needs two.* X\.reshape\(-1, 1\) for a single"),
            (pd.Series([1.0, 2.0]), r"X has 1 dimension\(s\), shape \(2,\)"),
            (None, r"X has 0 dimension\(s\), shape \(\); it needs two"),
            ([[1, 2], [3]], r"X cannot be read as rows and columns: .*; give every row the same length"),
        ],
    )
    def test_not_a_table(self, X, message):
        with pytest.raises(InputError, match=message):
            as_frame(X)

    @pytest.mark.parametrize("X", [np.ones((3, 0)), pd.DataFrame(index=range(3))])
    def test_no_columns(self, X):
        with pytest.raises(InputError, match=r"X has 0 feature\(s\) \(columns\); a minimum of 1 is required"):
            fit(X)

    @pytest.mark.parametrize("name", ["sex=m", "age missing"])
    def test_names_that_meet_once_they_are_encoded(self, name):
        X = frame(sex=["f", "m", "f"], age=[1.0, 2.0, np.nan]).assign(**{name: [1.0, 2.0, 3.0]})
        owner = name.replace("=", " ").split()[0]
        message = rf"columns '{owner}' and '{name}' would both be encoded as '{name}'; rename one"
        with pytest.raises(InputError, match=message):
            fit(X)
