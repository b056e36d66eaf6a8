"""Several causes of events on the command line: what takes them, and what refuses them."""

import io

import numpy as np
import pandas as pd
import pytest

import neuralsurv
from cli.run_command import refused, run
from neuralsurv.data.simulate.competing import competing_cohort

COHORT = competing_cohort(80, seed=6)
QUICK = ("--set", "average=false", "--draws", "50")
OUTCOME = ("--time", "years", "--event", "status")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("competing")
    COHORT.x.assign(years=COHORT.time, status=COHORT.event).to_csv(folder / "people.csv", index=False)
    codes = np.select([COHORT.event == "death", COHORT.event == "relapse"], [2, 1], 0)
    COHORT.x.assign(years=COHORT.time, status=codes).to_csv(folder / "codes.csv", index=False)
    ended = run("fit", folder / "people.csv", *OUTCOME, "--out", folder / "m.neuralsurv", *QUICK)
    assert ended.code == 0, ended
    (folder / "fit.err").write_text(ended.err, encoding="utf-8")
    return folder


def counts():
    found = pd.Series(COHORT.event).value_counts()
    return {name: int(found[name]) for name in ("death", "relapse", "censored")}


def test_fit_says_how_the_event_was_read(folder):
    of = counts()
    listed = ", ".join(f"{name} ({of[name]})" for name in sorted(("death", "relapse"), key=lambda name: -of[name]))
    expected = f"note: status: {listed} → causes of events; censored ({of['censored']}) → censored."
    assert expected in (folder / "fit.err").read_text(encoding="utf-8")
    assert "was read as" not in (folder / "fit.err").read_text(encoding="utf-8")


def test_codes_give_the_same_fit(folder):
    ended = run("fit", folder / "codes.csv", *OUTCOME, "--out", folder / "codes.neuralsurv", *QUICK)
    again = run(
        "fit", folder / "codes.csv", *OUTCOME, "--out", folder / "codes.neuralsurv", *QUICK, "--force", "--json"
    )
    assert again.json["causes"] == {"1": counts()["relapse"], "2": counts()["death"]}
    assert "causes of events; 0 (" in ended.err
    one, other = (neuralsurv.load(folder / name) for name in ("m.neuralsurv", "codes.neuralsurv"))
    assert one.elbo_[-1] == other.elbo_[-1]
    assert sorted(other.causes_) == [1, 2]


def test_a_value_that_is_chosen_is_one_cause_as_before(folder):
    ended = run(
        "fit", folder / "people.csv", *OUTCOME, "--event-value", "death", "--out", folder / "one.neuralsurv", *QUICK
    )
    assert f"status: death ({counts()['death']}) → event; " in ended.err
    assert neuralsurv.load(folder / "one.neuralsurv").causes_ == ()


def test_predictions_by_cause(folder):
    model = neuralsurv.load(folder / "m.neuralsurv")
    ask = ("predict", folder / "m.neuralsurv", folder / "people.csv", "--quantity")
    one = pd.read_csv(io.StringIO(run(*ask, "incidence", "--cause", "death", "--times", "1,2").out))
    expected = model.predict_cumulative_incidence(COHORT.x, [1, 2], "death").to_frame()
    np.testing.assert_allclose(one[["mean", "lower"]], expected[["mean", "lower"]], rtol=1e-5)
    every = pd.read_csv(io.StringIO(run(*ask, "incidence", "--times", "1,2").out))
    assert list(every.columns[:3]) == ["row", "cause", "time"]
    assert len(every) == 2 * len(one)
    lost = pd.read_csv(io.StringIO(run(*ask, "rmtl", "--horizon", "3").out))
    np.testing.assert_allclose(lost["mean"], model.predict_rmtl(COHORT.x, 3).to_frame()["mean"], rtol=1e-5)
    hazard = pd.read_csv(io.StringIO(run(*ask, "hazard", "--cause", "relapse", "--times", "1").out))
    expected = model.predict_hazard(COHORT.x, [1], cause="relapse").mean
    np.testing.assert_allclose(hazard["mean"], expected.to_numpy()[:, 0], rtol=1e-5)


