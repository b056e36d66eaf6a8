"""Cox's model in four forms, Weibull, forest, support vector machine, boosting, Kaplan–Meier."""

import dataclasses
import warnings
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import CoxPHFitter, KaplanMeierFitter, WeibullAFTFitter
from lifelines.exceptions import ConvergenceError, ConvergenceWarning
from lifelines.utils import concordance_index

from neuralsurv.errors import InputError
from neuralsurv_bench.methods import (
    coxph,
    elastic_net_cox,
    forest,
    gradient_boosting,
    kaplan_meier,
    survival_svm,
    weibull_aft,
)
from neuralsurv_bench.methods.coxph import ProportionalHazards, partial_log_likelihood
from neuralsurv_bench.methods.interface import Fitted, Rows, Settings, Split, Variant

MODULES = (coxph, weibull_aft, forest, survival_svm, kaplan_meier, elastic_net_cox, gradient_boosting)
METHODS = {method.name: method for module in MODULES for method in module.METHODS}
EVERY = [(name, variant) for name, method in METHODS.items() for variant in method.variants]
WITH_CURVES = [(name, variant) for name, variant in EVERY if name != "SSVM"]
PAPER = {"CoxPH", "Weibull AFT", "RSF", "SSVM"}
TIMES = np.linspace(0.0, 6.0, 40)
NOTHING = Rows(np.empty((0, 5)), np.empty(0), np.empty(0, dtype=bool))


def strong_signal(n: int, seed: int) -> Rows:
    """Return rows whose first two of five covariates decide much of a time whose unit is about one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, 5))
    time = rng.weibull(1.5, n) * np.exp(-1.2 * x[:, 0] + 0.8 * x[:, 1])
    censoring = rng.uniform(0.5, 6.0, n)
    return Rows(x, np.minimum(time, censoring), time <= censoring)


def frame(rows: Rows) -> pd.DataFrame:
    return pd.DataFrame(rows.x, columns=list("abcde")).assign(time=rows.time, event=rows.event)


# What the methods use; the tests below make do with less.
FULL_GRID, FULL_FOREST = survival_svm.ALPHAS.copy(), forest.TREES


@pytest.fixture(autouse=True, scope="module")
def _small_grid_and_forest() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(survival_svm, "ALPHAS", np.array([2.0**-8, 1.0, 2.0**8]))
        patch.setattr(forest, "TREES", 200)
        yield


SPLIT = Split(strong_signal(80, 1), NOTHING, strong_signal(60, 3), tuple("abcde"))


@cache
def fitted(name: str, variant: Variant) -> Any:
    return METHODS[name].fit(SPLIT, Settings(variant=variant))


def risk_of(model: Fitted, x: np.ndarray) -> np.ndarray:
    """Return the method's own risk, or minus the average of its curve."""
    risk, survival = model.risk(x), model.survival(x, TIMES)
    assert (risk is None) != (survival is None)
    if survival is not None:
        return -survival.mean(axis=1)
    assert risk is not None
    return risk


def test_names_and_variants() -> None:
    assert set(METHODS) == PAPER | {
        "CoxPH unpenalised",
        "Kaplan-Meier",
        "elastic-net Cox",
        "ridge Cox CV",
        "gradient boosting",
    }
    np.testing.assert_allclose(np.log2(FULL_GRID), np.arange(-12, 13, 2))
    assert FULL_FOREST == 1000
    for name, method in METHODS.items():
        assert method.family == "classical"
        assert set(method.variants) == ({"as-published", "fair"} if name in PAPER else {"fair"})


