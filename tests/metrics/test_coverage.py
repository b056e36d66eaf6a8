import numpy as np
import pytest

from neuralsurv.errors import InputError
from neuralsurv.metrics import band_coverage, band_coverage_by_time, simultaneous_band_coverage


def test_against_counting():
    rng = np.random.default_rng(0)
    truth, middle = rng.random((50, 6)), rng.random((50, 6))
    lower, upper = middle - 0.3, middle + 0.3
    inside = [[lower[i, k] <= truth[i, k] <= upper[i, k] for k in range(6)] for i in range(50)]
    assert band_coverage(lower, upper, truth) == np.mean(inside)
    assert band_coverage_by_time(lower, upper, truth).tolist() == [
        np.mean([row[k] for row in inside]) for k in range(6)
    ]
    assert simultaneous_band_coverage(lower, upper, truth) == np.mean([all(row) for row in inside])
    assert 0 < simultaneous_band_coverage(lower, upper, truth) < band_coverage(lower, upper, truth) < 1


def test_the_ends_belong_to_the_band():
    assert band_coverage([0.1, 0.2, 0.3], [0.4, 0.4, 0.3], [0.1, 0.4, 0.3]) == 1.0
    assert band_coverage([0.1, 0.2], [0.4, 0.4], [0.0999, 0.4001]) == 0.0


def test_what_is_refused():
    with pytest.raises(InputError, match=r"shapes \(2,\), \(2,\) and \(3,\); give one value of each"):
        band_coverage([0, 0], [1, 1], [0, 0, 0])
    with pytest.raises(InputError, match=r"shapes \(0,\), \(0,\) and \(0,\)"):
        band_coverage([], [], [])
    with pytest.raises(InputError, match=r"truth is missing \(NaN\) at 1 of 2 points"):
        band_coverage([0, 0], [1, 1], [0.5, np.nan])
    with pytest.raises(InputError, match=r"lower is missing \(NaN\) at 1 of 2 points"):
        band_coverage([np.nan, 0], [1, 1], [0.5, 0.5])
    with pytest.raises(InputError, match="lower lies above upper at 1 of 2 points; swap them"):
        band_coverage([0.5, 0.5], [0.4, 0.6], [0.5, 0.5])
    for curves_only in (band_coverage_by_time, simultaneous_band_coverage):
        with pytest.raises(InputError, match=r"the band has shape \(2,\); give one row for each person"):
            curves_only([0, 0], [1, 1], [0.5, 0.5])
