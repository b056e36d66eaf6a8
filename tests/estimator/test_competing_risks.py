"""Several causes of events: fits, predictions by cause, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from lifelines import AalenJohansenFitter
from matplotlib import pyplot

from neuralsurv import NeuralSurv, OwnNetwork, PaperNeuralSurv
from neuralsurv.data.simulate.competing import competing_cohort
from neuralsurv.errors import CausesWarning, FewEventsWarning, InputError

COHORT = competing_cohort(120, seed=4)
TIMES = np.array([0.3, 1.0, 2.5, 5.0])
PEOPLE = COHORT.x.head(6)
pytestmark = pytest.mark.filterwarnings("ignore::neuralsurv.errors.CausesWarning")


def fit(x: Any = COHORT.x, time: Any = COHORT.time, event: Any = COHORT.event, **more: Any) -> NeuralSurv:
    return NeuralSurv(random_state=0, draws=200, verbose=False).fit(x, time=time, event=event, **more)


@pytest.fixture(scope="module")
def model() -> NeuralSurv:
    return fit()


def incidence(model: NeuralSurv, cause: Any, x: pd.DataFrame = PEOPLE, times: Any = TIMES) -> np.ndarray:
    return np.asarray(model.predict_cumulative_incidence(x, times, cause).draws)


def test_how_the_column_was_read_is_said() -> None:
    counts = {name: int((COHORT.event == name).sum()) for name in ("death", "relapse", "censored")}
    message = (
        rf"column 'event' was read as 2 causes: death \({counts['death']} rows\), "
        rf"relapse \({counts['relapse']} rows\); censored \({counts['censored']} rows\) is censoring"
    )
    with pytest.warns(CausesWarning, match=message):
        fit()


def test_causes_and_their_counts_are_in_the_summary(model: NeuralSurv) -> None:
    assert sorted(model.causes_) == ["death", "relapse"]
    events = [int((COHORT.event == cause).sum()) for cause in model.causes_]
    assert events == sorted(events, reverse=True)
    assert f"{model.causes_[0]} ({events[0]}), {model.causes_[1]} ({events[1]})" in str(model.summary())
    assert "covariates by cause" in str(model.summary())


def test_incidences_and_survival_add_up_to_one_in_every_draw(model: NeuralSurv) -> None:
    both = model.predict_cumulative_incidence(PEOPLE, TIMES)
    assert both.columns.names == ["cause", "time"]
    by_cause = both.draws.reshape(200, 6, 2, 4)
    total = by_cause.sum(2) + model.predict_survival(PEOPLE, TIMES).draws
    assert np.abs(total - 1).max() < 1e-6
    for k, cause in enumerate(model.causes_):
        assert (by_cause[:, :, k] == incidence(model, cause)).all()
    assert list(both.mean.columns) == [(cause, time) for cause in model.causes_ for time in TIMES]


def test_hazards_and_cumulative_hazards_of_causes_add_up(model: NeuralSurv) -> None:
    for predict in (model.predict_hazard, model.predict_cumulative_hazard):
        parts = sum(predict(PEOPLE, TIMES, cause=cause).draws for cause in model.causes_)
        assert parts == pytest.approx(predict(PEOPLE, TIMES).draws, rel=1e-6)


def test_an_incidence_is_the_integral_of_hazard_times_survival(model: NeuralSurv) -> None:
    fine = np.linspace(0, 5, 2001)
    hazard = model.predict_hazard(PEOPLE, fine, cause="relapse").draws
    survival = model.predict_survival(PEOPLE, fine).draws
    integral = np.trapezoid(hazard * survival, fine, axis=2)
    assert incidence(model, "relapse", times=[5.0])[:, :, 0] == pytest.approx(integral, abs=2e-3)


def test_times_lost_add_up_to_the_horizon(model: NeuralSurv) -> None:
    lost = model.predict_rmtl(PEOPLE, 4.0)
    assert list(lost.columns) == list(model.causes_)
    total = lost.draws.sum(2) + model.predict_rmst(PEOPLE, 4.0).draws
    assert total == pytest.approx(4.0, abs=1e-5)
    one = model.predict_rmtl(PEOPLE, 4.0, cause="death")
    assert (one.draws == lost.draws[:, :, model.causes_.index("death")]).all()
    assert one.name == "restricted mean time lost to death up to 4"


def test_differences_come_from_joint_draws(model: NeuralSurv) -> None:
    a, b = PEOPLE.head(3), PEOPLE.tail(3)
    for given in ({"times": TIMES}, {"horizon": 4.0}):
        found = model.predict_difference(a, b, cause="death", **given)
        single = (
            [incidence(model, "death", x) for x in (a, b)]
            if "times" in given
            else [model.predict_rmtl(x, 4.0, "death").draws for x in (a, b)]
        )
        assert found.draws == pytest.approx(single[0] - single[1], abs=1e-6)
    against_one = model.predict_difference(a, b.head(1), TIMES, cause="death")
    assert against_one.draws.shape == (200, 3, 4)


def test_what_needs_no_cause_is_about_any_event(model: NeuralSurv) -> None:
    lost = model.predict_rmtl(PEOPLE, model.time_scale_).mean.sum(axis=1)
    # Means of 200 draws, of which one set is centred.
    assert model.predict(PEOPLE) == pytest.approx(lost / model.time_scale_, abs=0.05)
    assert (model.predict_event_time(PEOPLE).draws > 0).all()
    by_flag = model.score(COHORT.x, (COHORT.time, COHORT.event != "censored"))
    assert model.score(COHORT.x, (COHORT.time, COHORT.event)) == by_flag > 0.6
    assert model.score(COHORT.x, pd.DataFrame({"time": COHORT.time, "event": COHORT.event})) == by_flag
    deaths = COHORT.event != "relapse"
    flags = COHORT.event[deaths] == "death"
    # Not every cause needs to occur among the rows that are scored.
    some = model.score(COHORT.x[deaths], (COHORT.time[deaths], COHORT.event[deaths]))
    assert some == model.score(COHORT.x[deaths], (COHORT.time[deaths], flags))
    with pytest.raises(InputError, match="column 'event' holds 'cure'; the causes of the model are"):
        model.score(COHORT.x, (COHORT.time, np.where(deaths, "cure", COHORT.event)))
    assert model.predict_mean_survival(PEOPLE, TIMES).to_numpy() == pytest.approx(
        model.predict_survival(PEOPLE, TIMES).mean.to_numpy(), abs=0.05
    )


def test_labels_do_not_matter(model: NeuralSurv) -> None:
    codes = {"censored": 0, "relapse": 1, "death": 2}
    swapped = {"censored": 0, "relapse": 2, "death": 1}
    one, other = (fit(event=np.array([names[value] for value in COHORT.event])) for names in (codes, swapped))
    for name in ("relapse", "death"):
        assert (incidence(one, codes[name]) == incidence(model, name)).all()
        assert (incidence(other, swapped[name]) == incidence(model, name)).all()
    # A command line has texts only.
    assert (incidence(one, "1") == incidence(one, 1)).all()
    assert (incidence(one, 1.0) == incidence(one, 1)).all()


def test_three_causes_and_any_order_of_them() -> None:
    rng = np.random.default_rng(1)
    event = np.where(COHORT.event == "death", rng.choice(["heart", "other"], len(COHORT.time)), COHORT.event)
    model = fit(event=event)
    total = model.predict_cumulative_incidence(PEOPLE, TIMES).draws.reshape(200, 6, 3, 4).sum(2)
    assert np.abs(total + model.predict_survival(PEOPLE, TIMES).draws - 1).max() < 1e-6
    renamed = {"heart": "z", "other": "a", "relapse": "m", "censored": "censored"}
    other = fit(event=np.array([renamed[value] for value in event]))
    assert (incidence(other, "z") == incidence(model, "heart")).all()


def test_the_order_of_the_rows_and_the_unit_of_time_do_not_matter(model: NeuralSurv) -> None:
    order = np.random.default_rng(0).permutation(len(COHORT.time))
    shuffled = fit(COHORT.x.iloc[order], COHORT.time[order], COHORT.event[order])
    days = fit(time=365.25 * COHORT.time)
    for cause in model.causes_:
        assert np.abs(incidence(shuffled, cause) - incidence(model, cause)).max() < 1e-5
        assert np.abs(incidence(days, cause, times=365.25 * TIMES) - incidence(model, cause)).max() < 1e-5


def test_a_row_of_weight_two_or_cut_in_two_is_the_same(model: NeuralSurv) -> None:
    twice = np.concatenate([np.arange(120), np.arange(10)])
    repeated = fit(COHORT.x.iloc[twice], COHORT.time[twice], COHORT.event[twice])
    weighted = fit(sample_weight=np.where(np.arange(120) < 10, 2.0, 1.0))
    assert np.abs(incidence(repeated, "death") - incidence(weighted, "death")).max() < 1e-5
    x = pd.concat([COHORT.x, COHORT.x.head(1)])
    half = COHORT.time[0] / 2
    time, event = np.append(COHORT.time, half), np.append(COHORT.event, "censored")
    cut = fit(x, time, event, entry=np.concatenate([[half], np.zeros(120)]))
    assert np.abs(incidence(cut, "death") - incidence(model, "death")).max() < 1e-5


def test_one_cause_is_the_fit_of_event_flags() -> None:
    flags = COHORT.event != "censored"
    one = NeuralSurv(random_state=0, draws=50, verbose=False).fit(COHORT.x, time=COHORT.time, event=flags.astype(int))
    assert one.causes_ == ()
    assert "by cause" not in str(one.summary())
    flagged = NeuralSurv(random_state=0, draws=50, verbose=False).fit(COHORT.x, time=COHORT.time, event=flags)
    assert (one.predict_survival(PEOPLE, TIMES).draws == flagged.predict_survival(PEOPLE, TIMES).draws).all()


@pytest.mark.slow
def test_without_covariates_it_meets_aalen_johansen() -> None:
    cohort = competing_cohort(600, seed=8)
    # A covariate has to be there: one that has nothing to do with the events.
    x = cohort.x[["noise"]]
    model = fit(x, cohort.time, cohort.event)
    times = np.linspace(0.2, 5, 13)
    for cause in model.causes_:
        code = np.select([cohort.event == "censored", cohort.event == cause], [0, 1], 2)
        fitter = AalenJohansenFitter(calculate_variance=False).fit(cohort.time, code, event_of_interest=1)
        expected = fitter.cumulative_density_.iloc[:, 0].asof(times).to_numpy()
        found = model.predict_cumulative_incidence(x, times, cause).mean.to_numpy().mean(0)
        # A smooth curve of 600 rows against steps: the standard error of either is about 0.02.
        assert np.abs(found - expected).max() < 0.015


def test_missing_values_widen_bands_and_are_named(model: NeuralSurv) -> None:
    gaps = PEOPLE.assign(marker=np.nan)
    found = model.predict_cumulative_incidence(gaps, TIMES, "relapse")
    assert found.filled == (("marker",),) * 6
    known = model.predict_cumulative_incidence(PEOPLE.assign(marker=0.0), TIMES, "relapse")
    assert found.std.to_numpy().mean() > known.std.to_numpy().mean()


def test_tables_name_cause_and_time(model: NeuralSurv) -> None:
    frame = model.predict_cumulative_incidence(PEOPLE, TIMES).to_frame()
    assert list(frame.columns[:3]) == ["person", "cause", "time"]
    assert len(frame) == 6 * 2 * 4
    assert frame["cause"].tolist()[:4] == [model.causes_[0]] * 4
    lost = model.predict_rmtl(PEOPLE, 3.0).to_frame()
    assert list(lost.columns[:2]) == ["person", "cause"]
    assert "cumulative incidence of death" in repr(model.predict_cumulative_incidence(PEOPLE, TIMES, "death"))
    assert "death, 0.3" in model.predict_cumulative_incidence(PEOPLE, TIMES)._repr_html_()


def test_stacked_incidences_are_drawn_for_one_person(model: NeuralSurv) -> None:
    axes = model.plot_cumulative_incidence(PEOPLE.head(1))
    assert [text.get_text() for text in axes.get_legend().get_texts()] == list(model.causes_)
    assert axes.get_ylim() == (0, 1)
    with pytest.raises(InputError, match="X has 6 rows; stacked incidences are drawn for one person"):
        model.plot_cumulative_incidence(PEOPLE)
    for found in (model.predict_cumulative_incidence(PEOPLE, TIMES), model.predict_rmtl(PEOPLE, 3.0)):
        with pytest.raises(InputError, match="a prediction for several causes is not drawn as one curve; give cause="):
            found.plot()
    assert model.predict_cumulative_incidence(PEOPLE, TIMES, "death").plot() is not None
    pyplot.close("all")


@pytest.mark.parametrize(
    ("predict", "message"),
    [
        (
            lambda m: m.predict_cumulative_incidence(PEOPLE, TIMES, "relaps"),
            "'relaps'; did you mean 'relapse'",
        ),
        (lambda m: m.predict_hazard(PEOPLE, TIMES, cause=3), "there is no cause 3; the causes are"),
        (lambda m: m.predict_rmtl(PEOPLE, 0), "horizon=0 must be a positive, finite time"),
        (lambda m: m.predict_difference(PEOPLE, PEOPLE, cause="death"), "give either times .difference of cumulative"),
        (lambda m: m.predict_difference(PEOPLE, PEOPLE.head(2), TIMES, cause="death"), "X_a has 6 rows and X_b 2"),
        (lambda m: m.to_inference_data(COHORT.x, (COHORT.time, COHORT.event != "censored")), "log-likelihood of rows"),
        (lambda m: m.plot_calibration(COHORT.x, (COHORT.time, COHORT.event), 2.0), "say which of them mean the event"),
    ],
)
def test_what_cannot_be_predicted_is_refused(model: NeuralSurv, predict: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        predict(model)


def test_a_model_of_one_cause_has_no_predictions_by_cause() -> None:
    one = fit(event=COHORT.event == "death")
    with pytest.raises(InputError, match="fitted to one cause of events; the cumulative incidence is 1 - predict_surv"):
        one.predict_cumulative_incidence(PEOPLE, TIMES)
    with pytest.raises(InputError, match="cause='death' does nothing: the model was fitted to one cause"):
        one.predict_hazard(PEOPLE, TIMES, cause="death")
    with pytest.raises(InputError, match="say which of them mean the event"):
        one.score(COHORT.x, (COHORT.time, COHORT.event))


def test_what_takes_one_cause_refuses_several() -> None:
    import torch

    model = NeuralSurv(verbose=False)
    outcome = {"time": COHORT.time, "event": COHORT.event}
    with pytest.raises(
        InputError, match=r"exact draws take one cause of events, and the event column has 2 \(death, r"
    ):
        model.fit_exact(COHORT.x, **outcome)
    with pytest.raises(InputError, match=r"PaperNeuralSurv takes one cause.*pass df\[event\] == 'death' as the event"):
        PaperNeuralSurv(verbose=False).fit(COHORT.x, **outcome)
    own = OwnNetwork(torch.nn.Linear(6, 1))
    for parameters in ({"hidden": (8,)}, {"hidden": ()}, {"activation": "relu"}, {"network": own}):
        with pytest.raises(InputError, match=r"a network \(network=, hidden=, activation=\) takes one cause of events"):
            NeuralSurv(verbose=False, **parameters).fit(COHORT.x, **outcome)
    table = COHORT.x.assign(time=COHORT.time, event=np.select([COHORT.event == "death"], [2], 1))
    table.loc[::3, "event"] = 0
    with pytest.raises(InputError, match="must be 0/1 or True/False, but holds 2"):
        NeuralSurv(verbose=False).fit_stream([table], time="time", event="event")


def test_a_rare_cause_is_a_concern() -> None:
    rare = np.where((COHORT.event == "death") & (np.cumsum(COHORT.event == "death") > 3), "censored", COHORT.event)
    with pytest.warns(FewEventsWarning, match="hold events of the rarest cause of total weight 3"):
        fit(event=rare)
