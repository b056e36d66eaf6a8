import io

import numpy as np
import pandas as pd
import pytest

from neuralsurv.data.table import numbers_rows, separate_outcome
from neuralsurv.errors import InputError

ROLES = {"time": "days", "event": "died", "entry": None, "weight": None, "id": None}
CSV = ",days,died,age\n" + "".join(f"{k},{k + 3},{k % 2},{50 + k * k}\n" for k in range(1, 9))


def test_row_numbers_of_a_csv_file_are_refused_with_the_line_to_type():
    frame = pd.read_csv(io.StringIO(CSV))
    assert "Unnamed: 0" in frame
    with pytest.raises(
        InputError, match=r"column 'Unnamed: 0' numbers the 8 rows .* df = df.drop\(columns='Unnamed: 0'\)"
    ):
        separate_outcome(frame, None, ROLES)
    covariates, *_ = separate_outcome(frame.drop(columns="Unnamed: 0"), None, ROLES)
    assert list(covariates.columns) == ["age"]


def test_other_columns_without_a_name_are_covariates():
    frame = pd.read_csv(io.StringIO(CSV))
    shuffled = frame.assign(**{"Unnamed: 0": frame["Unnamed: 0"].to_numpy()[::-1]})
    assert "Unnamed: 0" in separate_outcome(shuffled, None, ROLES)[0]
    assert "visit" in separate_outcome(frame.rename(columns={"Unnamed: 0": "visit"}), None, ROLES)[0]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([0, 1, 2], True),
        ([1, 2, 3], True),
        ([2, 3, 4], False),
        ([1, 3, 4], False),
        ([1.0, 2.0, 3.0], False),
        ([1], False),
        (pd.array([1, 2, None], "Int64"), False),
    ],
)
def test_what_numbers_the_rows(values, expected):
    assert numbers_rows(pd.Series(values)) is expected


def test_numbers_of_any_integer_type():
    assert numbers_rows(pd.Series(np.arange(3, dtype=np.uint8)))
