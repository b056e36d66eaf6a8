"""Simulated cohorts: event times against the survival they claim, that against other software, censoring as asked."""

import numpy as np
import pandas as pd
import pytest
from pycox.simulations.discrete_logit_hazard import SimSinAccConst
from scipy.special import expit
from scipy.stats import gamma, kstest, lognorm, norm, weibull_min

from false_alarm import FALSE_ALARM, z_bound
from neuralsurv.data.simulate import (
    crossing_hazards_cohort,
    interaction_cohort,
    lognormal_cohort,
    proportional_hazards_cohort,
    sac_cohort,
)
from neuralsurv.data.simulate.designs import (
    LogNormalGroups,
    SineAcceleratingConstant,
    WeibullHazards,
    censoring_rate_for,
)
from neuralsurv.errors import InputError

SIMULATIONS = {
    "lognormal": lognormal_cohort,
    "proportional": proportional_hazards_cohort,
    "interaction": interaction_cohort,
    "crossing": crossing_hazards_cohort,
    "sac": sac_cohort,
}
SMOOTH = [name for name in SIMULATIONS if name != "sac"]
TIMES = np.array([0.0, 0.5, 3.0, 12.0, 30.0, 99.0])


def weibull_rows(x: pd.DataFrame, interaction: float) -> np.ndarray:
    log_risk = 0.8 * x.x1 - 0.5 * x.x2 + 0.6 * (x.b - 0.5) + interaction * x.x1 * x.x2
    return np.stack([weibull_min(1.5, scale=30 * np.exp(-risk / 1.5)).sf(TIMES) for risk in log_risk])


def crossing_rows(x: pd.DataFrame) -> np.ndarray:
    falling = weibull_min(0.8, scale=20 / weibull_min(0.8).median())
    rising = gamma(4, scale=20 / gamma(4).median())
    speed = np.exp(0.5 * x.x1 - 0.3 * x.x2)
    return np.stack([(falling, rising)[int(g)].sf(TIMES * s) for g, s in zip(x.group, speed, strict=True)])


def lognormal_rows(x: pd.DataFrame) -> np.ndarray:
    groups = lognorm(0.8, scale=np.exp(3)), lognorm(1, scale=np.exp(3.5))
    return np.stack([groups[int(g)].sf(TIMES) for g in x.group])


ROWS = {
    "lognormal": lognormal_rows,
    "proportional": lambda x: weibull_rows(x, 0.0),
    "interaction": lambda x: weibull_rows(x, 1.0),
    "crossing": crossing_rows,
}


@pytest.mark.parametrize("name", SMOOTH)
def test_truth_is_that_of_scipy(name):
    cohort = SIMULATIONS[name](25, seed=3)
    np.testing.assert_allclose(cohort.true_survival(TIMES), ROWS[name](cohort.x), rtol=1e-9)


def test_sac_truth_is_that_of_pycox_at_the_steps():
    cohort = sac_cohort(40, spread=3, seed=4)
    # Nine groups of three columns, each adding up to a hidden number.
    hidden = [cohort.x.iloc[:, 3 * k : 3 * k + 3].to_numpy().sum(1, keepdims=True) for k in range(9)]
    study = SimSinAccConst()
    logits = study.logit_haz(study.times[1:], hidden[:3], hidden[3:7], hidden[7:8], hidden[8:9])
    at = np.array([0, 1, 50, 333, 700, 1000])
    expected = study.surv_df(logits).to_numpy()[at].T
    # The study adds 1e-7 to every step's survival.
    np.testing.assert_allclose(cohort.true_survival(study.times[at]), expected, rtol=2e-4, atol=1e-12)


def test_sac_hazard_is_constant_within_a_step():
    cohort = sac_cohort(30, seed=4)
    logs = np.log(cohort.true_survival([5.0, 5.025, 5.05, 5.1]))
    np.testing.assert_allclose(logs[:, 1] - logs[:, 0], (logs[:, 3] - logs[:, 0]) / 4, rtol=1e-6)
    np.testing.assert_allclose(logs[:, 2] - logs[:, 0], (logs[:, 3] - logs[:, 0]) / 2, rtol=1e-6)


