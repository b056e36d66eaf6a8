"""From tables to numbers: what is learned, what is applied, and what is refused."""

import datetime
import decimal
import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from neuralsurv.data.columns import Column
from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame
from neuralsurv.errors import InputError

WEIGHT = np.array([1.0, 2.0, 0.5, 3.0])


def frame(**columns):
    return pd.DataFrame(columns)


def fit(X, weight=None, **options):
    rows = len(as_frame(X))
    return Encoding.fit(X, np.ones(rows) if weight is None else np.asarray(weight, dtype=float), **options)


def raw(X, weight=None):
    """The encoded columns as they are before scaling, gaps filled."""
    encoding = fit(X, weight, standardise=False)
    return dict(zip(encoding.outputs, encoding.transform(X).T.tolist(), strict=True))


def as_object(values):
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array


@pytest.fixture
def training():
    return frame(
        age=[50.0, np.nan, 61.0, 45.0],
        dose=[1, 2, 3, 7],
        site=["oslo", "rome", "bonn", "rome"],
        sex=["f", None, "m", "m"],
        smoker=[True, False, False, True],
    )


@pytest.fixture
def encoding(training):
    return Encoding.fit(training, WEIGHT)


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


class TestScale:
    def test_weighted_moments_by_hand(self):
        encoding = fit(frame(a=[1.0, 2.0, 6.0]), [1, 2, 1])
        # mean (1 + 4 + 6) / 4, variance (1·1.75² + 2·0.75² + 1·3.25²) / 4
        assert encoding.center.tolist() == [2.75]
        np.testing.assert_allclose(encoding.scale, np.sqrt(3.6875), rtol=1e-15)
        wanted = np.array([[-1.75], [-0.75], [3.25]]) / np.sqrt(3.6875)
        np.testing.assert_allclose(encoding.transform(frame(a=[1, 2, 6])), wanted, rtol=1e-15)

    def test_moments_are_of_the_values_that_are_there(self):
        encoding = fit(frame(a=[1.0, np.nan, 3.0]), [1, 10, 3])
        np.testing.assert_allclose(encoding.center, [2.5, 10 / 14], rtol=1e-15)
        np.testing.assert_allclose(encoding.scale, np.sqrt([0.75, 10 / 14 * 4 / 14]), rtol=1e-15)

    def test_every_column_has_weighted_mean_zero_and_spread_one(self, training, encoding):
        values = encoding.transform(training)
        present = np.ones(values.shape, dtype=bool)
        present[1, [encoding.outputs.index("age"), encoding.outputs.index("sex=m")]] = False
        weight = np.where(present, WEIGHT[:, None], 0)
        np.testing.assert_allclose((weight * values).sum(0) / weight.sum(0), 0, atol=1e-15)
        np.testing.assert_allclose((weight * values**2).sum(0) / weight.sum(0), 1, rtol=1e-14)
        assert (values[~present] == 0).all()

    def test_without_standardising_only_gaps_change(self, training):
        encoding = Encoding.fit(training, WEIGHT, standardise=False)
        values = pd.DataFrame(encoding.transform(training), columns=encoding.outputs)
        assert values["age"].tolist() == [50, (50 + 61 / 2 + 45 * 3) / 4.5, 61, 45]
        assert values["dose"].tolist() == [1, 2, 3, 7]
        assert values["site=rome"].tolist() == [0, 1, 0, 1]
        assert values["sex=m"].tolist() == [0, 3.5 / 4.5, 1, 1]
        assert values["sex missing"].tolist() == [0, 1, 0, 0]

    def test_a_weight_of_two_counts_as_the_row_twice(self, training):
        whole = Encoding.fit(training, np.array([1, 2, 1, 3]))
        twice = fit(training.iloc[[0, 1, 1, 2, 3, 3, 3]])
        np.testing.assert_allclose(whole.center, twice.center, rtol=1e-14)
        np.testing.assert_allclose(whole.scale, twice.scale, rtol=1e-14)

    @pytest.mark.parametrize("unit", [1e-200, 1e-3, 1e200])
    def test_only_the_proportions_of_the_weights_matter(self, training, encoding, unit):
        scaled = Encoding.fit(training, WEIGHT * unit)
        np.testing.assert_allclose(scaled.center, encoding.center, rtol=1e-14)
        np.testing.assert_allclose(scaled.scale, encoding.scale, rtol=1e-14)

    def test_a_column_that_varies_only_in_rows_of_weight_zero_is_scaled_by_its_range(self):
        encoding = fit(frame(a=[100.0, 100.0, 1100.0]), [1, 2, 0])
        assert encoding.transform(frame(a=[100.0, 1100.0, 600.0])).tolist() == [[0], [1], [0.5]]

    def test_a_column_that_is_known_only_in_rows_of_weight_zero_is_scaled_by_its_range(self):
        X = frame(a=[np.nan, 100.0, 300.0])
        assert fit(X, [1, 0, 0]).transform(X)[:, 0].tolist() == [0, -1, 1]

    @pytest.mark.parametrize("size", [1e300, 1.7e308 / 3, 1e-300, 3e-308, 1e150, 1.0])
    def test_huge_and_tiny_columns_have_the_same_encoding(self, size):
        values = np.array([1.0, -3.0, 2.0, 2.5])
        wanted = fit(frame(a=values), WEIGHT).transform(frame(a=values))
        found = fit(frame(a=values * size), WEIGHT).transform(frame(a=values * size))
        np.testing.assert_allclose(found, wanted, rtol=1e-13)

    def test_smallest_numbers(self):
        X = frame(a=[5e-324, 0.0, -5e-324])
        assert fit(X).transform(X).tolist() == [[1], [0], [-1]]
        # Here the spread itself is below the smallest number.
        X = frame(a=[0.0, 1e-323])
        assert np.isfinite(fit(X, [1, 1000]).transform(X)).all()

    def test_spread_as_wide_as_numbers_go(self):
        """The range of a column that only varies among rows which do not count may be the largest number there is."""
        encoding = fit(frame(a=[-np.finfo(float).max, 5e291]), [0.0, 1.0])
        assert np.isfinite(encoding.scale).all()
        assert np.isfinite(encoding.transform(frame(a=[-np.finfo(float).max, 5e291]))).all()

    def test_mean_of_huge_numbers(self):
        X = frame(a=[1.7e308, np.nan, 1.5e308])
        encoding = fit(X, standardise=False)
        np.testing.assert_allclose(encoding.center[0], 1.6e308, rtol=1e-14)
        message = r"column 'a' is too large to be computed with in 2 rows \(row 0, 2\); correct these values"
        with pytest.raises(InputError, match=message):
            encoding.transform(X)

    def test_large_offset_loses_no_digits(self):
        X = frame(a=[1e15, 1e15 + 100, 1e15 + 200])
        np.testing.assert_allclose(fit(X).transform(X)[:, 0], [-(1.5**0.5), 0, 1.5**0.5], rtol=1e-12)

    @settings(deadline=None, max_examples=200)
    @given(
        values=hnp.arrays(
            np.float64,
            st.integers(2, 8),
            elements=st.floats(allow_infinity=False, allow_nan=True, allow_subnormal=True),
        ),
        standardise=st.booleans(),
    )
    def test_any_column_of_numbers_is_encoded_as_finite_numbers_or_refused(self, values, standardise):
        X = frame(a=values)
        if len(set(values[~np.isnan(values)])) < 2:
            with pytest.raises(InputError, match=r"column 'a' (is constant|has no value)"):
                fit(X)
            return
        encoding = fit(X, np.arange(len(values)), standardise=standardise)
        if not standardise and np.nanmax(np.abs(values)) > 1e100:
            with pytest.raises(InputError, match="column 'a' is too large to be computed with"):
                encoding.transform(X)
            return
        encoded = encoding.transform(X)
        assert np.isfinite(encoded).all()
        # A value that has next to no weight may lie as far out as the square root of its share allows, and no further.
        assert not standardise or np.abs(encoded).max() < 1e13


