"""Tables of curves: how they are read, and what is refused, for every metric that takes one."""

import numpy as np
import pandas as pd
import pytest

from metrics.cohorts import cohort
from metrics.other_software import interpolated
from neuralsurv.errors import InputError
from neuralsurv.metrics import (
    antolini_concordance,
    brier_score,
    integrated_brier_score,
    km_calibration,
    log_likelihood,
    survival_at,
)
from neuralsurv.metrics import curves as curves_module

TRAINING = {"train_time": [1.0, 2.0, 9.0], "train_event": [1, 0, 1]}
METRICS = {
    "antolini": antolini_concordance,
    "brier": lambda *args: brier_score(*args, **TRAINING),
    "integrated brier": lambda *args: integrated_brier_score(*args, **TRAINING),
    "km": km_calibration,
    "likelihood": log_likelihood,
    "survival_at": lambda time, event, survival, times: survival_at(time, survival, times),
}
TIME, EVENT, TIMES = [1.0, 2.0, 3.0], [1, 0, 1], [1.0, 2.0, 3.0]
GOOD = [[0.9, 0.5, 0.2], [0.8, 0.7, 0.6], [0.7, 0.6, 0.1]]


@pytest.fixture(params=METRICS)
def metric(request):
    return METRICS[request.param]


def changed(row: int, column: int, value: float) -> np.ndarray:
    table = np.array(GOOD)
    table[row, column] = value
    return table


@pytest.mark.parametrize(
    ("survival", "message"),
    [
        (
            changed(1, 2, np.nan),
            r"survival is missing \(NaN\) in 1 row \(row 1, counting from 0\); no value is filled in",
        ),
        (changed(0, 0, 1 + 3e-6), r"survival is outside \[0, 1\] in 1 row \(row 0, counting from 0\)"),
        (changed(2, 2, -0.001), r"survival is outside \[0, 1\] in 1 row \(row 2, counting from 0\)"),
        (changed(2, 2, np.inf), r"survival is outside \[0, 1\] in 1 row \(row 2, counting from 0\)"),
        (
            changed(0, 1, 0.9 + 3e-6),
            r"survival rises over time in 1 row \(row 0, counting from 0\)\. If these are probabilities of the event",
        ),
        (1 - np.array(GOOD), r"survival rises over time in 3 rows \(rows 0, 1, 2, counting from 0\)"),
        (np.array(GOOD)[:2], r"survival has shape \(2, 3\); 3 rows at 3 times need \(3, 3\)"),
        (np.array(GOOD)[0], r"survival has shape \(3,\); 3 rows at 3 times need"),
        ([["a"] * 3] * 3, "survival cannot be read as numbers"),
    ],
)
def test_tables_that_are_refused(metric, survival, message):
    with pytest.raises(InputError, match=message):
        metric(TIME, EVENT, survival, TIMES)


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([1.0, 3.0, 2.0], r"times must increase strictly, but 3 is followed by 2; sort the grid with its columns"),
        ([1.0, 3.0, 3.0], r"times must increase strictly, but 3 is followed by 3"),
        ([-1.0, 2.0, 3.0], "times holds -1; every time must be a finite number of at least 0"),
        ([1.0, np.nan, 3.0], "times holds nan"),
        ([1.0, 2.0, np.inf], "times holds inf"),
        ([[1.0, 2.0, 3.0]], r"times has shape \(1, 3\)"),
        ([], r"times has shape \(0,\); give one or more times"),
    ],
)
def test_grids_that_are_refused(metric, times, message):
    # The integral asks for two times before it looks at the grid any further; an empty grid is refused first.
    with pytest.raises(InputError, match=message):
        metric(TIME, EVENT, GOOD, times)


def test_rounding_of_single_precision_is_accepted(metric):
    rounded = changed(0, 0, 1 + 5e-7)
    clipped = metric(TIME, EVENT, changed(0, 0, 1.0), TIMES)
    assert metric(TIME, EVENT, rounded, TIMES) == pytest.approx(clipped, rel=1e-12)
    risen = changed(1, 2, 0.7 + 5e-7)
    assert metric(TIME, EVENT, risen, TIMES) == pytest.approx(metric(TIME, EVENT, changed(1, 2, 0.7), TIMES), abs=1e-5)


def test_data_frames_and_lists_are_read(metric):
    expected = metric(np.array(TIME), np.array(EVENT, dtype=bool), np.array(GOOD), np.array(TIMES))
    frame = pd.DataFrame(GOOD, columns=TIMES)
    assert metric(pd.Series(TIME), pd.Series(EVENT), frame, frame.columns) == pytest.approx(expected, rel=1e-15)


def test_what_is_given_is_not_changed(metric):
    table = changed(0, 0, 1 + 5e-7)
    before = table.copy()
    metric(TIME, EVENT, table, TIMES)
    assert (table == before).all()


def test_a_bad_row_is_found_in_any_block(metric, monkeypatch):
    monkeypatch.setattr(curves_module, "BLOCK", 4)
    for row in range(3):
        with pytest.raises(InputError, match=rf"survival is missing \(NaN\) in 1 row \(row {row}, counting from 0\)"):
            metric(TIME, EVENT, changed(row, 1, np.nan), TIMES)
        with pytest.raises(InputError, match=rf"survival rises over time in 1 row \(row {row}, counting from 0\)"):
            metric(TIME, EVENT, changed(row, 1, 0.99), TIMES)


@pytest.mark.parametrize("start", [0.0, 0.4])
def test_survival_at_against_interpolation_one_by_one(start):
    c = cohort(0)
    times = c.times - c.times[0] + start
    time = np.concatenate([c.time[:-3] % times[-1], [times[-1], times[2], 0.0]])
    found = survival_at(time, c.survival, times)
    assert found == pytest.approx(np.diag(interpolated(c.survival, times, time)), rel=1e-12)
    # On the grid the values are those of the table, to the last bit.
    assert found[-3] == c.survival[-3, -1]
    assert found[-2] == c.survival[-2, 2]
    assert found[-1] == (c.survival[-1, 0] if start == 0 else 1.0)


def test_survival_at_extrapolates_nothing():
    with pytest.raises(InputError, match=r"1 of the 3 times lie after 3, .* \(the latest is 4\); give curves on a"):
        survival_at([1, 2, 4], GOOD, TIMES)
    for time in ([1, 2, -1], [1, 2, np.nan], [[1, 2, 3]]):
        with pytest.raises(InputError, match="time must hold one finite time of at least 0 for each row"):
            survival_at(time, GOOD, TIMES)
