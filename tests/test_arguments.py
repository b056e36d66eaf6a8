"""Arguments that a user passes."""

import numpy as np
import pytest

from neuralsurv.arguments import flag, layer_widths, one_of, positive_number, real_number, whole_number
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


def test_a_bool_is_not_a_whole_number():
    with pytest.raises(InputError, match="n=True must be a whole number of at least 0"):
        whole_number("n", True, least=0)


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2)])
def test_real_numbers(value):
    assert real_number("tau", value, lambda number: number > 0, "positive") == 2.0


@pytest.mark.parametrize("value", [0, float("nan"), "2", None])
def test_refused_real_numbers(value):
    with pytest.raises(InputError, match=f"tau={value!r} must be positive"):
        real_number("tau", value, lambda number: number > 0, "positive")


@pytest.mark.parametrize("value", [0, -1.0, float("inf"), float("nan"), "many", None, 10**400])
def test_refused_positive_numbers(value):
    with pytest.raises(InputError, match="must be a positive number"):
        positive_number("rho", value)


def test_positive_numbers():
    assert positive_number("rho", np.float32(0.5)) == 0.5


@pytest.mark.parametrize("value", ["c", 1, None, ["a"], np.array(["a", "b"])])
def test_refused_names(value):
    with pytest.raises(InputError, match="is not known; use one of a, b"):
        one_of("kind", value, ("a", "b"))


@pytest.mark.parametrize("value", [1, 0.0, None, "True"])
def test_refused_flags(value):
    with pytest.raises(InputError, match=f"average={value!r} must be True or False"):
        flag("average", value)


@pytest.mark.parametrize("value", [16, None, (0,), (16.0,), "16"])
def test_refused_widths(value):
    with pytest.raises(InputError, match="must hold whole numbers of at least 1, one for each hidden layer"):
        layer_widths(value)


def test_widths_are_ints():
    assert layer_widths(np.array([8, 4])) == (8, 4)
