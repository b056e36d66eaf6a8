import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.stream.tally import Tally
from neuralsurv.errors import InputError

TABLE = pd.DataFrame({"a": [1.0, 2.0, np.nan, 2.0], "b": ["x", "y", None, "y"], "c": pd.Categorical(list("pqpq"))})


def test_parts_add_up_to_the_whole_in_any_order():
    whole = Tally.of(TABLE, 0)
    parts = [Tally.of(TABLE[:1], 0), Tally.of(TABLE[1:3], 1), Tally.of(TABLE[3:], 3), Tally.of(TABLE[:0], 4)]
    assert sum(parts, Tally()) == sum(parts[::-1], Tally()) == whole
    assert whole.rows == 4


def test_other_places_are_another_order_of_the_same_rows():
    one, other = Tally.of(TABLE, 0), Tally.of(TABLE.iloc[[1, 0, 2, 3]], 0)
    assert (one.rows, one.content) == (other.rows, other.content)
    assert one.order != other.order
    one.check_same(other, "second")


@pytest.mark.parametrize("row", range(4))
@pytest.mark.parametrize("column", TABLE.columns)
def test_any_value_that_changes_is_seen(row, column):
    changed = TABLE.astype(object)
    changed.loc[row, column] = {"a": 2.5, "b": "z", "c": "r"}[column]
    changed = changed.astype({"a": float, "c": "category"})
    assert Tally.of(changed, 0).content != Tally.of(TABLE, 0).content


def test_a_row_that_takes_the_place_of_another_is_seen():
    with pytest.raises(InputError, match="4 in the first pass, other values in the third"):
        Tally.of(TABLE, 0).check_same(Tally.of(TABLE.iloc[[0, 0, 2, 3]], 0), "third")
    with pytest.raises(InputError, match=r"4 in the first pass, 3 in the second\. Give files that nobody changes"):
        Tally.of(TABLE, 0).check_same(Tally.of(TABLE[:3], 0), "second")


def test_cells_that_cannot_be_hashed_are_counted():
    lists = pd.DataFrame({"a": [[1], [2]]})
    assert Tally.of(lists, 0).rows == 2
    assert Tally.of(lists, 0) != Tally.of(lists[::-1], 0)
