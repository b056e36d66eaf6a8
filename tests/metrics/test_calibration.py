"""D-, KM- and 1-calibration against SurvivalEVAL, against loops, and on curves that are true."""

from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import chi2, kstest
from SurvivalEVAL.evaluations.calibration.distributional import d_calibration as survivaleval_d
from SurvivalEVAL.evaluations.calibration.single_time import one_calibration as survivaleval_one

from false_alarm import FALSE_ALARM, z_bound
from metrics.cohorts import cohort
from metrics.other_software import survivaleval
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics import d_calibration, km_calibration, one_calibration
from neuralsurv.metrics.kaplan_meier import kaplan_meier, survival_curve


def spread_by_hand(event, chance, bins, weight) -> np.ndarray:
    """Ask for every row and bin how much of [0, c] lies in the bin."""
    histogram = np.zeros(bins)
    for e, c, w in zip(event, chance, weight, strict=True):
        for k in range(bins):
            low, high = k / bins, (k + 1) / bins
            if e or c == 0:
                histogram[k] += w * (low <= c < high or (k == bins - 1 and c == 1))
            else:
                histogram[k] += w * max(0.0, min(high, c) - low) / c
    return histogram


@pytest.mark.parametrize("bins", [2, 5, 10, 13])
@pytest.mark.parametrize("share", [0.6, 0.1, 1.0])
@pytest.mark.parametrize("seed", range(3))
def test_d_calibration_against_survivaleval_and_by_hand(seed, share, bins):
    rng = np.random.default_rng(seed)
    event, chance = rng.random(60) < share, rng.random(60)
    chance[:4] = [1.0, 1.0, 0.0, 0.0]
    event[:4] = [True, False, True, False]
    found = d_calibration(event, chance, bins=bins)
    statistic, p_value, histogram = survivaleval_d(chance, event, bins)
    assert found.histogram == pytest.approx(histogram[::-1], rel=1e-11)
    assert found.statistic == pytest.approx(statistic, rel=1e-10)
    assert found.p_value == pytest.approx(p_value, rel=1e-9)
    weight = rng.integers(0, 4, 60)
    weighted = d_calibration(event, chance, bins=bins, weight=weight)
    assert weighted.histogram == pytest.approx(spread_by_hand(event, chance, bins, weight), rel=1e-11)
    rows = np.repeat(np.arange(60), weight)
    repeated = d_calibration(event[rows], chance[rows], bins=bins)
    assert (weighted.statistic, weighted.p_value) == pytest.approx((repeated.statistic, repeated.p_value), rel=1e-9)


def test_a_probability_on_the_edge_of_two_bins_is_in_the_upper_one():
    assert d_calibration([1, 1], [0.3, 0.7], bins=10).histogram.nonzero()[0].tolist() == [3, 7]


def test_true_curves_are_d_calibrated_and_others_are_not():
    """With true curves and no censoring the p-value is uniform; 300 cohorts of 200 rows."""
    rng = np.random.default_rng(0)
    p_values = [d_calibration(np.ones(200), rng.random(200)).p_value for _ in range(300)]
    # The statistic is discrete, but at 200 rows finer than a test of 300 values can see.
    assert kstest(p_values, "uniform").pvalue > FALSE_ALARM
    assert d_calibration(np.ones(200), rng.random(200) ** 2).p_value < FALSE_ALARM