class TestTables:
    def test_matrix(self):
        assert fit(np.arange(6.0).reshape(3, 2)).outputs == ("x0", "x1")

    @pytest.mark.parametrize(
        "matrix",
        [
            [[1, 2.5], [3, 4], [2, 9]],
            np.array([[1, 2.5], [3, 4], [2, 9]], dtype=np.float32),
            np.array([[1, 2.5], [3, 4], [2, 9]], dtype=object),
            np.asfortranarray([[1, 2.5], [3, 4], [2, 9]]),
        ],
    )
    def test_matrix_types(self, matrix):
        assert raw(matrix) == {"x0": [1, 3, 2], "x1": [2.5, 4, 9]}

    def test_object_matrix_with_gaps_and_text(self):
        matrix = np.array([[1, "a"], [None, "b"], [3, "b"]], dtype=object)
        assert raw(matrix) == {"x0": [1, 2, 3], "x0 missing": [0, 1, 0], "x1=b": [0, 1, 1]}

    def test_list_with_text_keeps_its_numbers(self):
        assert raw([[1, "a"], [2, "b"], [4, "b"]]) == {"x0": [1, 2, 4], "x1=b": [0, 1, 1]}

    def test_masked_values_are_missing(self):
        matrix = np.ma.array([[1.0], [99.0], [3.0]], mask=[[0], [1], [0]])
        assert raw(matrix) == {"x0": [1, 2, 3], "x0 missing": [0, 1, 0]}

    def test_arrow_table(self, training, encoding):
        table = pa.Table.from_pandas(training, preserve_index=False)
        again = Encoding.fit(table, WEIGHT)
        assert again.columns == encoding.columns
        np.testing.assert_array_equal(again.transform(table), encoding.transform(training))
        reordered = table.select(["smoker", "sex", "site", "dose", "age"])
        np.testing.assert_array_equal(encoding.transform(reordered), encoding.transform(training))

    def test_arrow_dictionary(self):
        values = pa.array(["x", "y", "x"]).dictionary_encode()
        assert raw(pa.table({"s": values})) == {"s=y": [0, 1, 0]}

    def test_deprecation_of_the_interchange_protocol_is_not_the_users_business(self, monkeypatch):
        def announce(table):
            warnings.warn("the protocol is deprecated", DeprecationWarning, stacklevel=2)
            return frame(a=[1, 2])

        monkeypatch.setattr(pd.api.interchange, "from_dataframe", announce)
        assert as_frame(pa.table({"a": [1, 2]})).a.tolist() == [1, 2]

    def test_frame_is_taken_as_it_is(self, training):
        assert as_frame(training) is training

    def test_column_names_that_are_not_text(self):
        X = pd.DataFrame([[1.0, 5.0], [2.0, 7.0]], columns=[10, 3])
        encoding = fit(X)
        assert encoding.outputs == ("10", "3")
        assert encoding.transform(X[[3, 10]]).tolist() == [[-1, -1], [1, 1]]

    def test_names_in_levels(self):
        columns = pd.MultiIndex.from_tuples([("a", "b"), ("a", "c")])
        assert fit(pd.DataFrame([[1.0, 5.0], [2.0, 7.0]], columns=columns)).outputs == ("('a', 'b')", "('a', 'c')")

    def test_unicode_names_and_values(self):
        X = pd.DataFrame({"größe µ": [1.0, 2.0, 4.0], "性": ["男", "女", "男"], "": [3, 1, 2]})
        encoding = fit(X)
        assert encoding.outputs == ("größe µ", "性=男", "")
        assert encoding.transform(X).shape == (3, 3)

    def test_repeated_index(self):
        X = frame(a=[1.0, np.nan, 3.0], s=["x", "y", None]).set_axis([0, 0, 0])
        np.testing.assert_array_equal(fit(X).transform(X), fit(X).transform(X.reset_index(drop=True)))

    def test_nothing_of_the_input_is_modified(self, training):
        before = training.copy(deep=True)
        Encoding.fit(training, WEIGHT).transform(training)
        pd.testing.assert_frame_equal(training, before)
        matrix, kept = np.array([[1.0, np.nan], [2.0, 5.0], [4.0, 6.0]]), np.array([[1, np.nan], [2, 5], [4, 6]])
        matrix.flags.writeable = False
        weight = np.ones(3)
        result = Encoding.fit(matrix, weight, standardise=False).transform(matrix)
        result[:] = 0
        np.testing.assert_array_equal(matrix, kept)
        np.testing.assert_array_equal(weight, 1)


