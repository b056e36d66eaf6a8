"""The estimator's contract: scikit-learn's customs, forms of the outcome, episodes, and what happens on the way."""

import copy
import inspect
import logging
import pickle
import warnings
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils import get_tags

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data.outcome import Outcome
from neuralsurv.data.simulate import lognormal_cohort
from neuralsurv.errors import CollapseWarning, ConvergenceWarning, InputError, NotFiniteError, QuadratureWarning
from neuralsurv.inference.paper import mode, updates
from small_cohort import quick_model, small_cohort

COHORT = small_cohort()
TIMES = [0.2, 0.5, 1.0, 2.0]

# Two fits of one problem whose sums are added up in another order. The mode is where a smooth function is lowest; with
# values known to 1e-16 of their size (about 100) its place is known to the square root, 1e-7, and curves move with it.
SAME_OPTIMUM = 2e-6


@pytest.fixture(scope="module")
def fitted() -> NeuralSurv:
    return quick_model().fit(COHORT.x, COHORT.y)


def curves(model: NeuralSurv, x: Any = COHORT.x) -> np.ndarray:
    return model.predict_survival(x, TIMES).draws


def fitted_names(model: NeuralSurv) -> list[str]:
    return [name for name in vars(model) if name.endswith("_") or name.startswith("_")]


# --- scikit-learn's customs -------------------------------------------------------------------------------------------


def test_a_clone_has_the_parameters_and_none_of_the_fit(fitted: NeuralSurv) -> None:
    copied = clone(fitted)
    assert copied.get_params() == fitted.get_params()
    assert fitted_names(copied) == []


def test_parameters_are_those_of_the_constructor_and_can_be_set() -> None:
    for model in (NeuralSurv(), PaperNeuralSurv()):
        assert set(model.get_params()) == set(inspect.signature(type(model)).parameters)
        assert model.set_params(hidden=(3,), draws=15) is model
        assert (model.get_params()["hidden"], model.get_params()["draws"]) == ((3,), 15)
    with pytest.raises(ValueError, match="Invalid parameter 'widths'"):
        model.set_params(widths=(3,))


