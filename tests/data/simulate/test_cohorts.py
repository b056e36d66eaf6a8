"""Simulated cohorts against the distribution that they claim."""

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import kstest, lognorm, norm

from false_alarm import FALSE_ALARM, z_bound
from neuralsurv.data.simulate import lognormal_cohort, lognormal_survival
from neuralsurv.errors import InputError

TRUTH = {0: lognorm(0.8, scale=np.exp(3.0)), 1: lognorm(1.0, scale=np.exp(3.5))}


@pytest.mark.parametrize("group", [0, 1])
def test_event_times_follow_their_group(group):
    cohort = lognormal_cohort(20_000, censoring_rate=0, seed=11)
    assert cohort.event.all()
    times = cohort.time[cohort.x["group"] == group]
    assert kstest(times, TRUTH[group].cdf).pvalue > FALSE_ALARM / 2


def test_groups_are_equally_likely():
    group = lognormal_cohort(20_000, seed=12).x["group"]
    assert set(group) == {0.0, 1.0}
    assert abs(group.mean() - 0.5) < z_bound() * 0.5 / np.sqrt(20_000)


def test_about_half_is_censored_by_default():
    # A time t is censored with probability 1 − exp(−0.025 t).
    expected = np.mean([quad(lambda p, d=d: 1 - np.exp(-0.025 * d.ppf(p)), 0, 1)[0] for d in TRUTH.values()])
    assert 0.4 < expected < 0.6
    censored = ~lognormal_cohort(20_000, seed=13).event
    assert abs(censored.mean() - expected) < z_bound() * np.sqrt(expected * (1 - expected) / 20_000)


def test_censoring_times_are_exponential():
    free = lognormal_cohort(20_000, censoring_rate=0, seed=14)
    cohort = lognormal_cohort(20_000, censoring_rate=0.5, seed=14)
    np.testing.assert_array_equal(cohort.time[cohort.event], free.time[cohort.event])
    assert (cohort.time[~cohort.event] < free.time[~cohort.event]).all()
    # Given that it comes first, the censoring time of a row is a truncated exponential: its own distribution function
    # turns it into a uniform number.
    late = ~cohort.event
    uniform = -np.expm1(-0.5 * cohort.time[late]) / -np.expm1(-0.5 * free.time[late])
    assert kstest(uniform, "uniform").pvalue > FALSE_ALARM


def test_noise_is_standard_normal_and_without_effect():
    cohort = lognormal_cohort(20_000, noise=2, censoring_rate=0, seed=15)
    assert cohort.x.columns.tolist() == ["group", "noise1", "noise2"]
    for name in ("noise1", "noise2"):
        assert kstest(cohort.x[name], norm.cdf).pvalue > FALSE_ALARM / 2
        correlation = np.corrcoef(cohort.x[name], np.log(cohort.time))[0, 1]
        assert abs(correlation) < z_bound(2) / np.sqrt(20_000)


def test_no_noise():
    assert lognormal_cohort(5, noise=0).x.columns.tolist() == ["group"]


@pytest.mark.parametrize("group", [0, 1])
def test_survival_is_the_truth(group):
    times = np.array([0.0, 1.0, 20.0, 33.0, 500.0])
    found = lognormal_survival(group, times)
    assert found[0] == 1
    np.testing.assert_allclose(found, TRUTH[group].sf(times), rtol=1e-12)


def test_reproducible():
    one, again, other = lognormal_cohort(40, seed=3), lognormal_cohort(40, seed=3), lognormal_cohort(40, seed=4)
    assert one.x.equals(again.x)
    np.testing.assert_array_equal(one.time, again.time)
    np.testing.assert_array_equal(one.event, again.event)
    assert not (one.time == other.time).any()


def test_outcome_is_a_pair():
    cohort = lognormal_cohort(7, seed=3)
    assert cohort.y[0] is cohort.time
    assert cohort.y[1] is cohort.event
    assert cohort.time.shape == cohort.event.shape == (7,)
    assert cohort.x.shape == (7, 4)


@pytest.mark.parametrize("n", [0, -3])
def test_too_few_rows(n):
    with pytest.raises(InputError, match=rf"n={n} must be a whole number of at least 1"):
        lognormal_cohort(n)
