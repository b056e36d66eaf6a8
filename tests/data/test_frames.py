"""Covariates in every accepted form become one table."""

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from data.encodings import WEIGHT, fit, frame, raw
from neuralsurv.data.features import Encoding
from neuralsurv.data.frames import as_frame


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
