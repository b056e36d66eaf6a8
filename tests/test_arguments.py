"""Numbers that a user passes as arguments."""

import numpy as np
import pytest

from neuralsurv.arguments import real_number, whole_number
from neuralsurv.errors import InputError


@pytest.mark.parametrize("value", [3, np.int64(3), np.uint8(3)])
def test_whole_numbers(value):
    number = whole_number("n", value, least=3)
    assert number == 3
    assert type(number) is int


@pytest.mark.parametrize("value", [2, 3.0, "3", None, np.array([3, 4])])
def test_refused_whole_numbers(value):
    with pytest.raises(InputError, match="must be a whole number of at least 3"):
        whole_number("n", value, least=3)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2)])
def test_real_numbers(value):
    assert real_number("tau", value, lambda number: number > 0, "positive") == 2.0


@pytest.mark.parametrize("value", [0, float("nan"), "2", None])
def test_refused_real_numbers(value):
    with pytest.raises(InputError, match=f"tau={value!r} must be positive"):
        real_number("tau", value, lambda number: number > 0, "positive")