@pytest.mark.parametrize(("name", "variant"), WITH_CURVES)
def test_curves_are_survival_curves(name: str, variant: Variant) -> None:
    model, x = fitted(name, variant), SPLIT.test.x
    survival = model.survival(x, TIMES)
    assert survival.shape == (60, len(TIMES))
    assert survival.min() >= 0
    assert survival.max() <= 1
    assert (np.diff(survival, axis=1) <= 0).all()
    at_the_ends = model.survival(x, np.array([0.0, 1e5]))
    assert np.isfinite(at_the_ends).all()
    if (name, variant) != ("CoxPH", "as-published"):
        np.testing.assert_array_equal(at_the_ends[:, 0], 1.0)


@pytest.mark.parametrize(("name", "variant"), EVERY)
def test_learns_a_strong_signal_and_keeps_the_order_of_rows(name: str, variant: Variant) -> None:
    test = SPLIT.test
    risk = risk_of(fitted(name, variant), test.x)
    np.testing.assert_allclose(risk_of(fitted(name, variant), test.x[::-1]), risk[::-1], rtol=1e-12)
    concordance = concordance_index(test.time, -risk, test.event)
    assert concordance == 0.5 if name == "Kaplan-Meier" else concordance > 0.7


@pytest.mark.parametrize("name", METHODS)
def test_same_seed_same_result_and_nothing_but_training_rows_is_used(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forest, "TREES", 20)
    monkeypatch.setattr(gradient_boosting, "MOST_TREES", 10)
    first = METHODS[name].fit(SPLIT, Settings())
    other_rows = Rows(SPLIT.test.x, SPLIT.test.time[::-1], ~SPLIT.test.event)
    np.random.seed(5)  # noqa: NPY002 (the global generator must not matter)
    again = METHODS[name].fit(dataclasses.replace(SPLIT, validation=other_rows, test=other_rows), Settings())
    np.testing.assert_array_equal(risk_of(again, SPLIT.test.x), risk_of(first, SPLIT.test.x))


@pytest.mark.parametrize("name", ["RSF", "gradient boosting"])
def test_another_seed_gives_another_result(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forest, "TREES", 20)
    monkeypatch.setattr(gradient_boosting, "MOST_TREES", 10)
    first, other = (METHODS[name].fit(SPLIT, Settings(seed=seed)) for seed in (0, 1))
    assert np.abs(risk_of(first, SPLIT.test.x) - risk_of(other, SPLIT.test.x)).max() > 1e-4


@pytest.mark.parametrize("name", [name for name in METHODS if name not in {"RSF", "gradient boosting"}])
def test_a_constant_column_changes_nothing(name: str) -> None:
    def widened(rows: Rows) -> Rows:
        return dataclasses.replace(rows, x=np.column_stack([rows.x, np.full(len(rows), 3.0)]))

    model = METHODS[name].fit(dataclasses.replace(SPLIT, train=widened(SPLIT.train)), Settings())
    expected = risk_of(fitted(name, "fair"), SPLIT.test.x)
    np.testing.assert_allclose(risk_of(model, widened(SPLIT.test).x), expected, rtol=1e-6)


@pytest.mark.parametrize("name", [name for name in METHODS if name != "Kaplan-Meier"])
def test_training_rows_without_an_event_are_refused(name: str) -> None:
    censored = dataclasses.replace(SPLIT.train, event=np.zeros(80, dtype=bool))
    with pytest.raises(InputError, match=f"{name} cannot be fitted: none of the 80 training rows has an event"):
        METHODS[name].fit(dataclasses.replace(SPLIT, train=censored), Settings())


def rounded() -> Rows:
    """Return training rows with tied times."""
    return dataclasses.replace(SPLIT.train, time=np.ceil(4 * SPLIT.train.time) / 4)


# --- Kaplan–Meier ---


def test_kaplan_meier_is_that_of_lifelines() -> None:
    train = rounded()
    model = METHODS["Kaplan-Meier"].fit(dataclasses.replace(SPLIT, train=train), Settings())
    expected = KaplanMeierFitter().fit(train.time, train.event).survival_function_at_times(TIMES)
    survival = model.survival(SPLIT.test.x, TIMES)
    assert survival is not None
    np.testing.assert_allclose(survival, np.tile(expected, (60, 1)), rtol=1e-12)


