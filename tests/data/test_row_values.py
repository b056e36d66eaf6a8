"""One value for each row, and the phrase that says which rows are at fault."""

import numpy as np
import pytest

from neuralsurv.data.row_values import as_numbers, as_vector, masked_to_none, rows_phrase
from neuralsurv.errors import InputError


@pytest.mark.parametrize(
    ("bad", "phrase"),
    [
        ([0, 1], "1 row (row 1, counting from 0)"),
        ([1, 1], "2 rows (rows 0, 1, counting from 0)"),
        ([1] * 7, "7 rows (rows 0, 1, 2, 3, 4, …, counting from 0)"),
    ],
)
def test_rows_phrase(bad, phrase):
    assert rows_phrase(np.array(bad, dtype=bool)) == phrase


def test_masked_values_are_none():
    source = np.ma.masked_array([1.0, 2.0], mask=[False, True])
    assert masked_to_none(np.asarray(source), source).tolist() == [1.0, None]
    plain = np.array([1.0, 2.0])
    assert masked_to_none(plain, plain) is plain


@pytest.mark.parametrize("values", [[1, 2, 3], np.array([[1, 2, 3]]), np.array([[1], [2], [3]])])
def test_a_row_or_a_column_of_a_matrix_is_a_vector(values):
    assert as_vector(values, "id").tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (5, "id has 0 dimensions; give one value for each row"),
        (np.ones((2, 2)), "id has 2 dimensions; give one value for each row"),
        ([[1], 2], "id cannot be read as one value for each row: setting an array element"),
    ],
)
def test_refused_vectors(values, message):
    with pytest.raises(InputError, match=message):
        as_vector(values, "id")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["2020-01-01", "a"], "time cannot be read as numbers: .* Convert the column first"),
        (np.array(["2020-01-01"], "datetime64[D]"), "time holds dates or durations of type datetime64"),
        ([1j], "Complex data not supported: time holds complex numbers; give real ones"),
    ],
)
def test_refused_numbers(values, message):
    with pytest.raises(InputError, match=message):
        as_numbers(values, "time")


def test_numbers_are_new_and_missing_ones_are_nan():
    numbers = as_numbers(np.array(["3", None, 4], dtype=object), "time")
    np.testing.assert_array_equal(numbers, [3.0, np.nan, 4.0])
    source = np.ones(2)
    assert not np.shares_memory(as_numbers(source, "time"), source)