@pytest.mark.parametrize("name", SMOOTH)
def test_event_times_follow_the_truth(name):
    cohort = SIMULATIONS[name](4_000, censoring=0, seed=5)
    assert cohort.event.all()
    # A row's survival at its own event time is uniform.
    own = np.diag(cohort.true_survival(cohort.time[:500], cohort.x.head(500)))
    assert kstest(own, "uniform").pvalue > FALSE_ALARM
    # The average curve is the share still free of the event.
    times = np.quantile(cohort.time, [0.1, 0.5, 0.9])
    curves = cohort.true_survival(times)
    free = (cohort.time[:, None] > times).mean(0)
    deviation = np.sqrt((curves * (1 - curves)).mean(0) / len(cohort.time))
    assert (np.abs(free - curves.mean(0)) < z_bound(3) * deviation).all()


def test_sac_event_times_follow_the_truth():
    cohort = sac_cohort(1_500, censoring=0.25, seed=6)
    rate = censoring_rate_for(cohort.design, 0.25)
    times = np.array([5.0, 20.0, 60.0, 99.9])
    seen = cohort.true_survival(times) * np.exp(-rate * times)
    still = (cohort.time[:, None] > times).mean(0)
    assert (np.abs(still - seen.mean(0)) < z_bound(4) * np.sqrt((seen * (1 - seen)).mean(0) / 1_500)).all()


def test_sac_covariates_hide_uniform_numbers():
    x = sac_cohort(3_000, spread=2, seed=7).x
    assert x.shape == (3_000, 18)
    assert x.columns[0] == "x0"
    sums = x.to_numpy().reshape(3_000, 9, 2).sum(2)
    assert np.abs(sums).max() <= 1
    assert all(kstest(column, "uniform", (-1, 2)).pvalue > FALSE_ALARM / 18 for column in sums.T)
    correlations = np.corrcoef(sums.T)[np.triu_indices(9, 1)]
    assert np.abs(correlations).max() < z_bound(36) / np.sqrt(3_000)


def test_sac_own_censoring_has_a_constant_hazard():
    cohort = sac_cohort(3_000, seed=8)
    rate = -10 * np.log1p(-expit(-7))
    stays = cohort.true_survival([30.0])[:, 0] * np.exp(-30 * rate)
    assert abs((cohort.time > 30).mean() - stays.mean()) < z_bound() * np.sqrt((stays * (1 - stays)).mean() / 3_000)
    assert (cohort.time[~cohort.event] < 100).any()
    assert cohort.time.max() == 100


@pytest.mark.parametrize("share", [0.2, 0.5, 0.8])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_censoring_reaches_its_share(name, share):
    later = {"end": 150.0} if name == "sac" else {}
    cohort = SIMULATIONS[name](2_000, censoring=share, seed=9, **later)
    # The rate itself comes from 20,000 draws.
    deviation = np.sqrt(share * (1 - share) * (1 / 2_000 + 1 / 20_000))
    assert abs((~cohort.event).mean() - share) < z_bound(len(SIMULATIONS) * 3) * deviation


def test_censoring_keeps_people_and_events():
    free = crossing_hazards_cohort(500, censoring=0, seed=10)
    half = crossing_hazards_cohort(500, censoring=0.5, seed=10)
    pd.testing.assert_frame_equal(free.x, half.x)
    np.testing.assert_array_equal(half.time[half.event], free.time[half.event])
    assert (half.time[~half.event] < free.time[~half.event]).all()


def test_rate_for_a_share_solves_the_expectation():
    # For exponential event times of rate 1 the share is rate / (1 + rate): a third with half of it.
    class Exponential(WeibullHazards):
        shape = 1.0
        scale = 1.0

        def log_risk(self, x):
            return np.zeros(len(x))

    deviation = 0.5 / np.sqrt(20_000)
    rate = censoring_rate_for(Exponential(), 1 / 3)
    assert abs(rate / (1 + rate) - 1 / 3) < z_bound() * deviation