class TestFitRefusals:
    @pytest.mark.parametrize(
        ("values", "message"),
        [
            ([1, 1, 1], r"column 'a' is constant \(1 in all 3 rows\); drop it"),
            ([1.5, np.nan, 1.5], r"column 'a' is constant \(1\.5 in all 2 rows that have a value\); drop it"),
            ([7.0, np.nan, np.nan], r"column 'a' is constant \(7 in all 1 rows that have a value\); drop it"),
            (["x", "x", "x"], r"column 'a' is constant \(x in all 3 rows\); drop it"),
            (["x", None, "x"], r"column 'a' is constant \(x in all 2 rows that have a value\); drop it"),
            ([True, True, True], r"column 'a' is constant \(True in all 3 rows\); drop it"),
            (pd.Categorical(["x"] * 3, ["x", "y"]), r"column 'a' is constant \(x in all 3 rows\); drop it"),
            ([np.nan] * 3, r"column 'a' has no value in any of the 3 rows; drop it"),
            ([None] * 3, r"column 'a' has no value in any of the 3 rows; drop it"),
            (pd.array([None] * 3, "Float64"), r"column 'a' has no value in any of the 3 rows; drop it"),
            ([1, np.inf, -np.inf], r"column 'a' is infinite in 2 rows \(row 1, 2\); drop these rows or enter the true"),
            (np.array([1, 2, "1e4000"], np.longdouble), r"column 'a' is infinite in 1 row \(row 2\)"),
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


def test_width_without_names():
    table = fit(frame(sex=["f", "m", "f"], site=["a", "b", "c"], age=[1.0, 2.0, np.nan]))
    assert [column.width for column in table.columns] == [len(column.outputs) for column in table.columns] == [1, 3, 2]
    array = Column("image", "array", (), False, shape=(2, 3, 4))
    assert array.width == len(array.outputs) == 24


class TestTransform:
    def test_new_rows_use_what_was_learned(self, training, encoding):
        row = encoding.transform(frame(age=[70.0], dose=[0], site=["bonn"], sex=["f"], smoker=[False]))
        values = pd.Series(row[0] * encoding.scale + encoding.center, index=encoding.outputs)
        wanted = {"age": 70, "dose": 0, "site=bonn": 1, "site=rome": 0, "sex=m": 0, "sex missing": 0, "smoker=True": 0}
        for name, value in wanted.items():
            assert values[name] == pytest.approx(value, abs=1e-12), name

    def test_rows_are_encoded_one_by_one(self, training, encoding):
        whole = encoding.transform(training)
        for k in range(4):
            np.testing.assert_array_equal(encoding.transform(training.iloc[[k]]), whole[[k]])

    def test_order_of_columns_does_not_matter_in_a_frame(self, training, encoding):
        reordered = training[["smoker", "dose", "sex", "age", "site"]]
        np.testing.assert_array_equal(encoding.transform(reordered), encoding.transform(training))

    def test_other_columns_of_a_frame_are_ignored(self, training, encoding):
        wide = training.assign(id=range(4), date=pd.Timestamp("2020-01-01"), empty=None)
        np.testing.assert_array_equal(encoding.transform(wide), encoding.transform(training))
        twice = pd.concat([wide, wide[["id"]]], axis=1)
        np.testing.assert_array_equal(encoding.transform(twice), encoding.transform(training))

    def test_matrix_goes_by_position(self):
        matrix = np.arange(12.0).reshape(4, 3) ** 1.5
        wanted = fit(matrix).transform(matrix)
        for names in (["a", "b", "c"], ["x1", "x0", "x2"]):
            np.testing.assert_array_equal(fit(pd.DataFrame(matrix, columns=names)).transform(matrix), wanted)

    def test_text_in_another_type(self, training, encoding):
        other = training.astype({"site": "category", "sex": "string", "smoker": object})
        np.testing.assert_array_equal(encoding.transform(other), encoding.transform(training))

    def test_numbers_in_another_type(self, training, encoding):
        other = training.astype({"age": "Float64", "dose": np.int8}).astype({"age": object})
        np.testing.assert_array_equal(encoding.transform(other), encoding.transform(training))

    @pytest.mark.parametrize("gap", [None, np.nan, pd.NA])
    @pytest.mark.parametrize("name", ["age", "sex"])
    def test_a_column_with_nothing_but_gaps(self, training, encoding, name, gap):
        values = pd.DataFrame(encoding.transform(training.assign(**{name: gap})), columns=encoding.outputs)
        assert (values[{"age": "age", "sex": "sex=m"}[name]] == 0).all()
        assert (values[f"{name} missing"] > 1).all()

    @pytest.mark.parametrize("X", [pd.DataFrame(columns=["age", "dose", "site", "sex", "smoker"]), np.zeros((0, 5))])
    def test_no_rows(self, encoding, X):
        assert encoding.transform(X).shape == (0, 9)

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (
                {"site": "paris"},
                r"column 'site' has the value 'paris' in 4 rows \(row 0, 1, 2, 3\), which was not seen",
            ),
            ({"site": ["rome", "x", "y", "rome"]}, r"'x' in 2 rows \(row 1, 2\), .* known are bonn, oslo, rome\."),
            ({"smoker": ["yes"] * 4}, r"column 'smoker' has the value 'yes' .* known are False, True"),
            ({"dose": ["1"] * 4}, r"column 'dose' is of type (object|str), but was a number when the model was fitted"),
            ({"dose": [True] * 4}, r"column 'dose' is of type bool, but was a number when the model was fitted"),
            ({"site": 1.5}, r"column 'site' is of type float64, but was a category .*; convert it to the same type"),
            ({"smoker": 1}, r"column 'smoker' is of type int64, but was a category when the model was fitted"),
            (
                {"dose": [1, np.nan, 2, np.nan]},
                r"column 'dose' is missing in 2 rows \(row 1, 3\), but had no gap \(NaN\)",
            ),
            (
                {"site": ["rome", None, "rome", "rome"]},
                r"'site' is missing in 1 row \(row 1\), but had .*; fill them in",
            ),
            ({"dose": [1, np.inf, 2, 3]}, r"column 'dose' is infinite in 1 row \(row 1\)"),
            ({"site": as_object(["rome", 1, 2, 3])}, r"column 'site' holds values of type int, str"),
            ({"age": pd.Timestamp("2020-01-01")}, r"column 'age' holds dates"),
        ],
    )
    def test_refusals(self, training, encoding, change, message):
        with pytest.raises(InputError, match=message):
            encoding.transform(training.assign(**change))

    def test_missing_columns(self, training, encoding):
        message = (
            r"column 'dose' is missing \(2 of 5 columns are\); the model was fitted with age, dose, site, sex, smoker\."
        )
        for X in (training.drop(columns=["dose", "sex"]), training.rename(columns={"dose": "x", "sex": "y"})):
            with pytest.raises(InputError, match=message):
                encoding.transform(X)
            with pytest.raises(InputError, match=message):
                encoding.transform(pa.Table.from_pandas(X, preserve_index=False))

    @pytest.mark.parametrize("width", [1, 2, 4, 6])
    def test_matrix_of_another_width(self, width):
        encoding = fit(np.arange(12.0).reshape(4, 3))
        message = rf"X has {width} features, but this model is expecting 3 features as input"
        with pytest.raises(InputError, match=message):
            encoding.transform(np.ones((2, width)))

    def test_repeated_name(self, training, encoding):
        with pytest.raises(InputError, match=r"column 'dose' occurs more than once; give every column its own name"):
            encoding.transform(pd.concat([training, training[["dose"]]], axis=1))

    def test_value_too_far_from_training(self):
        encoding = fit(frame(a=[1.0, 2.0], b=[1e-300, 3e-300]))
        message = r"column 'b' is too far from the training data to be scaled in 1 row \(row 1\); correct these values"
        with pytest.raises(InputError, match=message):
            encoding.transform(frame(a=[1.0, 2.0], b=[1e-300, 1e20]))