def test_steps_are_right_continuous() -> None:
    knots, values = np.array([1.0, 3.0]), np.array([[0.8, 0.5], [0.6, 0.1]])
    read = kaplan_meier.read_steps(knots, values, np.array([0.0, 0.999, 1.0, 2.999, 3.0, 9.0]))
    np.testing.assert_array_equal(read, [[1, 1, 0.8, 0.8, 0.5, 0.5], [1, 1, 0.6, 0.6, 0.1, 0.1]])


# --- Cox ---


@pytest.mark.parametrize(("name", "penalty"), [("CoxPH", 0.1), ("CoxPH unpenalised", 0.0)])
def test_cox_is_that_of_lifelines(name: str, penalty: float) -> None:
    train = rounded()
    model = METHODS[name].fit(dataclasses.replace(SPLIT, train=train), Settings())
    assert isinstance(model, ProportionalHazards)
    reference = CoxPHFitter(penalizer=penalty).fit(frame(train), "time", "event")
    np.testing.assert_allclose(model.coefficients, reference.params_, rtol=1e-10)
    assert model.note == ""
    later = TIMES[train.time.min() <= TIMES]
    expected = reference.predict_survival_function(frame(SPLIT.test), times=later).to_numpy().T
    np.testing.assert_allclose(model.survival(SPLIT.test.x, later), expected, rtol=1e-9)


def test_cox_before_the_first_training_time() -> None:
    reference = CoxPHFitter(penalizer=0.1).fit(frame(SPLIT.train), "time", "event")
    first = SPLIT.train.time.min()
    early = first * np.array([0.0, 0.5, 1.0])
    expected = reference.predict_survival_function(frame(SPLIT.test), times=early).to_numpy().T
    np.testing.assert_allclose(fitted("CoxPH", "as-published").survival(SPLIT.test.x, early), expected, rtol=1e-9)
    # Fair: the cumulative hazard rises along a line from 0.
    line = np.stack([np.ones(60), np.sqrt(expected[:, 2]), expected[:, 2]], axis=1)
    np.testing.assert_allclose(fitted("CoxPH", "fair").survival(SPLIT.test.x, early), line, rtol=1e-9)


def test_unpenalised_cox_is_rescued_by_a_small_penalty() -> None:
    # Nobody with the covariate dies: its coefficient has no finite best value.
    separated = (~SPLIT.train.event).astype(float)
    train = dataclasses.replace(SPLIT.train, x=np.column_stack([SPLIT.train.x[:, :4], separated]))
    model = METHODS["CoxPH unpenalised"].fit(dataclasses.replace(SPLIT, train=train), Settings())
    assert isinstance(model, ProportionalHazards)
    assert model.note == "did not converge without a penalty: ridge penalty 0.001 used"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        reference = CoxPHFitter(penalizer=0.001).fit(frame(train), "time", "event")
    np.testing.assert_allclose(model.coefficients, reference.params_, rtol=1e-8)


def test_cox_tries_shorter_steps_before_a_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine, tried = coxph._lifelines_fit, []

    def overshoots(frame: pd.DataFrame, penalty: float, first_step: float) -> CoxPHFitter:
        tried.append((penalty, first_step))
        if first_step > 0.2:
            raise ConvergenceError("no")
        return genuine(frame, penalty, first_step)

    monkeypatch.setattr(coxph, "_lifelines_fit", overshoots)
    model = METHODS["CoxPH unpenalised"].fit(SPLIT, Settings())
    assert isinstance(model, ProportionalHazards)
    assert tried == [(0.0, 0.95), (0.0, 0.3), (0.0, 0.1)]
    assert model.note == ""
    np.testing.assert_allclose(model.coefficients, fitted("CoxPH unpenalised", "fair").coefficients, rtol=1e-4)


