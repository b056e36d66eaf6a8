"""The log-likelihood against closed forms, numerical integration and lifelines."""

import numpy as np
import pytest
from lifelines import ExponentialFitter
from scipy.integrate import quad

from metrics.cohorts import cohort
from neuralsurv.errors import InputError
from neuralsurv.metrics import log_likelihood


def test_exponential_curves_on_any_grid_against_lifelines():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(3.0, 80), rng.random(80) < 0.6
    fitter = ExponentialFitter().fit(time, event)
    for times in (np.array([time.max()]), np.linspace(0, 20, 7), np.sort(np.append(rng.random(30), time.max()))):
        survival = np.exp(-times / fitter.lambda_) * np.ones((80, 1))
        assert log_likelihood(time, event, survival, times) * 80 == pytest.approx(fitter.log_likelihood_, rel=1e-10)


def one_row(t, event, survival, times):
    return log_likelihood([t], [event], [survival], times)


@pytest.mark.parametrize("survival", [[0.9, 0.5, 0.4], [0.9, 0.9, 0.1], [0.7, 0.3, 0.0]])
def test_the_density_is_minus_the_derivative_of_survival(survival):
    """Between two times of the grid the densities integrate to what the curve falls by, a fall to 0 included."""
    times = [1.0, 2.0, 4.0]
    ends, values = [0.0, *times], [1.0, *survival]
    for k in range(3):
        fall = quad(lambda t: np.exp(one_row(t, True, survival, times)), ends[k] + 1e-12, ends[k + 1])[0]
        assert fall == pytest.approx(values[k] - values[k + 1], abs=1e-8)
        assert np.exp(one_row(ends[k + 1] - 1e-13, False, survival, times)) == pytest.approx(values[k + 1], abs=1e-9)


def test_an_event_at_a_time_of_the_grid_has_the_hazard_before_it():
    assert one_row(1.0, True, [0.5, 0.5], [1.0, 2.0]) == pytest.approx(np.log(np.log(2)) - np.log(2))


@pytest.mark.parametrize(
    ("t", "event", "survival"),
    [(1.5, True, [0.5, 0.5]), (2.0, False, [0.5, 0.0]), (1.5, True, [0.0, 0.0]), (1.5, False, [0.0, 0.0])],
)
def test_what_a_curve_calls_impossible(t, event, survival):
    assert one_row(t, event, survival, [1.0, 2.0]) == -np.inf
    # One such row is enough, and a row of weight 0 is not there.
    assert log_likelihood([t, 1.0], [event, False], [survival, [0.9, 0.1]], [1.0, 2.0]) == -np.inf
    kept = log_likelihood([t, 1.0], [event, False], [survival, [0.9, 0.1]], [1.0, 2.0], weight=[0, 1])
    assert kept == pytest.approx(np.log(0.9))


def test_a_curve_that_is_not_1_at_time_0():
    assert one_row(0.5, False, [0.8, 0.2], [0.0, 1.0]) == pytest.approx(np.log(np.sqrt(0.8 * 0.2)))


def test_weights_count_as_repeated_rows_and_entry_conditions():
    c = cohort(0)
    found = log_likelihood(c.time, c.event, c.survival, c.times, weight=c.weight)
    rows = np.repeat(np.arange(len(c.time)), c.weight.astype(int))
    again = log_likelihood(c.time[rows], c.event[rows], c.survival[rows], c.times)
    assert found == pytest.approx(again, rel=1e-12)
    late = log_likelihood(c.time, c.event, c.survival, c.times, weight=c.weight, entry=c.entry)
    alive = log_likelihood(c.entry, np.zeros(len(c.time)), c.survival, c.times, weight=c.weight)
    assert late == pytest.approx(found - alive, rel=1e-12)
    assert alive < -0.01


def test_an_entry_where_the_curve_is_0_is_impossible():
    assert log_likelihood([2.0], [True], [[0.0, 0.0]], [1.0, 2.0], entry=[1.5]) == -np.inf


def test_a_time_beyond_the_grid():
    with pytest.raises(InputError, match="1 of the 2 observed times lie after 2, the last time of the curves"):
        log_likelihood([1, 3], [1, 0], [[0.5], [0.5]], [2])


def test_rounding_that_rises_is_flat():
    assert one_row(1.5, False, [0.5, 0.5 + 1e-9], [1.0, 2.0]) == pytest.approx(np.log(0.5), abs=1e-8)
    assert one_row(1.5, True, [0.5, 0.5 + 1e-9], [1.0, 2.0]) == -np.inf