def test_strength_and_noise():
    weak = interaction_cohort(50, strength=0.0, noise=0, seed=1)
    assert weak.x.columns.tolist() == ["x1", "x2", "b"]
    plain = proportional_hazards_cohort(50, noise=0, seed=1)
    np.testing.assert_array_equal(weak.true_survival(TIMES), plain.true_survival(TIMES))
    noisy = crossing_hazards_cohort(3_000, noise=1, seed=1)
    assert noisy.x.columns.tolist() == ["group", "x1", "x2", "noise1"]
    assert kstest(noisy.x["noise1"], norm.cdf).pvalue > FALSE_ALARM


def test_truth_of_other_people_takes_columns_by_name():
    cohort = crossing_hazards_cohort(30, seed=2)
    others = crossing_hazards_cohort(20, seed=3)
    shuffled = others.x[others.x.columns[::-1]].assign(more=1.0)
    np.testing.assert_array_equal(cohort.true_survival(TIMES, shuffled), others.true_survival(TIMES))


@pytest.mark.parametrize("name", SIMULATIONS)
def test_seeds(name):
    one, again, other = (SIMULATIONS[name](20, seed=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one.x, again.x)
    np.testing.assert_array_equal(one.time, again.time)
    np.testing.assert_array_equal(one.event, again.event)
    assert not (one.time == other.time).any()


def test_refusals_of_the_truth():
    cohort = sac_cohort(5, seed=1)
    with pytest.raises(
        InputError, match=r"2 of 3 times are missing or outside of the follow-up, which runs from 0 to 100"
    ):
        cohort.true_survival([1.0, 101.0, np.nan])
    with pytest.raises(InputError, match=r"1 of 1 times are missing or outside of the follow-up, .* from 0 to inf"):
        lognormal_cohort(5).true_survival([-1.0])
    with pytest.raises(InputError, match="times has 2 dimensions; give a list of times"):
        cohort.true_survival([[1.0]])
    with pytest.raises(InputError, match="x lacks 2 of the cohort's columns: x0, x44"):
        cohort.true_survival([1.0], cohort.x.drop(columns=["x0", "x44"]))


@pytest.mark.parametrize("name", SIMULATIONS)
@pytest.mark.parametrize("share", [-0.1, 1.0, np.nan, "half"])
def test_refused_shares(name, share):
    with pytest.raises(
        InputError, match=rf"censoring={share!r} must be a share of the rows".replace("(", r"\(").replace(")", r"\)")
    ):
        SIMULATIONS[name](5, censoring=share)


@pytest.mark.parametrize("n", [0, 2.5])
@pytest.mark.parametrize("name", SIMULATIONS)
def test_refused_rows(name, n):
    with pytest.raises(InputError, match=rf"n={n} must be a whole number of at least 1"):
        SIMULATIONS[name](n)


@pytest.mark.parametrize("name", SMOOTH)
def test_refused_noise(name):
    with pytest.raises(InputError, match="noise=-1 must be a whole number of at least 0"):
        SIMULATIONS[name](5, noise=-1)


def test_other_refusals():
    with pytest.raises(InputError, match="spread=0 must be a whole number of at least 1"):
        sac_cohort(5, spread=0)
    with pytest.raises(InputError, match="end=-3 must be a positive number"):
        sac_cohort(5, end=-3)
    with pytest.raises(InputError, match="strength=nan must be a finite number"):
        interaction_cohort(5, strength=np.nan)
    with pytest.raises(InputError, match="censoring_rate=-1 must be a number of at least 0"):
        lognormal_cohort(5, censoring_rate=-1)
    with pytest.raises(InputError, match=r"censoring_rate=0\.1 and censoring=0\.5 are both given; give one of them"):
        lognormal_cohort(5, censoring_rate=0.1, censoring=0.5)
    with pytest.raises(
        InputError, match=r"censoring=0\.1 cannot be reached: 2\d\.\d% of the rows are free of the event"
    ):
        sac_cohort(5, censoring=0.1)


def test_designs_without_censoring_need_no_rate():
    assert censoring_rate_for(LogNormalGroups(), 0) == 0
    assert SineAcceleratingConstant().end == 100