def test_cox_gives_up_when_no_penalty_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def fail(train: Rows, penalty: float, *, starts_at_one: bool) -> ProportionalHazards:
        tried.append(penalty)
        raise ConvergenceError("no")

    monkeypatch.setattr(coxph, "_fit_with_penalty", fail)
    with pytest.raises(ConvergenceError):
        METHODS["CoxPH unpenalised"].fit(SPLIT, Settings())
    assert tried == [0.0, 1e-3, 1e-2, 1e-1]


def test_only_warnings_about_the_fit_are_kept_back() -> None:
    with coxph.quiet_lifelines() as collected:
        warnings.warn("Newton-Raphson failed", ConvergenceWarning, stacklevel=1)
    assert len(collected) == 1
    with pytest.warns(FutureWarning, match="soon gone"), coxph.quiet_lifelines():
        warnings.warn("soon gone", FutureWarning, stacklevel=1)


def partial_likelihood_by_loop(rows: Rows, score: np.ndarray) -> float:
    return sum(
        score[i] - np.log(np.exp(score[rows.time >= rows.time[i]]).sum()) for i in range(len(rows)) if rows.event[i]
    )


def test_partial_likelihood_is_that_of_a_loop() -> None:
    rows = rounded()
    score = np.random.default_rng(0).standard_normal((80, 3))
    expected = [partial_likelihood_by_loop(rows, column) for column in score.T]
    np.testing.assert_allclose(partial_log_likelihood(rows.time, rows.event, score), expected, rtol=1e-12)


# --- penalised Cox by cross-validation ---


def standardised(rows: Rows) -> np.ndarray:
    return (rows.x - rows.x.mean(axis=0)) / rows.x.std(axis=0)


def test_ridge_path_is_that_of_lifelines() -> None:
    train = SPLIT.train
    x = (train.x - train.x.mean(axis=0)) / train.x.std(axis=0, ddof=1)  # as lifelines scales
    penalties = np.array([1.0, 0.1, 0.01])
    path = elastic_net_cox.coefficient_path(x, train, elastic_net_cox.RIDGE_SHARE, penalties)
    for column, penalty in enumerate(penalties):
        reference = CoxPHFitter(penalizer=penalty).fit(frame(dataclasses.replace(train, x=x)), "time", "event")
        np.testing.assert_allclose(path[:, column], reference.params_, rtol=1e-3)


def test_strongest_penalty_is_where_the_first_coefficient_appears() -> None:
    rows = rounded()
    x = standardised(rows)
    strongest = elastic_net_cox.strongest_penalty(x, rows, 0.5)
    path = elastic_net_cox.coefficient_path(x, rows, 0.5, strongest * np.array([1.001, 0.98]))
    assert (np.abs(path[:, 0]) < 1e-12).all()
    assert np.count_nonzero(path[:, 1]) == 1


def test_cross_validated_likelihood_is_that_of_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_net_cox, "FOLDS", 4)
    monkeypatch.setattr(elastic_net_cox, "REPEATS", 2)
    train, penalties = SPLIT.train, np.array([1.0, 0.1])
    x = standardised(train)
    value = elastic_net_cox.cross_validated_likelihood(x, train, 0.5, penalties, seed=7)
    expected = np.zeros(2)
    for seed in np.random.default_rng(7).integers(2**31, size=2):
        folds = elastic_net_cox.inner_folds(train, 4, int(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate([left for _, left in folds])), np.arange(80))
        for kept, left in folds:
            assert not set(kept) & set(left)
            part = Rows(train.x[kept], train.time[kept], train.event[kept])
            path = elastic_net_cox.coefficient_path(x[kept], part, 0.5, penalties)
            for column in range(2):
                score = x @ path[:, column]
                whole = partial_likelihood_by_loop(train, score)
                expected[column] += (whole - partial_likelihood_by_loop(part, score[kept])) / 2
    np.testing.assert_allclose(value, expected, rtol=1e-10)


