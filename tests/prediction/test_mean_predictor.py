"""Risk scores, scores and curves without bands: those of the draws, up to the error of the draws."""

import pickle
from copy import copy
from functools import cache

import numpy as np
import pandas as pd
import pytest

from modules import Perceptron
from neuralsurv import NeuralSurv, OwnNetwork
from neuralsurv.errors import InputError
from small_cohort import small_cohort

TIMES = [0.1, 0.5, 1.5]


@cache
def cohort():
    people = small_cohort(80)
    return people.x.assign(stage=np.where(np.arange(80) % 3 == 0, "II", "III"), dose=people.x["dose"]), people.y


@cache
def model():
    return NeuralSurv(draws=4000, verbose=False, random_state=0).fit(*cohort())


@cache
def own_network():
    people = small_cohort(40)
    model = NeuralSurv(network=OwnNetwork(Perceptron(2, (3,)), epochs=2), draws=1000, verbose=False, random_state=0)
    return model.fit(people.x, people.y)


def test_survival_is_near_the_mean_of_the_draws():
    found, drawn = model().predict_mean_survival(cohort()[0], TIMES), model().predict_survival(cohort()[0], TIMES)
    assert found.index.equals(drawn.mean.index)
    assert found.columns.equals(drawn.mean.columns)
    # Two standard errors of the mean of 4,000 draws.
    assert ((found - drawn.mean).abs() < 2 * drawn.std / 4000**0.5 + 0.001).mean(axis=None) > 0.95


def test_times_in_any_order():
    found = model().predict_mean_survival(cohort()[0], TIMES[::-1])
    pd.testing.assert_frame_equal(found[TIMES], model().predict_mean_survival(cohort()[0], TIMES))


def test_risk_is_the_share_of_time_lost():
    drawn = model().predict_rmst(cohort()[0], model().time_scale_)
    expected = 1 - drawn.mean / model().time_scale_
    allowed = 3 * drawn.std / model().time_scale_ / 4000**0.5 + 0.001
    assert (np.abs(model().predict(cohort()[0]) - expected) < allowed).all()


def test_curves_for_scikit_survival():
    drawn = model().predict_cumulative_hazard(cohort()[0], model().unique_times_).mean.to_numpy()
    found = model().predict_cumulative_hazard_function(cohort()[0], return_array=True)
    assert np.median(np.abs(found - drawn) / drawn) < 0.01


def test_gaps_are_averaged_over_values_in_their_place():
    x, y = cohort()
    gaps = x.assign(dose=x["dose"].where(np.arange(len(x)) % 5 > 0))
    fitted = NeuralSurv(draws=4000, verbose=False, random_state=0).fit(gaps, y)
    found, drawn = fitted.predict_mean_survival(gaps, TIMES), fitted.predict_survival(gaps, TIMES)
    lacking = gaps["dose"].isna().to_numpy()
    assert ((found - drawn.mean).abs()[lacking] < 3 * drawn.std[lacking] / 4000**0.5 + 0.001).all(axis=None)
    # Nobody's mean depends on whether others have gaps.
    np.testing.assert_allclose(fitted.predict_mean_survival(gaps[~lacking], TIMES), found[~lacking], atol=1e-6)
    np.testing.assert_allclose(fitted.predict_mean_survival(gaps[lacking], TIMES), found[lacking], atol=1e-6)


def test_a_network_takes_the_mean_of_centred_draws():
    x, own = small_cohort(40).x, own_network()
    many = copy(own).set_params(draws=10_000).predict_survival(x, TIMES)
    found = own.predict_mean_survival(x, TIMES)
    # Its draws are few, and those that it is compared with are off by 0.001 as well.
    assert (found - many.mean).abs().mean(axis=None) < 0.002
    assert (found - many.mean).abs().mean(axis=None) < (own.predict_survival(x, TIMES).mean - many.mean).abs().mean(
        axis=None
    )
    risk = 1 - many_risk(own, x)
    assert np.abs(own.predict(x) - risk).mean() < 0.002
    assert own.predict_cumulative_hazard_function(x, return_array=True).shape == (40, len(own.unique_times_))


def many_risk(own, x):
    return copy(own).set_params(draws=10_000).predict_rmst(x, own.time_scale_).mean.to_numpy() / own.time_scale_


def test_a_pickle_holds_nothing_but_the_fit():
    fresh = NeuralSurv(verbose=False, random_state=0).fit(*cohort())
    before = fresh.predict(cohort()[0])
    assert "mean_curves" in vars(fresh.fitted_)
    again = pickle.loads(pickle.dumps(fresh))
    assert "mean_curves" not in vars(again.fitted_)
    np.testing.assert_array_equal(again.predict(cohort()[0]), before)


def test_bad_times_are_refused():
    with pytest.raises(InputError, match="times"):
        model().predict_mean_survival(cohort()[0], [-1.0])
