"""The estimator inside scikit-survival: its curves, its metrics, its scorers and its preprocessing, unchanged."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.pipeline import make_pipeline
from sksurv.column import encode_categorical
from sksurv.functions import StepFunction
from sksurv.metrics import (
    as_concordance_index_ipcw_scorer,
    as_cumulative_dynamic_auc_scorer,
    as_integrated_brier_score_scorer,
    brier_score,
    concordance_index_censored,
    concordance_index_ipcw,
    cumulative_dynamic_auc,
    integrated_brier_score,
)
from sksurv.nonparametric import kaplan_meier_estimator
from sksurv.preprocessing import OneHotEncoder
from sksurv.util import Surv

import neuralsurv
from neuralsurv import NeuralSurv
from neuralsurv.errors import InputError
from small_cohort import quick_model, small_cohort

COHORT = small_cohort(80)
Y = Surv.from_arrays(COHORT.event, COHORT.time)
TIMES = np.quantile(COHORT.time, [0.2, 0.4, 0.6])


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    return quick_model().fit(COHORT.x, Y)


def test_the_library_does_not_import_it() -> None:
    # scikit-survival is GPL: a tool of these tests, never a part of the library, nor imported late inside a function.
    sources = list(Path(neuralsurv.__file__).parent.rglob("*.py"))
    assert len(sources) > 20
    assert [path.name for path in sources if re.search(r"\b(import|from) sksurv", path.read_text("utf-8"))] == []


@pytest.mark.parametrize("kind", ["survival", "cumulative_hazard"])
def test_curves_are_callables_like_its_step_functions(fitted: NeuralSurv, kind: str) -> None:
    curves = getattr(fitted, f"predict_{kind}_function")(COHORT.x.head(5))
    predicted = getattr(fitted._means(COHORT.x.head(5)), kind)(COHORT.x.head(5), fitted.unique_times_)
    assert curves.shape == (5,)
    for curve, row in zip(curves, predicted, strict=True):
        assert {"x", "y", "domain"} <= {name for name in dir(StepFunction(curve.x, curve.y)) if hasattr(curve, name)}
        assert curve.x[0] == 0
        assert (curve.x[1:] == fitted.unique_times_).all()
        assert curve.y[0] == (1 if kind == "survival" else 0)
        assert curve.y[1:] == pytest.approx(row, abs=1e-12)
        assert curve.domain == (0, COHORT.time.max())
        # At its own points it is what a step function would be; between them it lies between its neighbours.
        assert (curve(curve.x) == curve.y).all()
        assert (curve(curve.x) == StepFunction(curve.x, curve.y)(curve.x)).all()
        middle = (curve.x[3] + curve.x[4]) / 2
        assert np.isscalar(curve(middle)[()])
        assert curve(middle) == pytest.approx((curve.y[3] + curve.y[4]) / 2, rel=1e-12)
    matrix = getattr(fitted, f"predict_{kind}_function")(COHORT.x.head(5), return_array=True)
    assert matrix == pytest.approx(predicted, abs=1e-12)


def test_unique_times_are_those_of_the_training(fitted: NeuralSurv) -> None:
    assert (fitted.unique_times_ == np.unique(COHORT.time)).all()
    assert (fitted.predict_survival_function(COHORT.x.head(1))[0].x[1:] == fitted.unique_times_).all()


def test_many_training_times_are_thinned_to_quantiles() -> None:
    crowd = small_cohort(1500)
    model = quick_model(hidden=(), quadrature_points=4, draws=2).fit(crowd.x, crowd.y)
    assert len(model.unique_times_) == 1000
    assert (np.diff(model.unique_times_) > 0).all()
    assert model.unique_times_[[0, -1]].tolist() == [crowd.time.min(), crowd.time.max()]


@pytest.mark.parametrize("time", [-0.1, 1e9, [0.1, 1e9], np.nan])
def test_a_call_outside_of_the_domain_is_refused(fitted: NeuralSurv, time: Any) -> None:
    for curves in (
        fitted.predict_survival_function(COHORT.x.head(1)),
        fitted.predict_cumulative_hazard_function(COHORT.x.head(1)),
    ):
        with pytest.raises(InputError, match=r"the curve is known from 0 to .* only"):
            curves[0](time)


def test_predict_is_a_risk_to_its_concordance_index(fitted: NeuralSurv) -> None:
    risk = fitted.predict(COHORT.x)
    index = concordance_index_censored(COHORT.event, COHORT.time, risk)[0]
    assert index > 0.7
    assert concordance_index_censored(COHORT.event, COHORT.time, -risk)[0] == pytest.approx(1 - index, abs=1e-12)
    # Where the curves do not cross, Antolini's index is Harrell's; they hardly do here.
    assert fitted.score(COHORT.x, Y) == pytest.approx(index, abs=0.03)


def test_curves_have_a_better_brier_score_than_kaplan_meier(fitted: NeuralSurv) -> None:
    ours = fitted.predict_mean_survival(COHORT.x, TIMES).to_numpy()
    times, estimate = kaplan_meier_estimator(COHORT.event, COHORT.time)
    everybody = np.tile(StepFunction(times, estimate)(TIMES), (80, 1))
    assert integrated_brier_score(Y, Y, ours, TIMES) < 0.9 * integrated_brier_score(Y, Y, everybody, TIMES)
    from_curves = np.vstack([curve(TIMES) for curve in fitted.predict_survival_function(COHORT.x)])
    # Between two training times the callable curve is a straight line.
    assert integrated_brier_score(Y, Y, from_curves, TIMES) == pytest.approx(
        integrated_brier_score(Y, Y, ours, TIMES), abs=1e-4
    )
    inside = fitted.unique_times_[5:60]
    array = fitted.predict_survival_function(COHORT.x, return_array=True)[:, 5:60]
    assert np.isfinite(brier_score(Y, Y, array, inside)[1]).all()


SCORERS = {
    "integrated Brier score": (
        lambda model: as_integrated_brier_score_scorer(model, times=TIMES),
        lambda model: -integrated_brier_score(Y, Y, curves_at(model), TIMES),
    ),
    "concordance, censoring weighted": (
        lambda model: as_concordance_index_ipcw_scorer(model, tau=TIMES[-1]),
        lambda model: concordance_index_ipcw(Y, Y, model.predict(COHORT.x), tau=TIMES[-1])[0],
    ),
    "dynamic AUC": (
        lambda model: as_cumulative_dynamic_auc_scorer(model, times=TIMES),
        lambda model: cumulative_dynamic_auc(Y, Y, model.predict(COHORT.x), TIMES)[1],
    ),
}


def curves_at(model: NeuralSurv) -> np.ndarray:
    return np.vstack([curve(TIMES) for curve in model.predict_survival_function(COHORT.x)])


@pytest.mark.parametrize("name", SCORERS)
def test_its_scorers_wrap_the_estimator_unchanged(fitted: NeuralSurv, name: str) -> None:
    wrap, directly = SCORERS[name]
    scorer = wrap(quick_model()).fit(COHORT.x, Y)
    assert isinstance(scorer.estimator_, type(fitted))
    assert scorer.score(COHORT.x, Y) == pytest.approx(directly(fitted), rel=1e-12)
    assert (scorer.predict(COHORT.x) == fitted.predict(COHORT.x)).all()
    # The scores tell a model from a coin: 0.25 is what a survival of one half for everybody gets.
    assert scorer.score(COHORT.x, Y) > (-0.25 if "Brier" in name else 0.6)


@pytest.mark.parametrize("name", SCORERS)
def test_grid_search_reaches_through_its_scorers(name: str) -> None:
    wrap, _ = SCORERS[name]
    # A prior that allows next to no hazard is the worse candidate by far, wherever calibration counts.
    grid = {"estimator__phi_prior": [(1.0, 1e4), (1.0, 1.0)], "estimator__hidden": [()]}
    search = GridSearchCV(wrap(quick_model()), grid, cv=KFold(2, shuffle=True, random_state=1), error_score="raise")
    search.fit(COHORT.x, Y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    if "Brier" in name:
        assert search.best_params_["estimator__phi_prior"] == (1.0, 1.0)
    chosen = search.best_estimator_.estimator_
    assert chosen.phi_prior == search.best_params_["estimator__phi_prior"]
    assert chosen.posterior_.network.hidden == ()


def test_its_preprocessing_in_a_pipeline() -> None:
    arm = pd.Categorical(np.resize(["drug", "placebo", "surgery"], 80))
    x = COHORT.x.assign(arm=arm)
    # One level is left out by its encoders, so the own encoding of the two that are kept is the same thing.
    pipeline = make_pipeline(OneHotEncoder(), quick_model()).fit(x, Y)
    assert pipeline[-1].feature_names_in_.tolist() == ["age", "dose", "arm=placebo", "arm=surgery"]
    by_column = quick_model().fit(encode_categorical(x), Y)
    assert (pipeline.predict(x) == by_column.predict(encode_categorical(x))).all()
    # Its import gives pipelines the methods that return curves.
    curves = pipeline.predict_survival_function(x.head(3))
    expected = by_column.predict_survival_function(encode_categorical(x).head(3))
    assert all((a.y == b.y).all() for a, b in zip(curves, expected, strict=True))
    assert pipeline.score(x, Y) == by_column.score(encode_categorical(x), Y)
    assert len(pipeline.predict_cumulative_hazard_function(x.head(3))) == 3


def test_its_other_field_names_are_understood(fitted: NeuralSurv) -> None:
    y = Surv.from_arrays(COHORT.event, COHORT.time, name_event="Status", name_time="Survival_in_days")
    assert (quick_model().fit(COHORT.x, y).predict(COHORT.x) == fitted.predict(COHORT.x)).all()