def test_a_picture_of_one_cause(folder):
    ask = ("predict", folder / "m.neuralsurv", folder / "people.csv", "--quantity", "incidence")
    assert run(*ask, "--cause", "death", "--picture", folder / "death.png").code == 0
    assert (folder / "death.png").stat().st_size > 1000
    assert "a picture of incidence shows one cause; say which with --cause" in refused(
        *ask, "--picture", folder / "all.png"
    )


def test_inspect_names_the_causes(folder):
    ended = run("inspect", folder / "m.neuralsurv")
    assert "causes of events" in ended.out
    assert run("inspect", folder / "m.neuralsurv", "--json").json["causes"].keys() == {"death", "relapse"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--quantity", "incidence", "--cause", "deth"), "there is no cause 'deth'; did you mean 'death'?"),
        (("--quantity", "rmst", "--cause", "death"), "--cause goes with --quantity incidence, rmtl, hazard or cumul"),
        (("--horizon", "3"), "--horizon goes with --quantity rmst or rmtl only"),
    ],
)
def test_what_cannot_be_asked_for(folder, arguments, message):
    assert message in refused("predict", folder / "m.neuralsurv", folder / "people.csv", *arguments)


def test_a_model_of_one_cause_has_no_incidence(folder):
    path = folder / "alone.neuralsurv"
    run("fit", folder / "people.csv", *OUTCOME, "--event-value", "death", "--out", path, *QUICK)
    people = folder / "people.csv"
    assert "the model was fitted to one cause" in refused("predict", path, people, "--quantity", "incidence")
    message = refused("predict", path, people, "--quantity", "incidence", "--cause", "death")
    assert "cause='death' does nothing" in message


def test_what_takes_one_cause_refuses_several(folder):
    names, codes = folder / "people.csv", folder / "codes.csv"
    assert "say which of them mean the event" in refused("evaluate", names, *OUTCOME)
    assert "say which value means the event: --event-value 2" in refused("evaluate", codes, *OUTCOME)
    message = refused("fit", codes, *OUTCOME, "--out", folder / "no.neuralsurv", "--preset", "paper")
    assert "PaperNeuralSurv takes one cause of events" in message
    assert "--event-value" in message
    message = refused("fit", codes, *OUTCOME, "--out", folder / "no.neuralsurv", "--hidden", "8")
    assert "takes one cause of events" in message
    for command in (("report", folder / "m.neuralsurv", names, "--out", folder / "r.html"),):
        message = refused(*command)
        assert "the report knows models of one cause of events, and this one has 2" in message
    message = refused("serve", folder / "m.neuralsurv", "--no-token", "--port", "0")
    assert "the service knows models of one cause of events, and this one has 2" in message
    message = refused("explore", folder / "m.neuralsurv", "--no-browser")
    assert "the service knows models of one cause of events, and this one has 2" in message


def test_unclear_columns_are_refused_with_what_to_type(folder):
    path = folder / "unclear.csv"
    COHORT.x.assign(years=COHORT.time, status=np.where(COHORT.event == "censored", "?", COHORT.event)).to_csv(path)
    message = refused("fit", path, *OUTCOME, "--out", folder / "no.neuralsurv")
    assert "say which of them mean the event" in message
    path = folder / "gaps.csv"
    COHORT.x.assign(years=COHORT.time, status=np.where(np.arange(80) == 3, " ", COHORT.event)).to_csv(path)
    message = refused("fit", path, *OUTCOME, "--out", folder / "no.neuralsurv")
    assert "column 'status' is missing (NaN) in 1 row" in message
    ended = run("fit", path, *OUTCOME, "--out", folder / "gaps.neuralsurv", "--drop-missing-outcome", *QUICK)
    assert "left out 1 of 80 rows" in ended.err
    assert neuralsurv.load(folder / "gaps.neuralsurv").training_["rows"] == 79
