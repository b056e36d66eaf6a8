import numpy as np
import pandas as pd
import pytest

from neuralsurv.cli.tables.covariate_checks import described, drop_unusable, remarks, unusable
from neuralsurv.data.features import Encoding


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([np.nan] * 30, "it has no value in any row"),
        ([None, "a"] * 15, "it is a in every row that has a value"),
        ([3] * 30, "it is 3 in every row that has a value"),
        ([f"n{k}" for k in range(30)], "it has 30 different texts in 30 rows, like a name"),
        (pd.date_range("2020-01-01", periods=30), "it holds dates; turn it into a number to use it"),
        (["2020-01-01", "2020-05-01 10:00"] * 15, "it holds dates; turn it into a number to use it"),
        (
            ["<1", *map(str, range(49)), *map(str, range(49)), None],
            "it would be 50 categories, since 1 of its 99 values, '<1', is not a number (if it means a missing "
            "value, add --missing '<1')",
        ),
        (list(range(30)), None),
        (["a", "b"] * 15, None),
        ([True, False] * 15, None),
        (["1", "x"] * 15, None),
    ],
)
def test_why_a_column_cannot_be_used(values, reason):
    assert unusable(pd.Series(values)) == reason


def test_what_is_unusable_is_what_the_estimator_refuses():
    frame = pd.DataFrame({"gone": [np.nan] * 30, "one": 1, "name": [f"n{k}" for k in range(30)], "age": range(30)})
    names, notes = drop_unusable(frame)
    assert names == ["gone", "one", "name"]
    assert notes[1] == "left out column 'one': it is 1 in every row that has a value."
    for name in names:
        with pytest.raises(ValueError, match=f"column '{name}'"):
            Encoding.fit(frame[[name]], np.ones(30))
    Encoding.fit(frame[["age"]], np.ones(30))


def test_remarks_on_columns_that_look_odd():
    n = 40
    frame = pd.DataFrame({"id": np.arange(n), "age": np.arange(n) + 0.5, "level": ["1", "2", "3", "x"] * 10})
    found = remarks(frame)
    assert found[0] == (
        "column 'id' is used as a number, but has another whole number in every row; if it is an identifier, add "
        "--drop id."
    )
    assert found[1].startswith("column 'level' is used as categories, since 10 of its 40 values, such as 'x', are not")
    assert len(found) == 2


def test_description_of_columns():
    frame = pd.DataFrame({"age": [1.0, 2.0, np.nan], "arm": ["a", "b", "a"], "site": ["p", "q", "r"]})
    rows = described(Encoding.fit(frame, np.ones(3)).columns, frame)
    few = described(Encoding.fit(frame, np.ones(3), events=np.ones(3)).columns, frame)
    assert few[0] == ("age", "number", "1 (33%)", "scaled; gaps filled with the mean; too few for an indicator")
    assert rows == [
        ("age", "number", "1 (33%)", "scaled; gaps filled with the mean and marked by an indicator"),
        ("arm", "2 categories: a, b", "none", "1 indicator"),
        ("site", "3 categories: p, q, r", "none", "3 indicators"),
    ]