def test_censoring_makes_the_p_value_too_large_as_the_docs_say():
    rng = np.random.default_rng(1)
    p_values = []
    for _ in range(200):
        time, censored = rng.exponential(size=300), rng.exponential(size=300) / 2
        p_values.append(d_calibration(time <= censored, np.exp(-np.minimum(time, censored))).p_value)
    assert kstest(p_values, "uniform", alternative="less").pvalue < FALSE_ALARM
    assert np.mean(np.array(p_values) < 0.05) < 0.05


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_km_calibration_by_trapezoid_is_that_of_survivaleval(seed, tied):
    c = cohort(seed, tied=tied)
    evaluator = survivaleval(c.time, c.event, c.survival, c.times)
    found = km_calibration(c.time, c.event, c.survival, c.times, rule="trapezoid")
    assert found == pytest.approx(evaluator.km_calibration(), rel=1e-11)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_km_calibration_against_numerical_integration(seed, tied):
    c = cohort(seed, tied=tied)
    outcome = Outcome(c.time, c.event, np.zeros(len(c.time)), c.weight)
    mean = np.average(c.survival, axis=0, weights=c.weight)
    knots, values = np.append(0, c.times), np.append(1, mean)
    events = np.unique(c.time[c.event & (c.weight > 0)])

    def squared(t):
        return (np.interp(t, knots, values) - kaplan_meier(outcome, t)[0]) ** 2

    edges = np.union1d(np.append(0, events), knots[knots < events[-1]])
    total = sum(quad(squared, a, b, epsabs=1e-12)[0] for a, b in pairwise(edges))
    found = km_calibration(c.time, c.event, c.survival, c.times, weight=c.weight)
    assert found == pytest.approx(total / events[-1], rel=1e-7)


def test_km_calibration_edges():
    with pytest.raises(InputError, match="none of the 2 rows has an event: there is no last event time"):
        km_calibration([1, 2], [0, 0], [[0.5], [0.5]], [3])
    with pytest.raises(InputError, match="1 of the 2 event times lie after 1, the last time of the curves"):
        km_calibration([1, 2], [1, 1], [[0.5], [0.5]], [1])
    with pytest.raises(InputError, match="rule='simpson' is not known; use 'exact' or 'trapezoid'"):
        km_calibration([1, 2], [1, 1], [[0.5], [0.5]], [2], rule="simpson")
    # A censored row may outlast the grid, and the mean curve may be Kaplan–Meier's own mid-line.
    assert km_calibration([1, 9], [1, 0], [[0.5], [0.5]], [1]) == pytest.approx(0.25 / 3)


