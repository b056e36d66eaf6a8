"""The six frozen designs: truth against other computations, event times against the truth, censoring as asked."""

import numpy as np
import pandas as pd
import pytest
from scipy.integrate import quad
from scipy.stats import fisk, gamma, kstest, lognorm, weibull_min

from false_alarm import FALSE_ALARM, z_bound
from neuralsurv.data.simulate import (
    accelerated_cohort,
    cure_cohort,
    frailty_cohort,
    sparse_cohort,
    turning_effects_cohort,
    two_wave_cohort,
)
from neuralsurv.data.simulate.frozen import (
    AcceleratedTimes,
    CuredShare,
    GammaFrailty,
    SparseHazards,
    TurningEffects,
    TwoWaves,
)
from neuralsurv.errors import InputError
from neuralsurv.metrics import antolini_concordance

COHORTS = {
    "accelerated": accelerated_cohort,
    "sparse": sparse_cohort,
    "turning": turning_effects_cohort,
    "cure": cure_cohort,
    "frailty": frailty_cohort,
    "two waves": two_wave_cohort,
}
DESIGNS = {
    "accelerated": AcceleratedTimes(),
    "sparse": SparseHazards(),
    "turning": TurningEffects(),
    "cure": CuredShare(),
    "frailty": GammaFrailty(),
    "two waves": TwoWaves(),
}
# Concordance of the true curves, as the docstrings say it.
CONCORDANCE = {
    "accelerated": 0.78,
    "sparse": 0.75,
    "turning": 0.69,
    "cure": 0.69,
    "frailty": 0.71,
    "two waves": 0.73,
}
TIMES = np.array([0.0, 0.5, 3.0, 12.0, 30.0, 99.0])


def accelerated(row):
    step = 0.9 if row.x2 > 0.3 else 0.0
    return lognorm(0.7, scale=np.exp(3 + 0.8 * np.sin(2 * row.x1) + step - 0.3 * row.x3**2)).sf(TIMES)


def sparse(row):
    return weibull_min(1.3, scale=25 * np.exp(-(0.9 * row.x3 - 0.7 * row.x11) / 1.3)).sf(TIMES)


def turning(row):
    return fisk(np.exp(0.5 + 0.4 * row.x1), scale=np.exp(3 + 0.6 * row.x2 - 0.5 * row.b)).sf(TIMES)


def cure(row):
    odds = np.exp(-2 + 1.2 * row.x1)
    others = weibull_min(1.4, scale=20 * np.exp(-(0.8 * row.x2 + 0.6 * (row.b - 0.5)) / 1.4))
    return (odds + others.sf(TIMES)) / (1 + odds)


def frailty(row):
    """Average over the frailty numerically."""
    risk = np.exp(row.x1 - 0.7 * row.x2 + 0.8 * (row.b - 0.5))
    law = gamma(1 / 0.8, scale=0.8)
    hazards = risk * (TIMES / 20) ** 1.6
    return [quad(lambda z, h=h: np.exp(-z * h) * law.pdf(z), 0, np.inf, epsabs=1e-12, limit=500)[0] for h in hazards]


def two_waves(row):
    """Integrate the hazard numerically: the density of a Weibull time, and a power of time."""
    early = weibull_min(1.5, scale=6)

    def hazard(t):
        return 0.6 * np.exp(1.2 * row.x1) * early.pdf(t) + np.exp(row.x2 - 0.6 * row.b) * 4 / 40 * (t / 40) ** 3

    return [np.exp(-quad(hazard, 0, t, epsabs=1e-12, epsrel=1e-12, points=[min(t, 6)])[0]) for t in TIMES]


INDEPENDENT = {
    "accelerated": accelerated,
    "sparse": sparse,
    "turning": turning,
    "cure": cure,
    "frailty": frailty,
    "two waves": two_waves,
}


