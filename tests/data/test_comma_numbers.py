import pytest

from neuralsurv.data.comma_numbers import decimal_comma


@pytest.mark.parametrize(
    ("values", "example"),
    [
        (["1,4", "2,5"], "1,4"),
        (["3", "-0,75", " 2,1 ", "1,5e-3"], "-0,75"),
        ([*["1,4"] * 19, "?"], "1,4"),
        (["1,4", "?"], None),
        (["1", "2", "3"], None),
        (["a,b", "c,d"], None),
        (["1,2,3", "4,5,6"], None),
        ([1.5, 2.5], None),
        ([], None),
    ],
)
def test_numbers_with_a_decimal_comma(values, example):
    assert decimal_comma(values) == example