@pytest.mark.parametrize("name", ["ridge Cox CV", "elastic-net Cox"])
def test_penalty_is_weak_for_a_strong_signal_and_strong_for_none(name: str) -> None:
    noise = np.random.default_rng(3).permutation(80)
    shuffled = dataclasses.replace(SPLIT.train, x=SPLIT.train.x[noise])
    signal, none = (
        METHODS[name].fit(dataclasses.replace(SPLIT, train=train), Settings()) for train in (SPLIT.train, shuffled)
    )
    assert isinstance(signal, ProportionalHazards)
    assert isinstance(none, ProportionalHazards)
    assert np.abs(signal.coefficients[:2]).min() > 0.5
    assert np.abs(none.coefficients).max() < 0.2


@pytest.mark.parametrize("name", ["ridge Cox CV", "elastic-net Cox"])
def test_penalised_baseline_is_breslows(name: str) -> None:
    rows = rounded()
    model = METHODS[name].fit(dataclasses.replace(SPLIT, train=rows), Settings())
    assert isinstance(model, ProportionalHazards)
    ratio = np.exp((rows.x - rows.x.mean(axis=0)) @ model.coefficients)
    moments = np.unique(rows.time)
    increments = [rows.event[rows.time == moment].sum() / ratio[rows.time >= moment].sum() for moment in moments]
    expected = np.exp(-np.outer(ratio, np.cumsum(increments)))
    np.testing.assert_allclose(model.survival(rows.x, moments), expected, rtol=1e-9)


class BrittlePath:
    """A path that fails for penalties below a limit, as scikit-survival's may."""

    limit = 0.05

    def __init__(self, alphas: np.ndarray, **arguments: object) -> None:
        self.alphas = alphas

    def fit(self, x: np.ndarray, outcome: np.ndarray) -> None:
        if self.alphas.min() < self.limit:
            raise ArithmeticError("weights are too large")
        self.coef_ = np.tile(1 / self.alphas, (x.shape[1], 1))


def test_weak_end_of_a_path_that_fails_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_net_cox, "CoxnetSurvivalAnalysis", BrittlePath)
    path = elastic_net_cox.coefficient_path(SPLIT.train.x, SPLIT.train, 0.5, np.array([1.0, 0.1, 0.01, 0.001]))
    np.testing.assert_array_equal(path[0], [1, 10, np.nan, np.nan])
    model = METHODS["ridge Cox CV"].fit(SPLIT, Settings())
    assert isinstance(model, ProportionalHazards)
    assert np.isfinite(model.coefficients).all()
    assert model.coefficients[0] != 0
    monkeypatch.setattr(BrittlePath, "limit", np.inf)
    model = METHODS["ridge Cox CV"].fit(SPLIT, Settings())
    assert isinstance(model, ProportionalHazards)
    assert model.note == "no path of coefficients converged: covariates are not used"
    np.testing.assert_array_equal(model.coefficients, 0.0)


def test_path_that_ends_early_is_continued(monkeypatch: pytest.MonkeyPatch) -> None:
    class ShortPath(BrittlePath):
        def fit(self, x: np.ndarray, outcome: np.ndarray) -> None:
            self.coef_ = np.tile([1.0, 2.0], (x.shape[1], 1))

    monkeypatch.setattr(elastic_net_cox, "CoxnetSurvivalAnalysis", ShortPath)
    path = elastic_net_cox.coefficient_path(SPLIT.train.x, SPLIT.train, 0.5, np.array([1.0, 0.1, 0.01, 0.001]))
    np.testing.assert_array_equal(path[0], [1, 2, 2, 2])