@pytest.mark.parametrize("variance", ["greenwood", "binomial"])
@pytest.mark.parametrize("bins", [3, 7])
@pytest.mark.parametrize("seed", range(4))
def test_one_calibration_against_survivaleval(seed, bins, variance):
    rng = np.random.default_rng(seed)
    n = 150
    time, censored = rng.exponential(size=n), rng.exponential(size=n) * 4
    event, time = time <= censored, np.minimum(time, censored)
    chance = rng.uniform(0.2, 0.8, n)
    found = one_calibration(time, event, chance, 0.6, bins=bins, variance=variance)
    p_value, statistic, observed, expected = survivaleval_one(
        1 - chance, time, event, 0.6, num_bins=bins, adjust_variance=variance == "greenwood"
    )
    assert found.observed == pytest.approx(observed, rel=1e-12)
    assert found.expected == pytest.approx(expected, rel=1e-12)
    assert found.statistic == pytest.approx(statistic, rel=1e-10)
    assert found.p_value == pytest.approx(p_value, rel=1e-8)
    assert found.degrees_of_freedom == (bins if variance == "greenwood" else bins - 1)
    assert found.size.sum() == n
    assert set(found.size) <= {n // bins, n // bins + 1}


def test_one_calibration_by_hand_and_in_any_order():
    """Two groups of equal predictions: Kaplan–Meier 3/4 and 1/4 of the event, in whatever order the rows come."""
    time = np.array([1, 2, 9, 3, 4, 9, 9, 9.0])
    event = np.array([1, 1, 0, 1, 1, 0, 0, 0], dtype=bool)
    chance = np.repeat([0.3, 0.8], 4)
    variance = 0.75 * 0.25 / 4
    expected = (0.75 - 0.7) ** 2 / variance + (0.25 - 0.2) ** 2 / variance
    for seed in range(5):
        order = np.random.default_rng(seed).permutation(8)
        found = one_calibration(time[order], event[order], chance[order], 5, bins=2)
        assert found.statistic == pytest.approx(expected, rel=1e-12)
        assert found.p_value == pytest.approx(chi2.sf(expected, 2), rel=1e-12)
    # Four bins, but two different predictions: two groups are left.
    assert one_calibration(time, event, chance, 5, bins=4).size.tolist() == [4, 4]


def test_one_calibration_rejects_true_predictions_as_often_as_it_says():
    rng = np.random.default_rng(3)
    p_values = []
    for _ in range(300):
        rate = rng.uniform(0.3, 2, 400)
        time, censored = rng.exponential(size=400) / rate, rng.exponential(size=400) * 1.2
        outcome = time <= censored, np.minimum(time, censored)
        p_values.append(one_calibration(outcome[1], outcome[0], np.exp(-rate * 0.7), 0.7, bins=4).p_value)
    rejected = np.mean(np.array(p_values) < 0.05)
    assert abs(rejected - 0.05) < z_bound() * np.sqrt(0.05 * 0.95 / 300)


def test_one_calibration_edges():
    time, event, chance = np.arange(1.0, 9), np.array([1, 0, 1, 0, 1, 0, 1, 0]), np.linspace(0.1, 0.9, 8)
    with pytest.raises(InputError, match=r"in 1 of the 2 groups no row is followed up to 4\.5"):
        one_calibration(time, event, chance, 4.5, bins=2)
    with pytest.raises(InputError, match="the variance is 0 in 1 of the 2 groups and 2 degrees of freedom are left"):
        one_calibration(time, event, chance, 3, bins=2)
    with pytest.raises(InputError, match="the variance is 0 in 0 of the 1 groups and 0 degrees of freedom are left"):
        one_calibration(time, event, np.full(8, 0.5), 3, bins=2, variance="binomial")
    with pytest.raises(InputError, match="survival_at has 3 values for 8 rows"):
        one_calibration(time, event, chance[:3], 3)
    with pytest.raises(InputError, match=r"at=0 must be one finite time above 0"):
        one_calibration(time, event, chance, 0)
    with pytest.raises(InputError, match="variance='exact' is not known"):
        one_calibration(time, event, chance, 3, variance="exact")
    with pytest.raises(InputError, match="bins=1 must be a whole number of at least 2"):
        one_calibration(time, event, chance, 3, bins=1)


@pytest.mark.parametrize("bins", [1, 2.5, True, "10"])
def test_bins_that_are_none(bins):
    with pytest.raises(InputError, match="must be a whole number of at least 2"):
        d_calibration([1, 0], [0.5, 0.5], bins=bins)


def test_probabilities_that_are_none():
    with pytest.raises(InputError, match=r"survival_at_time is missing \(NaN\) in 1 row \(row 1, counting from 0\)"):
        d_calibration([1, 0], [0.5, np.nan])
    with pytest.raises(InputError, match=r"survival_at_time is outside \[0, 1\] in 1 row \(row 0, counting from 0\)"):
        d_calibration([1, 0], [1.01, 0.5])
    with pytest.raises(InputError, match=r"survival_at_time has shape \(2, 1\); give one probability for each row"):
        d_calibration([1, 0], [[0.5], [0.5]])
    with pytest.raises(InputError, match="column 'event' has 3 rows but column 'survival_at_time' has 2"):
        d_calibration([1, 0, 1], [0.5, 0.5])
    # Rounding of single precision is none of these.
    assert d_calibration([1, 1], [1 + 1e-7, -1e-7], bins=2).histogram.tolist() == [1, 1]


def test_greenwood_variance_against_its_sum():
    c = cohort(1, tied=True)
    curve = survival_curve(Outcome.from_arrays(c.time, c.event))
    for t in (2.5, 5.0):
        greenwood = 0.0
        for moment in np.unique(c.time[c.event & (c.time <= t)]):
            at_risk, deaths = (c.time >= moment).sum(), ((c.time == moment) & c.event).sum()
            greenwood += deaths / (at_risk * (at_risk - deaths))
        assert float(curve.variance(t)) == pytest.approx(float(curve.after(t)) ** 2 * greenwood, rel=1e-12)