@pytest.mark.parametrize(
    ("parameters", "read"),
    [
        ({"hidden": (3,)}, lambda m: m.posterior_.network.hidden),
        ({"activation": "silu"}, lambda m: m.posterior_.network.activation),
        ({"rho": 1.5}, lambda m: m.posterior_.rho),
        ({"phi_prior": (2.0, 3.0)}, lambda m: (m.phi_prior_.shape, m.phi_prior_.rate)),
        ({"starts": 3}, lambda m: len(m.diagnostics_.mode_objectives)),
        ({"draws": 7}, lambda m: len(curves(m))),
        ({"normaliser": "ClosedForm"}, lambda m: type(m.posterior_.normaliser).__name__),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else "",
)
def test_a_parameter_reaches_the_fit(parameters: dict[str, Any], read: Any) -> None:
    expected = next(iter(parameters.values()))
    given = {"normaliser": "closed-form"} if "normaliser" in parameters else parameters
    assert read(quick_model(**given).fit(COHORT.x, COHORT.y)) == expected


@pytest.mark.parametrize(
    "parameters",
    [{"quadrature": "trapezoid", "quadrature_points": 100}, {"quadrature_points": 2}, {"standardise": False}],
    ids=lambda given: next(iter(given)),
)
def test_a_parameter_changes_the_fit(fitted: NeuralSurv, parameters: dict[str, Any]) -> None:
    # Two of these are other approximations of the same integrals, so the curves move, but not by much.
    assert np.abs(curves(quick_model(**parameters).fit(COHORT.x, COHORT.y)) - curves(fitted)).max() > SAME_OPTIMUM


def test_the_spread_and_the_search_are_those_that_were_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(ConvergenceWarning):
        first_sweeps = [quick_model(spread=s, max_sweeps=1).fit(COHORT.x, COHORT.y).elbo_ for s in ("mode", "prior")]
    assert abs(first_sweeps[0] - first_sweeps[1]) > 0.1

    def em(*_: Any, **__: Any) -> None:
        raise NotFiniteError("this was EM")

    monkeypatch.setattr(mode, "em", em)
    with pytest.raises(NotFiniteError, match="this was EM"):
        quick_model(mode="em").fit(COHORT.x, COHORT.y)


def test_a_wider_tolerance_takes_fewer_sweeps_and_acceleration_too(fitted: NeuralSurv) -> None:
    def sweeps(**parameters: Any) -> int:
        return quick_model(**parameters).fit(COHORT.x, COHORT.y).diagnostics_.sweeps

    assert sweeps(tolerance=1e-2) < fitted.diagnostics_.sweeps < sweeps(accelerate=False)


def test_a_wider_tolerance_of_the_mode_takes_fewer_steps(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="neuralsurv")
    steps = []
    for tolerance in (1e-2, 1e-14):
        quick_model(mode_tolerance=tolerance).fit(COHORT.x, COHORT.y)
        steps.append(steps_of_the_mode(caplog))
    assert steps[0] < steps[1]


def test_fit_returns_itself_and_leaves_the_parameters_alone() -> None:
    model = quick_model(hidden=[4], phi_prior=[1.0, 1.0])
    before = copy.deepcopy(model.get_params())
    assert model.fit(COHORT.x, COHORT.y) is model
    assert model.get_params() == before


def test_tags() -> None:
    tags = get_tags(NeuralSurv())
    assert tags.target_tags.required
    assert tags.input_tags.allow_nan
    assert tags.input_tags.categorical
    assert tags.input_tags.string
    assert not tags.input_tags.sparse
    # Neither classifier nor regressor: folds are not stratified, and no score of theirs is taken.
    assert tags.estimator_type is None


@pytest.mark.parametrize(
    "call",
    [
        lambda m: m.predict(COHORT.x),
        lambda m: m.score(COHORT.x, COHORT.y),
        lambda m: m.predict_survival(COHORT.x, TIMES),
        lambda m: m.predict_cumulative_hazard(COHORT.x, TIMES),
        lambda m: m.predict_hazard(COHORT.x, TIMES),
        lambda m: m.predict_conditional_survival(COHORT.x, TIMES, given=0.1),
        lambda m: m.predict_quantile(COHORT.x, 0.5),
        lambda m: m.predict_median(COHORT.x),
        lambda m: m.predict_event_time(COHORT.x),
        lambda m: m.predict_rmst(COHORT.x, 1.0),
        lambda m: m.predict_difference(COHORT.x, COHORT.x, TIMES),
        lambda m: m.predict_survival_path(COHORT.x, TIMES),
        lambda m: m.predict_survival_function(COHORT.x),
        lambda m: m.predict_cumulative_hazard_function(COHORT.x),
        lambda m: m.to_inference_data(COHORT.x, COHORT.y),
        lambda m: m.plot_survival(COHORT.x),
        lambda m: m.plot_elbo(),
        lambda m: m.summary(),
        lambda m: m.save("nowhere"),
    ],
)
def test_nothing_works_before_the_fit(call: Any) -> None:
    with pytest.raises(NotFittedError, match="not fitted yet"):
        call(NeuralSurv())


def test_names_and_number_of_the_covariates(fitted: NeuralSurv) -> None:
    assert fitted.n_features_in_ == 2
    assert fitted.feature_names_in_.tolist() == ["age", "dose"]
    assert fitted.feature_names_in_.dtype == object
    named = quick_model().fit(COHORT.frame(), time="years", event="died")
    assert named.n_features_in_ == 2
    assert named.feature_names_in_.tolist() == ["age", "dose"]
    assert not hasattr(quick_model().fit(COHORT.x.to_numpy(), COHORT.y), "feature_names_in_")


def test_columns_are_found_by_name_in_a_table_and_by_place_in_a_matrix(fitted: NeuralSurv) -> None:
    assert (fitted.predict(COHORT.x[["dose", "age"]]) == fitted.predict(COHORT.x)).all()
    assert (fitted.predict(COHORT.x.to_numpy()) == fitted.predict(COHORT.x)).all()
    with pytest.raises(InputError, match="column 'dose' is missing"):
        fitted.predict(COHORT.x[["age"]])
    with pytest.raises(InputError, match="X has 3 features, but PaperNeuralSurv is expecting 2 features as input"):
        fitted.predict(np.zeros((4, 3)))
    with pytest.raises(InputError, match="X has 1 features, but PaperNeuralSurv is expecting 2"):
        fitted.predict_difference(COHORT.x, np.zeros((1, 1)), TIMES)


def test_a_refit_with_other_columns_leaves_nothing_of_the_old_ones() -> None:
    model = quick_model().fit(COHORT.frame(), time="years", event="died")
    model.fit(COHORT.x[["age"]].to_numpy(), COHORT.y)
    assert model.n_features_in_ == 1
    assert not hasattr(model, "feature_names_in_")
    assert model.columns_ == {}
    with pytest.raises(InputError, match="X has 2 features, but PaperNeuralSurv is expecting 1"):
        model.predict(COHORT.x.to_numpy())
    fresh = quick_model().fit(COHORT.x[["age"]].to_numpy(), COHORT.y)
    assert (model.predict(COHORT.x[["age"]].to_numpy()) == fresh.predict(COHORT.x[["age"]].to_numpy())).all()


def failing_fits() -> list[Any]:
    no_event = np.zeros(40, dtype=bool)
    return [
        pytest.param(lambda m: m.fit(COHORT.x[["age"]], (COHORT.time, no_event)), "none of the 40 rows", id="y"),
        pytest.param(lambda m: m.fit(COHORT.x.assign(one=1.0), COHORT.y), "'one' is constant", id="X"),
        pytest.param(lambda m: m.set_params(mode="newton").fit(COHORT.x, COHORT.y), "'newton' is not", id="choice"),
    ]


@pytest.mark.parametrize(("fail", "message"), failing_fits())
def test_a_failed_fit_leaves_no_state(fail: Any, message: str) -> None:
    model = quick_model()
    with pytest.raises(InputError, match=message):
        fail(model)
    assert fitted_names(model) == []


@pytest.mark.parametrize(("fail", "message"), failing_fits())
def test_a_failed_refit_leaves_the_earlier_model_whole(fitted: NeuralSurv, fail: Any, message: str) -> None:
    model = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(InputError, match=message):
        fail(model)
    assert (curves(model) == curves(fitted)).all()
    assert str(model.summary()) == str(fitted.summary())


def test_a_refit_that_fails_in_the_middle_leaves_the_earlier_model_whole(
    fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = pickle.loads(pickle.dumps(fitted))

    def broken(*_: Any, **__: Any) -> float:
        return float("nan")

    monkeypatch.setattr(updates, "elbo", broken)
    with pytest.raises(NotFiniteError, match="the ELBO became nan in sweep 1"):
        model.fit(COHORT.x[["age"]].to_numpy(), COHORT.y)
    assert (curves(model) == curves(fitted)).all()
    assert model.n_features_in_ == 2
    assert model.feature_names_in_.tolist() == ["age", "dose"]


def test_the_seed_decides_starts_and_draws(fitted: NeuralSurv) -> None:
    assert (curves(quick_model().fit(COHORT.x, COHORT.y)) == curves(fitted)).all()
    assert (curves(fitted) == curves(fitted)).all()
    instance = quick_model(random_state=np.random.RandomState(0)).fit(COHORT.x, COHORT.y)
    assert (curves(instance) == curves(fitted)).all()
    # One mode, so other starts end in the same place; other draws do not.
    other = quick_model(hidden=(), random_state=1).fit(COHORT.x, COHORT.y)
    first = quick_model(hidden=(), random_state=0).fit(COHORT.x, COHORT.y)
    assert other.elbo_[-1] == pytest.approx(first.elbo_[-1], abs=1e-6)
    assert np.abs(curves(other) - curves(first)).max() > 0.01


def test_the_seed_decides_where_the_search_starts(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="neuralsurv")
    starts = []
    for seed in (0, 1, 0):
        caplog.clear()
        quick_model(random_state=seed).fit(COHORT.x, COHORT.y)
        starts.append(caplog.records[0].getMessage())
    assert starts[0].startswith("mode: step 1, U = ")
    assert starts[0] == starts[2] != starts[1]


def test_without_a_seed_no_two_fits_share_their_draws() -> None:
    model = quick_model(hidden=(), random_state=None)
    assert np.abs(curves(model.fit(COHORT.x, COHORT.y)) - curves(model.fit(COHORT.x, COHORT.y))).max() > 0.01


def test_inputs_are_not_modified() -> None:
    frame, y, weight = COHORT.x.copy(), COHORT.y, np.linspace(0, 2, 40)
    quick_model().fit(frame, y, entry=np.zeros(40), sample_weight=weight).predict_survival(frame, TIMES)
    pd.testing.assert_frame_equal(frame, COHORT.x)
    assert (y == COHORT.y).all()
    assert (weight == np.linspace(0, 2, 40)).all()
    time, event = COHORT.time.copy(), COHORT.event.copy()
    matrix = COHORT.x.to_numpy(copy=True)
    quick_model().fit(matrix, (time, event)).predict(matrix)
    assert (matrix == COHORT.x.to_numpy()).all()
    assert (time == COHORT.time).all()
    assert (event == COHORT.event).all()


def test_read_only_and_strided_arrays(fitted: NeuralSurv) -> None:
    wide = np.zeros((80, 4))
    wide[::2, ::-2] = COHORT.x.to_numpy()
    time, event = np.repeat(COHORT.time, 2)[::2], np.repeat(COHORT.event, 2)[::2]
    for array in (wide, time, event):
        array.setflags(write=False)
    x = wide[::2, ::-2]
    assert not x.flags.contiguous
    model = quick_model().fit(x, (time, event))
    assert (curves(model, x) == curves(fitted)).all()
    assert (curves(model, np.asfortranarray(x)) == curves(fitted)).all()


def test_a_fitted_model_can_be_pickled(fitted: NeuralSurv) -> None:
    again = pickle.loads(pickle.dumps(fitted))
    assert (curves(again) == curves(fitted)).all()


def test_predict_is_a_risk(fitted: NeuralSurv) -> None:
    risk = fitted.predict(COHORT.x)
    last = COHORT.time.max()
    many = copy.copy(fitted).set_params(draws=4000).predict_rmst(COHORT.x, last)
    assert risk == pytest.approx(1 - many.mean.to_numpy() / last, abs=0.02)
    assert risk.shape == (40,)
    assert ((risk > 0) & (risk < 1)).all()
    # Age is what kills in this cohort, and the order of the risks is the reverse of that of the curves.
    assert spearmanr(risk, fitted.predict_survival(COHORT.x, TIMES).mean.mean(axis=1)).statistic < -0.9
    assert spearmanr(risk, COHORT.time).statistic < -0.3


# Two events at one time, and a censored row at the time of an event.
SCORED_TIME = np.array([1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 10]) / 10
SCORED_EVENT = np.array([1, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1, 0, 1, 0], dtype=bool)


def antolini_by_brute_force(survival: Any) -> float:
    """Return the index from a function of time to everybody's survival, pair by pair."""
    time, event = SCORED_TIME, SCORED_EVENT
    concordant, comparable = 0.0, 0
    for i in range(len(time)):
        for j in range(len(time)):
            outlives = time[j] > time[i] or (time[j] == time[i] and not event[j])
            if i == j or not event[i] or not outlives:
                continue
            comparable += 1
            ours, theirs = survival(time[i])[i], survival(time[i])[j]
            concordant += 1.0 if ours < theirs else 0.5 if ours == theirs else 0.0
    return concordant / comparable


def test_score_is_antolinis_concordance_by_brute_force(fitted: NeuralSurv) -> None:
    x = COHORT.x.head(14)
    expected = antolini_by_brute_force(lambda t: fitted.predict_mean_survival(x, [t]).to_numpy()[:, 0])
    assert fitted.score(x, (SCORED_TIME, SCORED_EVENT)) == pytest.approx(expected, rel=1e-12)


def test_score_takes_the_curves_at_the_time_of_each_event(fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch) -> None:
    # Curves that cross and, being rounded, tie: with the wrong time or person the index is another.
    rng = np.random.default_rng(0)
    pace, shape = rng.uniform(0.3, 3, 14), rng.uniform(0.3, 4, 14)

    def survival(t: float) -> np.ndarray:
        return np.round(np.exp(-pace * t**shape), 1)

    def predicted(_: NeuralSurv, X: Any, times: np.ndarray) -> pd.DataFrame:
        return pd.DataFrame(np.column_stack([survival(t) for t in times]), columns=times)

    monkeypatch.setattr(type(fitted), "predict_mean_survival", predicted)
    found = fitted.score(COHORT.x.head(14), (SCORED_TIME, SCORED_EVENT))
    assert found == pytest.approx(antolini_by_brute_force(survival), rel=1e-12)


def test_score_says_what_is_wrong(fitted: NeuralSurv) -> None:
    with pytest.raises(InputError, match="X has 39 rows but y has 40"):
        fitted.score(COHORT.x.head(39), COHORT.y)
    with pytest.raises(InputError, match="none of the 40 rows has an event: the concordance index is not defined"):
        fitted.score(COHORT.x, (COHORT.time, np.zeros(40)))


def test_a_pipeline_that_scales_changes_nothing(fitted: NeuralSurv) -> None:
    # The estimator standardises by itself, so what an affine step before it does is undone.
    pipeline = make_pipeline(StandardScaler(), quick_model()).fit(COHORT.x, COHORT.y)
    assert pipeline.predict(COHORT.x) == pytest.approx(fitted.predict(COHORT.x), rel=1e-4)
    assert pipeline.score(COHORT.x, COHORT.y) == pytest.approx(fitted.score(COHORT.x, COHORT.y), abs=1e-3)
    assert pipeline[-1].n_features_in_ == 2


def test_a_pipeline_passes_weights_on() -> None:
    weight = np.repeat([0.0, 1.0], 20)
    pipeline = make_pipeline(StandardScaler(), quick_model())
    weighted = pipeline.fit(COHORT.x, COHORT.y, paperneuralsurv__sample_weight=weight).predict(COHORT.x)
    kept = quick_model().fit(StandardScaler().fit(COHORT.x).transform(COHORT.x)[20:], COHORT.y[20:])
    assert weighted == pytest.approx(kept.predict(pipeline[0].transform(COHORT.x)), rel=1e-12)


def test_a_column_transformer_and_the_own_encoding_see_the_same_people() -> None:
    arm = np.resize(["drug", "placebo", "surgery"], 40)
    x = COHORT.x.assign(arm=arm)
    steps = make_column_transformer((StandardScaler(), ["age", "dose"]), (OneHotEncoder(), ["arm"]))
    outside = make_pipeline(steps, quick_model(hidden=())).fit(x, COHORT.y)
    inside = quick_model(hidden=()).fit(x, COHORT.y)
    assert inside.encoding_.outputs == ("age", "dose", "arm=drug", "arm=placebo", "arm=surgery")
    assert outside.predict(x) == pytest.approx(inside.predict(x), rel=1e-4)


def test_cross_validation_by_hand_is_that_of_scikit_learn() -> None:
    folds = KFold(3, shuffle=True, random_state=0)
    scores = cross_val_score(quick_model(), COHORT.x, COHORT.y, cv=folds, error_score="raise")
    by_hand = [
        quick_model().fit(COHORT.x.iloc[train], COHORT.y[train]).score(COHORT.x.iloc[test], COHORT.y[test])
        for train, test in folds.split(COHORT.x)
    ]
    assert scores == pytest.approx(by_hand, rel=1e-12)
    assert scores.mean() > 0.6


def test_grid_search_takes_the_better_candidate() -> None:
    search = GridSearchCV(
        quick_model(hidden=()), {"rho": [1.0, 1.5], "draws": [10, 20]}, cv=KFold(2), error_score="raise"
    ).fit(COHORT.x, COHORT.y)
    assert search.best_score_ == max(search.cv_results_["mean_test_score"])
    assert search.best_estimator_.posterior_.rho == search.best_params_["rho"]
    assert search.best_estimator_.draws == search.best_params_["draws"]
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    assert (search.predict(COHORT.x) == search.best_estimator_.predict(COHORT.x)).all()


def test_cross_validation_with_a_table_as_outcome() -> None:
    y = pd.DataFrame({"time": COHORT.time, "event": COHORT.event})
    scores = cross_val_score(quick_model(), COHORT.x, y, cv=2, error_score="raise")
    expected = cross_val_score(quick_model(), COHORT.x, COHORT.y, cv=2, error_score="raise")
    assert (scores == expected).all()


# --- every form of the outcome ----------------------------------------------------------------------------------------

ENTRY = np.where(np.arange(40) % 3 == 0, COHORT.time / 4, 0.0)
WEIGHT = 1.0 + np.arange(40) % 3
TABLE = COHORT.frame().assign(start=ENTRY, count=WEIGHT)

PLAIN_FORMS = {
    "structured array": lambda m: m.fit(COHORT.x, COHORT.y),
    "structured array, time first": lambda m: m.fit(COHORT.x, COHORT.y[["time", "event"]]),
    "pair": lambda m: m.fit(COHORT.x, (COHORT.time, COHORT.event)),
    "pair of lists": lambda m: m.fit(COHORT.x, (COHORT.time.tolist(), COHORT.event.astype(int).tolist())),
    "triple": lambda m: m.fit(COHORT.x, (np.zeros(40), COHORT.time, COHORT.event)),
    "frame": lambda m: m.fit(COHORT.x, pd.DataFrame({"event": COHORT.event, "time": COHORT.time})),
    "outcome": lambda m: m.fit(COHORT.x, Outcome.from_arrays(COHORT.time, COHORT.event)),
    "names": lambda m: m.fit(COHORT.frame(), time="years", event="died"),
    "arrays": lambda m: m.fit(COHORT.x, time=COHORT.time, event=COHORT.event),
    "name and array": lambda m: m.fit(COHORT.x.assign(years=COHORT.time), time="years", event=COHORT.event),
}


@pytest.mark.parametrize("form", PLAIN_FORMS)
def test_every_form_of_the_outcome_is_the_same_fit(fitted: NeuralSurv, form: str) -> None:
    assert (curves(PLAIN_FORMS[form](quick_model())) == curves(fitted)).all()


FULL_FORMS = {
    "pair, entry and weight": lambda m: m.fit(COHORT.x, (COHORT.time, COHORT.event), entry=ENTRY, sample_weight=WEIGHT),
    "triple, weight": lambda m: m.fit(COHORT.x, (ENTRY, COHORT.time, COHORT.event), sample_weight=WEIGHT),
    "structured array": lambda m: m.fit(
        COHORT.x, COHORT.y, entry=list(ENTRY), sample_weight=pd.Series(WEIGHT, TABLE.index)
    ),
    # An index of its own must not reorder an array that belongs to the rows by their place.
    "series": lambda m: m.fit(COHORT.x, COHORT.y, entry=pd.Series(ENTRY, range(40, 0, -1)), sample_weight=WEIGHT),
    "frame": lambda m: m.fit(
        COHORT.x,
        pd.DataFrame({"time": COHORT.time, "event": COHORT.event, "entry": ENTRY, "weight": WEIGHT}),
    ),
    "names": lambda m: m.fit(TABLE, time="years", event="died", entry="start", sample_weight="count"),
    "arrays": lambda m: m.fit(COHORT.x, time=COHORT.time, event=COHORT.event, entry=ENTRY, sample_weight=WEIGHT),
    "y and names": lambda m: m.fit(
        TABLE[["age", "dose", "start", "count"]], COHORT.y, entry="start", sample_weight="count"
    ),
}


def test_every_form_of_entry_and_weight_is_the_same_fit(fitted: NeuralSurv) -> None:
    found = {form: curves(fit(quick_model()), TABLE) for form, fit in FULL_FORMS.items()}
    first = found["pair, entry and weight"]
    assert [form for form, values in found.items() if not (values == first).all()] == []
    # Both are used: without either of them the curves are others.
    for part in ({"entry": ENTRY}, {"sample_weight": WEIGHT}):
        assert np.abs(curves(quick_model().fit(COHORT.x, COHORT.y, **part)) - first).max() > 1e-3
    assert np.abs(curves(fitted) - first).max() > 1e-3


def test_the_outcome_may_still_be_in_the_table_at_prediction(fitted: NeuralSurv) -> None:
    named = quick_model().fit(TABLE, time="years", event="died", entry="start", sample_weight="count")
    assert (curves(named, TABLE) == curves(named, COHORT.x)).all()
    assert (curves(fitted, TABLE) == curves(fitted)).all()
    assert named.columns_ == {"time": "years", "event": "died", "entry": "start", "weight": "count"}


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.fit(COHORT.x), "requires y to be passed, but the target y is None; or name the columns"),
        (lambda m: m.fit(TABLE, time="years"), "requires y to be passed"),
        (lambda m: m.fit(TABLE, event="died"), "requires y to be passed"),
        (lambda m: m.fit(TABLE, COHORT.y, time="years", event="died"), "the outcome is given twice: as y, and as time"),
        (lambda m: m.fit(COHORT.x, COHORT.y, time=COHORT.time), "the outcome is given twice"),
        (lambda m: m.fit(TABLE, time="days", event="died"), "no column 'days'; the columns are age, dose, years, died"),
        (lambda m: m.fit(TABLE, time="years", event="dead"), "there is no column 'dead'"),
        (lambda m: m.fit(TABLE, COHORT.y, entry="begin"), "there is no column 'begin'"),
        (lambda m: m.fit(TABLE, COHORT.y, sample_weight="counts"), "there is no column 'counts'"),
        (lambda m: m.fit(TABLE, COHORT.y, id="who"), "there is no column 'who'"),
        (lambda m: m.fit(COHORT.x, COHORT.y[:39]), "X has 40 rows but y has 39; both need one for each row"),
        (
            lambda m: m.fit(COHORT.x, COHORT.y, sample_weight=WEIGHT[:3]),
            "column 'weight' has 3 rows but column 'time' has 40",
        ),
        (lambda m: m.fit(COHORT.x, COHORT.y, id=np.arange(39)), "X has 40 rows but id has 39"),
        (lambda m: m.fit(TABLE.assign(years=-1.0), time="years", event="died"), "column 'years' is zero or negative"),
        (
            lambda m: m.fit(COHORT.x, COHORT.y, sample_weight=np.zeros(40)),
            "every one of the 40 rows has a weight of zero",
        ),
        (lambda m: m.fit(COHORT.x, COHORT.y, sample_weight=np.eye(40)[0]), "only 1 row"),
        (lambda m: m.fit(COHORT.x, COHORT.y, sample_weight=1.0 * ~COHORT.event), "none of the 16 rows"),
        (lambda m: m.fit(TABLE[["years", "died"]], time="years", event="died"), r"0 feature\(s\) \(shape=\(40, 0\)\)"),
    ],
)
def test_what_fit_refuses(call: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(quick_model())


@pytest.mark.parametrize("draws", [0, -5, 10.5, "many", None])
def test_draws_must_be_a_positive_whole_number(fitted: NeuralSurv, draws: Any) -> None:
    with pytest.raises(InputError, match="must be a whole number of at least 1"):
        quick_model(draws=draws).fit(COHORT.x, COHORT.y)
    changed = pickle.loads(pickle.dumps(fitted)).set_params(draws=draws)
    with pytest.raises(InputError, match="must be a whole number of at least 1"):
        changed.predict_survival(COHORT.x, TIMES)


def test_a_weight_of_zero_is_no_row() -> None:
    # The rows that are not there have the latest time and the wildest covariate, and two of them overlap.
    x = pd.concat([COHORT.x, pd.DataFrame({"age": [1e6, -1e6], "dose": [-50.0, 50.0]})], ignore_index=True)
    time, event = np.append(COHORT.time, [1e3, 1e3]), np.append(COHORT.event, [True, False])
    who = np.append(np.arange(40), [99, 99])
    weight = np.append(np.ones(40), [0, 0])
    with_them = quick_model().fit(x, (time, event), sample_weight=weight, id=who)
    without = quick_model().fit(COHORT.x, COHORT.y)
    assert (curves(with_them) == curves(without)).all()
    assert with_them.time_scale_ == without.time_scale_
    assert with_them.training_ == without.training_


# --- episodes ---------------------------------------------------------------------------------------------------------


def episodes(cohort_frame: pd.DataFrame, cuts: np.ndarray) -> pd.DataFrame:
    """Return every person's row cut in two at its cut, the second pieces first."""
    late = cohort_frame.assign(start=cuts, id=[f"p{k}" for k in range(len(cuts))])
    early = late.assign(start=0.0, years=cuts, died=False)
    return pd.concat([late, early])


CUTS = 0.37 * COHORT.time


def test_episodes_without_a_change_are_the_uncut_rows() -> None:
    settings = {"quadrature": "trapezoid", "quadrature_points": 100}
    table = episodes(COHORT.frame(), CUTS)
    cut = quick_model(**settings).fit(table, time="years", event="died", entry="start", id="id")
    whole = quick_model(**settings).fit(COHORT.x, COHORT.y)
    assert np.abs(curves(cut) - curves(whole)).max() < SAME_OPTIMUM
    assert cut.training_["rows"] == 80
    assert cut.training_["truncated"] == 40


def test_impossible_episodes_are_refused() -> None:
    table = episodes(COHORT.frame(), CUTS)
    roles = {"time": "years", "event": "died", "entry": "start", "id": "id"}
    with pytest.raises(InputError, match="overlapping episodes"):
        quick_model().fit(table.assign(start=0.0), **roles)
    with pytest.raises(InputError, match="is observed after its event"):
        quick_model().fit(table.assign(died=True), **roles)
    # Without an id these are different people, who may well overlap.
    del roles["id"]
    assert quick_model().fit(table.drop(columns="id").assign(start=0.0), **roles).training_["rows"] == 80


@pytest.fixture(scope="module")
def by_episodes() -> tuple[NeuralSurv, pd.DataFrame]:
    """Return a model of people whose dose changes at their cut, and the table."""
    table = episodes(COHORT.frame(), CUTS)
    table["dose"] = np.where(table["start"] > 0, table["dose"] + 0.1, table["dose"])
    return quick_model().fit(table, time="years", event="died", entry="start", id="id"), table


def test_survival_along_a_constant_path_is_survival(by_episodes: tuple[NeuralSurv, pd.DataFrame]) -> None:
    model, _ = by_episodes
    path = pd.DataFrame({"age": 65.0, "dose": 0.05, "start": [0.0, 0.4, 1.1], "years": [0.4, 1.1, 2.0], "id": 7})
    along = model.predict_survival_path(path, TIMES)
    # The integral is cut elsewhere, so its pieces differ by the error of a two-point rule on steps of 1/50.
    assert along.draws[:, 0] == pytest.approx(model.predict_survival(path.head(1), TIMES).draws[:, 0], abs=1e-6)
    assert along.index.tolist() == [7]


def test_survival_along_a_path_is_the_product_of_its_pieces(by_episodes: tuple[NeuralSurv, pd.DataFrame]) -> None:
    model, _ = by_episodes
    path = pd.DataFrame({"age": 65.0, "dose": [0.2, -0.2], "start": [0.4, 0.0], "years": [2.0, 0.4], "id": 7})
    early, late = (model.predict_survival(path.iloc[[k]], [0.4, 1.5]).draws[:, 0] for k in (1, 0))
    expected = early[:, 0] * late[:, 1] / late[:, 0]
    along = model.predict_survival_path(path, [1.5]).draws[:, 0, 0]
    assert along == pytest.approx(expected, abs=1e-6)
    assert np.abs(along - early[:, 1]).max() > 1e-3


def test_a_path_takes_its_columns_from_the_fit_or_from_arguments(by_episodes: tuple[NeuralSurv, pd.DataFrame]) -> None:
    model, table = by_episodes
    ends = table.groupby("id")["years"].max()
    time = [ends.min() / 2, ends.min()]
    by_names = model.predict_survival_path(table, time)
    by_arrays = model.predict_survival_path(
        table[["age", "dose"]], time, entry=table["start"].to_numpy(), time=table["years"], id=table["id"].tolist()
    )
    assert (by_names.draws == by_arrays.draws).all()
    assert by_names.index.tolist() == [f"p{k}" for k in range(40)]
    renamed = table.rename(columns={"start": "from", "years": "to", "id": "who"})
    assert (model.predict_survival_path(renamed, time, entry="from", time="to", id="who").draws == by_names.draws).all()


def test_what_a_path_refuses(by_episodes: tuple[NeuralSurv, pd.DataFrame], fitted: NeuralSurv) -> None:
    model, _ = by_episodes
    path = pd.DataFrame({"age": 65.0, "dose": 0.05, "start": [0.0, 0.5], "years": [0.4, 1.0], "id": "a"})
    with pytest.raises(InputError, match=r"the path of subject 'a' has a gap after time 0\.4"):
        model.predict_survival_path(path, [0.2])
    whole = path.assign(start=[0.0, 0.4])
    with pytest.raises(InputError, match=r"times go up to 1\.5, but the path of subject 'a' ends at 1"):
        model.predict_survival_path(whole, [0.2, 1.5])
    with pytest.raises(InputError, match="overlapping episodes"):
        model.predict_survival_path(path.assign(start=0.0), [0.2])
    with pytest.raises(InputError, match="there is no column 'who'"):
        model.predict_survival_path(whole, [0.2], id="who")
    with pytest.raises(InputError, match="X has 2 rows but time has 3"):
        model.predict_survival_path(whole, [0.2], time=[0.4, 1.0, 2.0])
    with pytest.raises(InputError, match="entry is not given, and no column of that role was named in fit"):
        fitted.predict_survival_path(whole, [0.2], time="years", id="id")


# --- what happens on the way ------------------------------------------------------------------------------------------


def interrupt_at(call: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the user press Ctrl-C during a sweep."""
    original, calls = updates.sweep, iter(range(1, 10_000))

    def sweep(*arguments: Any) -> updates.CaviState:
        if next(calls) == call:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(updates, "sweep", sweep)


def test_an_interrupted_fit_is_a_model(fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(3, monkeypatch)
    model = quick_model()
    with pytest.warns(ConvergenceWarning, match="interrupted after 2; the model can be used"):
        assert model.fit(COHORT.x, COHORT.y) is model
    assert model.diagnostics_.interrupted
    assert not model.diagnostics_.converged
    assert model.diagnostics_.sweeps == len(model.elbo_) == 2
    assert np.isfinite(curves(model)).all()
    assert "2 (interrupted)" in str(model.summary())
    # It is the fit that two sweeps give, not the final one.
    monkeypatch.undo()
    with pytest.warns(ConvergenceWarning, match="stopped after 2 before reaching their tolerance"):
        two = quick_model(max_sweeps=2).fit(COHORT.x, COHORT.y)
    assert (curves(model) == curves(two)).all()
    # And the advice of the warning leads to the full fit.
    again = model.set_params(warm_start=True).fit(COHORT.x, COHORT.y)
    assert again.diagnostics_.converged
    assert np.abs(curves(again) - curves(fitted)).max() < 1e-3


def test_an_interrupt_before_the_first_sweep_stops_the_fit(fitted: NeuralSurv, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(1, monkeypatch)
    model = quick_model()
    with pytest.raises(KeyboardInterrupt):
        model.fit(COHORT.x, COHORT.y)
    assert fitted_names(model) == []
    interrupt_at(1, monkeypatch)
    earlier = pickle.loads(pickle.dumps(fitted))
    with pytest.raises(KeyboardInterrupt):
        earlier.fit(COHORT.x[["age"]], COHORT.y)
    assert (curves(earlier) == curves(fitted)).all()


def steps_of_the_mode(caplog: pytest.LogCaptureFixture) -> int:
    count = sum(record.getMessage().startswith("mode") for record in caplog.records)
    caplog.clear()
    return count


def test_a_warm_start_goes_on_from_the_last_mode(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="neuralsurv")
    model = quick_model(starts=3, warm_start=True).fit(COHORT.x, COHORT.y)
    cold = steps_of_the_mode(caplog)
    first = model.diagnostics_
    model.fit(COHORT.x, COHORT.y)
    second = model.diagnostics_
    assert len(first.mode_objectives) == 3
    assert len(second.mode_objectives) == 1
    assert second.mode_objectives[0] <= min(first.mode_objectives)
    assert second.mode_objectives[0] == pytest.approx(min(first.mode_objectives), rel=1e-5)
    assert steps_of_the_mode(caplog) < cold / 3


def test_without_warm_start_an_earlier_fit_has_no_effect(fitted: NeuralSurv) -> None:
    model = quick_model().fit(COHORT.x.head(30), COHORT.y[:30]).fit(COHORT.x, COHORT.y)
    assert (curves(model) == curves(fitted)).all()


def test_a_warm_start_is_ignored_when_the_network_changes() -> None:
    model = quick_model(warm_start=True).fit(COHORT.x, COHORT.y)
    model.set_params(hidden=(3,)).fit(COHORT.x, COHORT.y)
    assert (curves(model) == curves(quick_model(hidden=(3,)).fit(COHORT.x, COHORT.y))).all()
    model.fit(COHORT.x[["age"]], COHORT.y)
    cold = quick_model(hidden=(3,)).fit(COHORT.x[["age"]], COHORT.y)
    assert (curves(model) == curves(cold)).all()


def test_a_fit_that_went_well_does_not_warn(fitted: NeuralSurv) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = quick_model().fit(COHORT.x, COHORT.y)
    assert model.diagnostics_.messages == fitted.diagnostics_.messages == ()
    assert model.diagnostics_.converged
    assert not model.diagnostics_.collapsed


@pytest.mark.parametrize(
    ("parameters", "category", "message"),
    [
        ({"max_sweeps": 2}, ConvergenceWarning, "stopped after 2 before reaching their tolerance; the last relative"),
        ({"quadrature": "trapezoid", "quadrature_points": 5}, QuadratureWarning, "leaves out [0-9]+% of the time"),
    ],
)
def test_warnings_point_to_the_line_of_the_user(parameters: dict[str, Any], category: Any, message: str) -> None:
    model = quick_model(**parameters)
    with pytest.warns(category, match=message) as caught:
        model.fit(COHORT.x, COHORT.y)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    with open(caught[0].filename, encoding="utf-8") as source:
        assert "model.fit(COHORT.x, COHORT.y)" in source.read().splitlines()[caught[0].lineno - 1]
    assert model.diagnostics_.messages == (str(caught[0].message),)


def test_a_collapsed_posterior_is_reported() -> None:
    # The spread of the prior makes the variance of g so large that the bound sees no latent point.
    cohort = lognormal_cohort(60, seed=2)
    model = quick_model(hidden=(16,), activation="relu", spread="prior", mode_tolerance=1e-6)
    with pytest.warns(
        CollapseWarning, match=r"only [0-9.]+ latent points \([0-9.]+% of all points\) are left"
    ) as caught:
        model.fit(cohort.x, cohort.y)
    assert caught[0].filename == __file__
    assert model.diagnostics_.collapsed
    latent = model.diagnostics_.latent_points
    assert model.diagnostics_.latent_share < 0.05
    assert f"only {latent:.2f} latent points" in str(caught[0].message)


def test_a_mode_that_was_not_reached_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    together = mode.direct_together
    monkeypatch.setattr(together, "__kwdefaults__", {**together.__kwdefaults__, "max_iterations": 3})
    model = quick_model()
    with pytest.warns(ConvergenceWarning, match="search for the mode stopped at its limit of 3 iterations"):
        model.fit(COHORT.x, COHORT.y)
    assert not model.diagnostics_.mode_converged


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    model = quick_model(verbose="auto").fit(COHORT.x, COHORT.y)
    model.predict_survival(COHORT.x, TIMES).to_frame()
    assert capfd.readouterr() == ("", "")
