import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.stream.row_digest import RowDigest
from neuralsurv.errors import InputError

TABLE = pd.DataFrame({"a": [1.0, 2.0, np.nan, 2.0], "b": ["x", "y", None, "y"], "c": pd.Categorical(list("pqpq"))})


def test_parts_add_up_to_the_whole_in_any_order():
    whole = RowDigest.of(TABLE, 0)
    parts = [
        RowDigest.of(TABLE[:1], 0),
        RowDigest.of(TABLE[1:3], 1),
        RowDigest.of(TABLE[3:], 3),
        RowDigest.of(TABLE[:0], 4),
    ]
    assert sum(parts, RowDigest()) == sum(parts[::-1], RowDigest()) == whole
    assert whole.rows == 4


def test_other_places_are_another_order_of_the_same_rows():
    one, other = RowDigest.of(TABLE, 0), RowDigest.of(TABLE.iloc[[1, 0, 2, 3]], 0)
    assert (one.rows, one.content) == (other.rows, other.content)
    assert one.order != other.order
    one.check_same(other, "second")


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("column", TABLE.columns)
def test_any_value_that_changes_is_seen(row, column):
    changed = TABLE.astype(object)
    changed.loc[row, column] = {"a": 2.5, "b": "z", "c": "r"}[column]
    changed = changed.astype({"a": float, "c": "category"})
    assert RowDigest.of(changed, 0).content != RowDigest.of(TABLE, 0).content


def test_a_row_that_takes_the_place_of_another_is_seen():
    with pytest.raises(InputError, match="4 in the first pass, other values in the third"):
        RowDigest.of(TABLE, 0).check_same(RowDigest.of(TABLE.iloc[[0, 0, 2, 3]], 0), "third")
    with pytest.raises(InputError, match=r"4 in the first pass, 3 in the second\. Give files that do not change"):
        RowDigest.of(TABLE, 0).check_same(RowDigest.of(TABLE[:3], 0), "second")


def test_cells_that_cannot_be_hashed_are_counted():
    lists = pd.DataFrame({"a": [[1], [2]]})
    assert RowDigest.of(lists, 0).rows == 2
    assert RowDigest.of(lists, 0) != RowDigest.of(lists[::-1], 0)