def test_inner_folds_with_few_events() -> None:
    rows = dataclasses.replace(SPLIT.train, event=np.arange(80) < 3)
    folds = elastic_net_cox.inner_folds(rows, 10, 0)
    assert len(folds) == 3
    assert all(rows.event[left].sum() == 1 for _, left in folds)
    single = dataclasses.replace(SPLIT.train, event=np.arange(80) < 1)
    assert len(elastic_net_cox.inner_folds(single, 10, 0)) == 2
    uncensored = dataclasses.replace(SPLIT.train, event=np.ones(80, dtype=bool))
    assert len(elastic_net_cox.inner_folds(uncensored, 10, 0)) == 10


# --- Weibull ---


@pytest.mark.parametrize(("variant", "penalty"), [("as-published", 0.0), ("fair", 0.05)])
def test_weibull_is_that_of_lifelines(variant: Variant, penalty: float) -> None:
    reference = WeibullAFTFitter(penalizer=penalty).fit(frame(SPLIT.train), "time", "event")
    expected = reference.predict_survival_function(frame(SPLIT.test), times=TIMES[1:]).to_numpy().T
    np.testing.assert_allclose(fitted("Weibull AFT", variant).survival(SPLIT.test.x, TIMES[1:]), expected, rtol=1e-6)
    assert fitted("Weibull AFT", variant).note == ""


def test_weibull_takes_times_of_zero() -> None:
    earliest = SPLIT.train.time.min()
    first = np.arange(80) == np.argmax(SPLIT.train.time)
    at_zero, at_half = (
        METHODS["Weibull AFT"].fit(
            dataclasses.replace(
                SPLIT, train=dataclasses.replace(SPLIT.train, time=np.where(first, moment, SPLIT.train.time))
            ),
            Settings(),
        )
        for moment in (0.0, earliest / 2)
    )
    np.testing.assert_allclose(risk_of(at_zero, SPLIT.test.x), risk_of(at_half, SPLIT.test.x), rtol=1e-12)


def test_weibull_is_rescued_by_a_penalty(monkeypatch: pytest.MonkeyPatch) -> None:
    genuine = weibull_aft._fit_with_penalty

    def fails_below(train: Rows, penalty: float) -> weibull_aft.WeibullCurves:
        if penalty < 0.01:
            raise ConvergenceError("no")
        return genuine(train, penalty)

    monkeypatch.setattr(weibull_aft, "_fit_with_penalty", fails_below)
    model = METHODS["Weibull AFT"].fit(SPLIT, Settings(variant="as-published"))
    assert isinstance(model, weibull_aft.WeibullCurves)
    assert model.note == "did not converge with penalty 0: penalty 0.01 used"
    np.testing.assert_allclose(model.coefficients, genuine(SPLIT.train, 0.01).coefficients)
    monkeypatch.setattr(weibull_aft, "RESCUE_PENALTIES", (1e-4, 1e-3))
    with pytest.raises(ConvergenceError):
        METHODS["Weibull AFT"].fit(SPLIT, Settings(variant="as-published"))


# --- forest, boosting, support vector machine ---


def test_forest_is_that_of_scikit_survival() -> None:
    model, published = fitted("RSF", "fair"), fitted("RSF", "as-published")
    trees = model.forest
    assert (trees.n_estimators, trees.min_samples_split, trees.min_samples_leaf) == (200, 10, 15)
    functions = trees.predict_survival_function(SPLIT.test.x[:4])
    knots = trees.unique_times_
    expected = np.stack([function(knots) for function in functions])
    np.testing.assert_allclose(model.survival(SPLIT.test.x[:4], knots), expected, rtol=1e-12)
    np.testing.assert_allclose(published.survival(SPLIT.test.x[:4], knots), expected, rtol=1e-12)
    between = (knots[1:] + knots[:-1]) / 2
    np.testing.assert_allclose(
        model.survival(SPLIT.test.x[:4], between), (expected[:, 1:] + expected[:, :-1]) / 2, rtol=1e-12
    )
    np.testing.assert_allclose(published.survival(SPLIT.test.x[:4], between), expected[:, :-1], rtol=1e-12)


