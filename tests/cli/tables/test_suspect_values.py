import numpy as np
import pandas as pd
import pytest

from neuralsurv.cli.tables.suspect_values import code_warnings, first_few, refuse_decimal_commas, row_number_columns
from neuralsurv.errors import InputError

COMMAS = ["1,4", "2,5", "3", None]


def test_decimal_commas_are_refused_with_the_flag():
    frame = pd.DataFrame({"age": [1, 2, 3, 4], "dose": COMMAS, "size": COMMAS, "stage": ["I", "II", "I", "II"]})
    message = (
        r"column 'dose' and 1 more column hold numbers with a decimal comma, such as '1,4'; add --decimal , "
        r"\(or, if they are categories, --categorical dose\)\."
    )
    with pytest.raises(InputError, match=message):
        refuse_decimal_commas(frame, text_file=True)
    with pytest.raises(
        InputError, match=r"column 'dose' holds .* df\['dose'\]\.str\.replace\(',', '\.'\)\.astype\(float\)\.$"
    ):
        refuse_decimal_commas(frame[["dose"]], text_file=False, categorical=False)
    refuse_decimal_commas(frame[["age", "stage"]], text_file=True)


@pytest.mark.parametrize(
    ("name", "values", "found"),
    [
        ("column 1", [1, 2, 3], True),
        ("Unnamed: 0", [0, 1, 2], True),
        ("Unnamed: 0.1", [0, 1, 2], True),
        ("column 1", [1, 4, 9], True),
        ("rownames", [1, 2, 3], True),
        ("X", [1, 2, 3], True),
        ("index", [0, 1, 2], True),
        ("index", [1, 4, 9], False),
        ("column 1", [3, 1, 2], False),
        ("column 1", [0.5, 1.5, 2.5], False),
        ("column 1", ["a", "b", "c"], False),
        ("visit", [1, 2, 3], False),
        ("columns 1", [1, 2, 3], False),
    ],
)
def test_row_numbers(name, values, found):
    assert list(row_number_columns(pd.DataFrame({name: values}))) == ([name] if found else [])


def ages(*more):
    return pd.DataFrame({"age": [*np.linspace(20, 80, 50), *more]})


def test_a_code_is_named_with_its_column_count_and_flag():
    assert code_warnings(ages(999, 999, 999)) == [
        "column 'age' holds 999 in 3 rows, and 20 to 80 in the others; if 999 stands for a missing value, add "
        "--missing age=999."
    ]


def test_two_codes_of_one_column():
    assert [text.split()[3] for text in code_warnings(ages(888, 888, 999, 999))] == ["888", "999"]


@pytest.mark.parametrize("codes", [(-9, -9), (-99, -99), (9999, 9999), (999.0, 999.0)])
def test_codes(codes):
    assert len(code_warnings(ages(*codes))) == 1


@pytest.mark.parametrize(
    "values",
    [
        [999],  # once only
        [99, 99],  # not far
        [998, 998],  # no code
        [-5, -9, -9],  # other values are negative, and near
    ],
)
def test_what_is_no_code(values):
    assert code_warnings(ages(*values)) == []


def test_few_rows_flags_and_text_are_not_looked_at():
    assert code_warnings(pd.DataFrame({"a": [1, 2, 999, 999]})) == []
    assert code_warnings(pd.DataFrame({"a": [True, False] * 20, "b": ["999", "x"] * 20})) == []
    assert code_warnings(pd.DataFrame({"grade": [9, 99] * 20})) == []


def test_many_sentences_are_cut_short():
    assert first_few(["a", "b", "c", "d"]) == ["a", "b", "c", "d"]
    assert first_few(list("abcdef")) == ["a", "b", "c", "… and the same for 3 more columns."]
