import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv.prediction.requested_times import check_given, check_horizon, check_times


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1, np.nan], "times holds nan;"),
        ([1, np.inf], "times holds inf;"),
        ([[1, 2], [3, 4]], r"times has shape \(2, 2\);"),
        (["a"], "times cannot be read as numbers: could not convert string to float: 'a'; give one or more"),
        ([1, [2, 3]], "times cannot be read as numbers: .* give one or more times in a flat list"),
        ([10**400], "times cannot be read as numbers: int too large"),
    ],
)
def test_times_that_are_refused(times, message):
    with pytest.raises(InputError, match=message):
        check_times(times)


def test_times_that_are_taken():
    assert check_times(3).tolist() == [3.0]
    assert check_times(pd.Series([2, 1])).tolist() == [2.0, 1.0]
    assert check_times((0, 4.5)).tolist() == [0.0, 4.5]


@pytest.mark.parametrize("horizon", [0, -2, np.inf, np.nan, "a", [1.0]])
def test_horizons_that_are_refused(horizon):
    with pytest.raises(InputError, match="must be a positive, finite time"):
        check_horizon(horizon)


@pytest.mark.parametrize("given", [-2, np.inf, np.nan, "a", [1.0]])
def test_given_times_that_are_refused(given):
    with pytest.raises(InputError, match="must be one finite time of at least 0, the same for everybody"):
        check_given(given)


def test_single_times_that_are_taken():
    assert check_horizon(np.float32(2)) == 2.0
    assert check_given(0) == 0.0
