import numpy as np
import pytest

from neuralsurv.data.simulate.competing import CAUSES, competing_cohort
from neuralsurv.errors import InputError


def test_observed_shares_meet_the_true_incidences():
    cohort = competing_cohort(20_000, seed=2)
    # Nobody is censored before time 0.2 but by chance: those are left out.
    seen = (cohort.event != "censored") | (cohort.time > 0.2)
    for cause in CAUSES:
        share = ((cohort.event == cause) & (cohort.time <= 0.2))[seen].mean()
        assert share == pytest.approx(cohort.true_incidence([0.2], cause).mean(), abs=0.006)


def test_incidences_rise_from_zero_and_leave_room_for_survival():
    cohort = competing_cohort(30, seed=1)
    relapse, death = (cohort.true_incidence([0, 1, 3, 6], cause) for cause in CAUSES)
    assert (relapse[:, 0] == 0).all()
    assert (np.diff(relapse, axis=1) >= 0).all()
    assert ((relapse + death)[:, -1] < 1).all()


def test_the_integral_is_exact_where_the_other_cause_is_absent():
    cohort = competing_cohort(5, seed=1)
    one = cohort.x.assign(age=-50.0, treatment=0.0, stage=0.0, marker=0.0)
    found = cohort.true_incidence([2.0], "relapse", one)
    assert found == pytest.approx(1 - np.exp(-((2 / 5) ** 0.8)), rel=1e-6)


def test_an_unknown_cause_is_refused():
    with pytest.raises(InputError, match="cause='cure' is not in the cohort; use one of relapse, death"):
        competing_cohort(5).true_incidence([1], "cure")
