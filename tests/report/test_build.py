"""The cohort, the people, the effects and the words of a report."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.report import build as build_module
from neuralsurv.report.build import (
    build,
    choose_people,
    covariate_effects,
    describe_cohort,
    describe_covariates,
    unusual_values,
)
from neuralsurv.report.caveats import caveats, same_as_training
from report.small_report import EVIL, cohort, default_model, make, model, report


def test_kaplan_meier_with_its_interval():
    outcome = cohort()[1]
    part = describe_cohort(outcome, 0.9)
    theirs = KaplanMeierFitter(alpha=0.1).fit(outcome.time, outcome.event)
    table = theirs.confidence_interval_survival_function_.loc[part.times[1:-1]]
    np.testing.assert_allclose(part.survival[1:-1], theirs.survival_function_.loc[part.times[1:-1]].iloc[:, 0])
    inside = part.survival[1:-1] > 0
    np.testing.assert_allclose(part.lower[1:-1][inside], table.iloc[:, 0][inside])
    np.testing.assert_allclose(part.upper[1:-1][inside], table.iloc[:, 1][inside])
    assert part.half == theirs.median_survival_time_
    reverse = KaplanMeierFitter().fit(outcome.time, ~outcome.event)
    assert part.follow_up == reverse.median_survival_time_
    for t, n in part.at_risk.items():
        assert n == (outcome.time > t).sum()
    assert (part.rows, part.events, part.late) == (60, outcome.event.sum(), 0)


def test_a_curve_that_stays_high_and_one_that_ends_at_zero():
    high = describe_cohort(Outcome.from_arrays([1, 2, 3, 4], [1, 0, 0, 0]), 0.9)
    assert np.isinf(high.half)
    zero = describe_cohort(Outcome.from_arrays([1, 2, 3], [1, 1, 1]), 0.9)
    assert np.isinf(zero.follow_up)
    assert zero.survival[-1] == 0
    assert np.isfinite(zero.upper).all()
    assert (zero.lower <= zero.survival).all()
    assert (zero.survival <= zero.upper).all()


def test_covariates_in_words():
    frame = pd.DataFrame({"age": [1.0, 2.0, 3.0, np.nan], "arm": ["a", "a", "b", "a"]})
    columns = model().encoding_.columns[:1]
    rows = describe_covariates((replace(columns[0], name="age"),), frame)
    assert rows == [("age", "median 2, quartiles 1.5 to 2.5", "1 (25%)")]
    rows = describe_covariates((replace(columns[0], name="arm", kind="category", levels=("a", "b")),), frame)
    assert rows == [("arm", "a 75%, b 25%", "none")]


def test_effects_are_differences_of_joint_draws():
    frame, _ = cohort()
    found = {(effect.column, effect.change): effect for effect in covariate_effects(model(), frame, 1.0, 0.8)}
    low, high = np.quantile(frame["age"], [0.25, 0.75], method="nearest")
    gap = model().predict_difference(frame.assign(age=high), frame.assign(age=low), horizon=1.0)
    average = gap.draws.mean(axis=1)
    effect = next(effect for effect in found.values() if effect.column == "age")
    expected = np.quantile(average, [0.1, 0.5, 0.9])
    assert (effect.lower, effect.median, effect.upper) == pytest.approx(tuple(expected))
    # The hazard rises with age in this cohort, so older people have less time; and age matters most.
    assert effect.upper < 0
    assert next(iter(found))[0] == "age"
    gap = model().predict_difference(frame.assign(stage="II"), frame.assign(stage="III"), horizon=1.0)
    expected = np.quantile(gap.draws.mean(axis=1), [0.1, 0.5, 0.9])
    effect = found["stage", "III → II"]
    assert (effect.lower, effect.median, effect.upper) == pytest.approx(tuple(expected))


@pytest.mark.parametrize("make_model", [model, default_model])
def test_only_the_largest_effects_get_intervals(make_model, monkeypatch):
    frame, _ = cohort()
    every = covariate_effects(make_model(), frame, 1.0, 0.9)
    monkeypatch.setattr(build_module, "MOST_COVARIATES", 1)
    said = []
    largest = covariate_effects(make_model(), frame, 1.0, 0.9, said.append)
    assert largest == [effect for effect in every if effect.column == every[0].column]
    assert said[0] == "ranking: 0 of 4 covariates"
    assert said[-1] == "effects: 0 of 1 covariates"


def test_a_number_with_few_values_and_one_that_does_not_vary():
    frame, _ = cohort()
    rare = frame.assign(age=np.where(np.arange(len(frame)) == 0, 70.0, 60.0), dose=0.1)
    changes = {effect.column: effect.change for effect in covariate_effects(model(), rare, 1.0, 0.9)}
    assert changes["age"] == "60 → 70"
    assert "dose" not in changes


def test_true_and_false_are_categories():
    from small_cohort import quick_model, small_cohort

    people = small_cohort(40)
    frame = people.x.assign(smoker=np.arange(40) % 3 == 0)
    fitted = quick_model(hidden=(2,)).fit(frame, (people.time, people.event))
    changes = {effect.column: effect.change for effect in covariate_effects(fitted, frame, 1.0, 0.9)}
    assert changes["smoker"] == "False → True"


def test_people_from_long_to_short_expectation():
    labels = [f"p{k}" for k in range(10)]
    places, names = choose_people(labels, np.arange(10.0), ())
    assert places == [9, 7, 5, 3, 1]
    assert names[0] == "p9 (longer than 90%)"
    assert choose_people(labels, np.arange(10.0), (3, 1)) == ([3, 1], ["p3", "p1"])
    assert choose_people(["a"], np.array([1.0]), ())[0] == [0]


def test_what_the_model_is_least_sure_of():
    frame, _ = cohort()
    found = report().least_certain
    ends = model().predict_rmst(frame, report().horizon).interval(0.9)
    width = (ends.upper - ends.lower).to_numpy()
    assert found.names[0] == f"row {width.argmax()}"
    assert found.typical_width == pytest.approx(np.median(width))
    order = (found.mean["upper"] - found.mean["lower"])[:, 0].tolist()
    assert order == sorted(order, reverse=True)
    assert found.times[-1] == report().horizon
    assert len(found.unusual) == 5


def test_unusual_values_are_named():
    frame, _ = cohort()
    columns = model().encoding_.columns
    odd = frame.copy()
    odd.loc[0, ["age", "dose"]] = [200.0, np.nan]
    assert unusual_values(columns, odd, 0).startswith("age is high (200); dose is missing")
    middle = frame.assign(age=60.0, dose=0.0)
    assert unusual_values(columns, middle, 0) == "nothing stands out in a single covariate"
    rare = frame.assign(age=60.0, dose=0.0, stage=["II"] + ["III"] * 59)
    assert unusual_values(columns, rare, 0) == "stage is II, as in 2% of the rows"


def test_the_training_rows_are_recognised():
    outcome = cohort()[1]
    assert same_as_training(model(), outcome)
    other = outcome.select(np.arange(50))
    assert not same_as_training(model(), other)
    assert any("the rows that the model was fitted to" in text for text in report().warnings)


def said(outcome=None, frame=None, accuracy=None, horizon=1.0, diagnostics=None):
    from copy import copy

    one = copy(model())
    if diagnostics is not None:
        one.fitted_ = replace(one.fitted_, diagnostics=replace(one.diagnostics_, **diagnostics))
    return " ".join(
        caveats(one, outcome or cohort()[1], cohort()[0] if frame is None else frame,
                          accuracy or report().accuracy, horizon)
    )  # fmt: skip


def test_warnings_in_plain_words():
    frame, outcome = cohort()
    calm = said()
    assert "ignores the covariates" not in calm
    collapsed = {"collapsed": True, "messages": ("all are alike",), "kinds": ("collapse",)}
    assert "ignores the covariates" in said(diagnostics=collapsed)
    assert "all are alike" not in said(diagnostics=collapsed)
    assert "was interrupted before it was finished" in said(diagnostics={"interrupted": True, "converged": False})
    assert "reached its limit of steps before it converged" in said(diagnostics={"converged": False})
    assert "The fit reports: the grid is coarse" in said(
        diagnostics={"messages": ("the grid is coarse",), "kinds": ("quadrature",)}
    )
    # The words of a warning do not decide what it is about.
    assert "The fit reports: nothing has collapsed" in said(
        diagnostics={"messages": ("nothing has collapsed",), "kinds": ("mode",)}
    )
    assert "no covariate matters" not in said(diagnostics={"null_share": 0.4})
    assert "no covariate matters (its probability is 0.62)" in said(diagnostics={"null_share": 0.62})
    assert "lies beyond" in said(horizon=1e6)
    few = outcome.select(np.arange(20))
    assert f"These rows have only {few.event.sum()} events" in said(few, frame.iloc[:20])
    late = Outcome.from_arrays(outcome.time * 2, outcome.event)
    assert "are followed beyond" in said(late)
    gaps = frame.assign(dose=np.where(np.arange(60) < 30, np.nan, frame["dose"]))
    assert "dose is missing in 50% of the rows" in said(frame=gaps)
    far = frame.assign(age=np.where(np.arange(60) < 2, 1e3, frame["age"]))
    other = Outcome.from_arrays(outcome.time * 0.9, outcome.event)
    assert "age is more than four standard deviations away from the training mean in 2 of" in said(other, far)
    assert "four standard deviations" not in said(frame=far), "the training rows themselves"
    weak = replace(report().accuracy, concordance=0.51)
    assert "The concordance index is 0.51: the model hardly ranks" in said(accuracy=weak)
    off = replace(report().accuracy.distribution, p_value=0.001)
    assert "D-calibration is rejected (p = 0.001)" in said(accuracy=replace(report().accuracy, distribution=off))
    group = replace(report().accuracy.groups[0], p_value=0.001)
    assert "differ by more than chance at time" in said(accuracy=replace(report().accuracy, groups=(group,)))
    assert "Some rows enter late" in said(accuracy=replace(report().accuracy, late=True))


def test_few_events_for_many_covariates():
    from copy import copy

    one = copy(model())
    one.fitted_ = replace(one.fitted_, training={**one.training_, "events": 20})
    words = " ".join(caveats(one, cohort()[1], cohort()[0], report().accuracy, 1.0))
    columns = len(one.encoding_.outputs)
    assert f"fitted to 20 events with {columns} encoded covariates, fewer than ten for each" in words


def test_times_horizon_and_thinning():
    frame, outcome = cohort()
    found = report()
    assert found.horizon <= np.quantile(outcome.time, 0.9)
    assert found.horizon == pytest.approx(np.quantile(outcome.time, 0.9), rel=0.01)
    assert [group.time for group in found.accuracy.groups] == pytest.approx(
        np.quantile(outcome.time[outcome.event], [0.25, 0.5, 0.75], method="nearest")
    )
    chosen = make(times=(0.5, 0.2), horizon=0.8, people=(7, 3), most_rows=20, level=0.8)
    assert [group.time for group in chosen.accuracy.groups] == [0.2, 0.5]
    assert chosen.horizon == 0.8
    assert 20 <= chosen.scored <= 22
    assert chosen.shown.names == ["row 7", "row 3"]
    expected = model().predict_survival(frame.iloc[[7, 3]], chosen.shown.times)
    np.testing.assert_allclose(chosen.shown.curves["median"], expected.median)
    np.testing.assert_allclose(chosen.shown.curves["lower"], expected.interval(0.8).lower)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"level": 1.5}, "level=1.5 must lie strictly between 0 and 1"),
        ({"horizon": -1.0}, "horizon=-1.0 must be a positive, finite time"),
        ({"times": (0.0,)}, "time 0 cannot be compared with these rows; give times above 0"),
        ({"times": (1e6,)}, r"time 1e\+06 cannot be compared with these rows"),
        ({"people": (60,)}, "there is no row 60 among the 60 rows; rows count from 0"),
        ({"people": tuple(range(8))}, "8 people in one picture cannot be read; choose at most 7"),
    ],
)
def test_wrong_choices(choices, message):
    with pytest.raises(InputError, match=message):
        make(**choices)


def test_rows_without_an_event():
    frame, outcome = cohort()
    none = Outcome.from_arrays(outcome.time, np.zeros(60))
    with pytest.raises(InputError, match="none of the 60 rows has an event; there is nothing to compare"):
        build(model(), frame, none, [""] * 60, lambda done, words: None)


def test_evil_is_a_covariate():
    assert EVIL in [column.name for column in model().encoding_.columns]