def test_boosting_curves_are_those_of_scikit_survival_at_training_times() -> None:
    model = fitted("gradient boosting", "fair")
    functions = model.trees.predict_survival_function(SPLIT.test.x[:4])
    expected = np.stack([function(function.x) for function in functions])
    np.testing.assert_allclose(model.survival(SPLIT.test.x[:4], functions[0].x), expected, rtol=1e-9)


def test_boosting_takes_the_best_number_of_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    def likelihood(rows: Rows, depth: int, seed: int) -> np.ndarray:
        return np.array([-9.0, -8.0, -7.0, -8.0]) if depth == 2 else np.array([-7.5, -8.0, -9.0, -9.0])

    monkeypatch.setattr(gradient_boosting, "_left_out_likelihood", likelihood)
    model = METHODS["gradient boosting"].fit(SPLIT, Settings())
    assert isinstance(model, gradient_boosting.BoostedHazards)
    assert model.note == "3 trees of depth 2"
    assert (len(model.trees.estimators_), model.trees.max_depth) == (3, 2)


def test_boosting_is_judged_by_left_out_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gradient_boosting, "FOLDS", 3)
    monkeypatch.setattr(gradient_boosting, "MOST_TREES", 4)
    train = SPLIT.train
    value = gradient_boosting._left_out_likelihood(train, 2, seed=0)
    expected = np.zeros(4)
    for kept, _ in elastic_net_cox.inner_folds(train, 3, 0):
        part = Rows(train.x[kept], train.time[kept], train.event[kept])
        for trees in range(1, 5):
            score = gradient_boosting._boost(part, 2, trees, 0).predict(train.x)
            whole = partial_likelihood_by_loop(train, score)
            expected[trees - 1] += whole - partial_likelihood_by_loop(part, score[kept])
    np.testing.assert_allclose(value, expected, rtol=1e-9)


def test_support_vector_machine_as_published_is_chosen_by_its_own_training_rows() -> None:
    # Without any signal the weakest penalties fit their own rows best, and left-out rows no better.
    noise = dataclasses.replace(SPLIT.train, x=np.random.default_rng(4).standard_normal((80, 5)))
    own = survival_svm._in_sample(standardised(noise), noise, 0)
    left_out = survival_svm._left_out(standardised(noise), noise, 0)
    assert own.min() > left_out.max()
    for variant, values in (("as-published", own), ("fair", left_out)):
        model = METHODS["SSVM"].fit(dataclasses.replace(SPLIT, train=noise), Settings(variant=variant))
        assert isinstance(model, survival_svm.Ranking)
        assert model.note == f"alpha {survival_svm.ALPHAS[np.argmax(values)]:g}"
        assert model.survival(SPLIT.test.x, TIMES) is None


def test_support_vector_machine_ranks_the_same_with_either_optimiser(monkeypatch: pytest.MonkeyPatch) -> None:
    x = standardised(SPLIT.train)
    pairs = survival_svm._machine(x, SPLIT.train, 1.0, 0).predict(x)
    monkeypatch.setattr(survival_svm, "MOST_ROWS_IN_PAIRS", 10)
    trees = survival_svm._machine(x, SPLIT.train, 1.0, 0).predict(x)
    np.testing.assert_allclose(pairs, trees, atol=1e-3)


def test_concordance_of_a_fold_without_comparable_rows() -> None:
    rows = Rows(np.zeros((3, 1)), np.array([1.0, 2.0, 3.0]), np.array([False, False, True]))
    assert survival_svm._concordance(rows, np.arange(3.0)) == 0.5
    censored = dataclasses.replace(rows, event=np.zeros(3, dtype=bool))
    assert survival_svm._concordance(censored, np.arange(3.0)) == 0.5
    seen = dataclasses.replace(rows, event=np.ones(3, dtype=bool))
    assert survival_svm._concordance(seen, -np.arange(3.0)) == 1.0