@pytest.mark.parametrize("name", COHORTS)
def test_truth_is_that_of_an_independent_computation(name):
    cohort = COHORTS[name](25, seed=3)
    expected = np.array([INDEPENDENT[name](row) for row in cohort.x.itertuples()])
    np.testing.assert_allclose(cohort.true_survival(TIMES), expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", COHORTS)
def test_truth_is_a_survivor_function(name):
    design = DESIGNS[name]
    x = design.covariates(300, np.random.default_rng(1))
    curves = design.survival(x, np.linspace(0, 100, 500))
    assert (curves[:, 0] == 1).all()
    assert (np.diff(curves, axis=1) <= 0).all()
    assert curves.min() >= 0


@pytest.mark.parametrize("name", COHORTS)
def test_event_times_follow_the_truth(name):
    design = DESIGNS[name]
    rng = np.random.default_rng(5)
    x = design.covariates(4_000, rng)
    time = design.event_times(x, rng)
    drawn = np.isfinite(time)
    assert drawn.all() == (name != "cure")
    # A row's survival at its own event time is uniform; for those who are not cured, between their cured share and 1.
    own = np.concatenate([design.survival(x[k : k + 1], time[k : k + 1])[0] for k in np.flatnonzero(drawn)])
    least = design.cured(x)[drawn] if name == "cure" else 0.0
    assert kstest((own - least) / (1 - least), "uniform").pvalue > FALSE_ALARM
    # The average curve is the share still free of the event.
    times = np.quantile(time[drawn], [0.1, 0.5, 0.9])
    curves = design.survival(x, times)
    free = (time[:, None] > times).mean(0)
    assert (np.abs(free - curves.mean(0)) < z_bound(3) * np.sqrt((curves * (1 - curves)).mean(0) / 4_000)).all()


@pytest.mark.parametrize("name", COHORTS)
def test_event_times_follow_the_truth_among_people_like_each_other(name):
    # The whole sample can hide errors that cancel: here everybody has the covariates of one row.
    design = DESIGNS[name]
    rng = np.random.default_rng(6)
    row = design.covariates(1, rng)
    people = row.loc[np.zeros(3_000, dtype=int)]
    time = design.event_times(people, rng)
    drawn = np.sort(time[np.isfinite(time)])
    never = float(design.cured(row)[0]) if name == "cure" else 0.0
    assert abs(np.isinf(time).mean() - never) <= z_bound(2) * np.sqrt(never * (1 - never) / 3_000)
    curve = (design.survival(row, drawn)[0] - never) / (1 - never)
    assert kstest(curve, "uniform").pvalue > FALSE_ALARM / 2


@pytest.mark.parametrize("share", [0.2, 0.5, 0.7])
@pytest.mark.parametrize("name", COHORTS)
def test_censoring_reaches_its_share(name, share):
    cohort = COHORTS[name](2_000, censoring=share, seed=9)
    # The rate itself comes from 20,000 draws.
    deviation = np.sqrt(share * (1 - share) * (1 / 2_000 + 1 / 20_000))
    assert abs((~cohort.event).mean() - share) < z_bound(len(COHORTS) * 3) * deviation


@pytest.mark.parametrize("name", COHORTS)
def test_concordance_of_the_truth(name):
    rng = np.random.default_rng(8)
    design = DESIGNS[name]
    x = design.covariates(3_000, rng)
    time = design.event_times(x, rng)
    event = time <= design.end
    time = np.minimum(time, design.end)
    grid = np.unique(np.quantile(time, np.linspace(0.001, 1, 400)))
    found = antolini_concordance(time, event, design.survival(x, grid), grid)
    # The variance of a concordance of n pairs-in-n rows is below 1 / (3 n); the docstrings round to 0.005.
    assert abs(found - CONCORDANCE[name]) < 0.005 + z_bound(6) / np.sqrt(3 * 3_000)


def test_nothing_but_the_named_covariates_matters():
    for name, cohort in ((name, make(40, seed=2)) for name, make in COHORTS.items()):
        matter = {"accelerated": ["x1", "x2", "x3"], "sparse": ["x3", "x11"]}.get(name, ["x1", "x2", "b"])
        others = [column for column in cohort.x if column not in matter]
        assert len(others) == (18 if name == "sparse" else 2)
        changed = cohort.x.assign(**{column: 5.0 for column in others})
        np.testing.assert_array_equal(cohort.true_survival(TIMES, changed), cohort.true_survival(TIMES))
        for column in matter:
            other = cohort.x.assign(**{column: 1 - cohort.x[column]})
            assert (cohort.true_survival(TIMES, other) != cohort.true_survival(TIMES)).any(), (name, column)


def test_noise_can_be_left_out():
    assert accelerated_cohort(5, noise=0).x.columns.tolist() == ["x1", "x2", "x3"]
    for name in ("turning", "cure", "frailty", "two waves"):
        assert COHORTS[name](5, noise=1).x.columns.tolist() == ["x1", "x2", "b", "noise1"]


@pytest.mark.parametrize("name", COHORTS)
def test_seeds(name):
    one, again, other = (COHORTS[name](20, seed=seed) for seed in (3, 3, 4))
    pd.testing.assert_frame_equal(one.x, again.x)
    np.testing.assert_array_equal(one.time, again.time)
    np.testing.assert_array_equal(one.event, again.event)
    assert not one.x.equals(other.x)


# Results that are stored rest on these rows: seed 1, 30 % censored.
ROWS_OF_SEED_1 = {
    "accelerated": [79.5015012, 88.1487464, 26.1341223, 60.7625851],
    "sparse": [4.90037876, 59.8515274, 17.3563268, 95.1479688],
    "turning": [10.1988286, 10.138585, 26.1200422, 10.8697366],
    "cure": [8.91626489, 100.0, 18.9160447, 19.8370341],
    "frailty": [20.8311892, 5.54802526, 3.64939204, 103.469138],
    "two waves": [4.78119639, 4.07195168, 8.28302839, 35.9439206],
}


@pytest.mark.parametrize("name", COHORTS)
def test_frozen(name):
    cohort = COHORTS[name](4, seed=1)
    np.testing.assert_allclose(cohort.time, ROWS_OF_SEED_1[name], rtol=1e-6)


def test_too_little_censoring_for_the_cured():
    with pytest.raises(
        InputError, match=r"censoring=0\.1 cannot be reached: 18\.\d% of the rows are free of the event"
    ):
        cure_cohort(5, censoring=0.1)


@pytest.mark.parametrize("name", [name for name in COHORTS if name != "sparse"])
def test_refused_noise(name):
    with pytest.raises(InputError, match="noise=-1 must be a whole number of at least 0"):
        COHORTS[name](5, noise=-1)


@pytest.mark.parametrize("name", COHORTS)
def test_refused_rows_and_shares(name):
    with pytest.raises(InputError, match="n=0 must be a whole number of at least 1"):
        COHORTS[name](0)
    with pytest.raises(InputError, match=r"censoring=1\.0 must be a share of the rows"):
        COHORTS[name](5, censoring=1.0)
