"""``neuralsurv evaluate``, its scores recomputed by hand."""

import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from lifelines import KaplanMeierFitter
from sksurv.metrics import concordance_index_censored

from cli.run_command import QUICK, cohort_file, refused, run
from neuralsurv.cli.commands import evaluate
from neuralsurv.cli.commands.evaluate import Fold, fold_tables, make_folds
from neuralsurv.cli.ridge_cox import fit_ridge_cox
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError

ROLES = ("--time", "years", "--event", "died")


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return cohort_file(tmp_path_factory.mktemp("cohort"), n=60)


@pytest.fixture(scope="module")
def found(table):
    ended = run("evaluate", table, *ROLES, "--folds", 3, "--json", *QUICK)
    assert ended.code == 0, ended.err
    assert ended.err == ""
    return ended.json


def brier_by_hand(train, test, curve, grid):
    """The integrated Brier score of one curve for everybody, from its definition; no two times are the same here."""
    censoring = KaplanMeierFitter().fit(train.time, ~train.event)
    later = 1 / censoring.predict(grid).to_numpy()
    sooner = 1 / censoring.predict(test.time - 1e-9).to_numpy()
    alive = test.time[:, None] > grid
    dead = ~alive & test.event[:, None]
    error = np.where(alive, (1 - curve) ** 2 * later, np.where(dead, curve**2 * sooner[:, None], 0.0))
    return np.trapezoid(error.mean(0), grid) / (grid[-1] - grid[0])


def test_scores_of_kaplan_meier_and_cox_by_hand(table, found):
    frame = pd.read_csv(table).drop(columns=["name", "clinic"])
    outcome = Outcome.from_frame(frame, "years", "died")
    covariates = frame.drop(columns=["years", "died"])
    horizon = found["horizon"]
    grid = np.linspace(horizon / 100, horizon, 100)
    scores = {(score["fold"], score["method"]): score for score in found["scores"]}
    for fold in make_folds(outcome, None, 3, 1, seed=0):
        train, test = outcome.select(fold.train), outcome.select(fold.test)
        curve = KaplanMeierFitter().fit(train.time, train.event).survival_function_at_times(grid).to_numpy()
        expected = brier_by_hand(train, test, curve, grid)
        ours = scores[fold.number, "Kaplan–Meier"]
        assert ours["integrated_brier_score"] == pytest.approx(expected, rel=1e-6)
        assert ours["concordance"] == 0.5
        train_x, test_x, _ = fold_tables(covariates, fold)
        encoding = Encoding.fit(train_x, train.risk_weight(), events=train.event_weight())
        risk = encoding.transform(test_x) @ fit_ridge_cox(encoding.transform(train_x), train, 0.1).coefficients
        harrell = concordance_index_censored(test.event, test.time, risk)[0]
        # Hazards are proportional, so Antolini's index is Harrell's.
        assert scores[fold.number, "ridge Cox"]["concordance"] == pytest.approx(harrell)


def test_summary_is_that_of_the_folds(found):
    values = [score["concordance"] for score in found["scores"] if score["method"] == "NeuralSurv"]
    assert len(values) == 3
    mean = found["methods"]["NeuralSurv"]["concordance"]
    assert mean["mean"] == pytest.approx(np.mean(values))
    assert mean["sd"] == pytest.approx(np.std(values, ddof=1))
    cox = [score["concordance"] for score in found["scores"] if score["method"] == "ridge Cox"]
    gap = found["difference_to_ridge_cox"]["concordance"]
    assert gap["mean"] == pytest.approx(np.mean(values) - np.mean(cox))
    assert gap["standard_error"] == pytest.approx(np.std(np.subtract(values, cox), ddof=1) / np.sqrt(3))
    # Age is what matters in this cohort, and all but Kaplan–Meier find it.
    assert mean["mean"] > 0.65
    assert 0 <= found["methods"]["NeuralSurv"]["d_calibration_p"] <= 1


def test_the_table_and_the_file(table, tmp_path, monkeypatch, found):
    monkeypatch.setenv("COLUMNS", "140")
    out = tmp_path / "scores.csv"
    ended = run("evaluate", table, *ROLES, "--folds", 3, "--out", out, *QUICK)
    assert "3-fold cross-validation: 60 rows" in ended.out
    line = next(line for line in ended.out.splitlines() if line.strip().startswith("Kaplan–Meier"))
    assert line.split()[1:3] == ["0.5000", "(0.0000)"]
    assert "NeuralSurv − ridge Cox, concordance: " in ended.out
    written = pd.read_csv(out)
    expected = [score["concordance"] for score in found["scores"]]
    np.testing.assert_allclose(written["concordance"], expected)
    assert "exists already" in refused("evaluate", table, *ROLES, "--out", out)


def test_how_long_it_will_take_is_said_after_the_first_fold(table, monkeypatch):
    arguments = ("evaluate", table, *ROLES, "--folds", 2, *QUICK)
    assert "all will take" not in run(*arguments).err
    monkeypatch.setattr(evaluate, "_WORTH_A_FORECAST", 0.0)
    assert re.search(r"note: the first of 2 folds took \d+ s; all will take about \d+ s\.", run(*arguments).err)
    assert "all will take" not in run(*arguments, "--quiet").err


def test_subjects_late_entry_and_rare_categories(tmp_path):
    frame = pd.read_csv(cohort_file(tmp_path, n=60)).drop(columns=["name", "clinic", "dose"])
    frame["seen"] = 0.25 * frame["years"]
    frame["who"] = np.repeat(np.arange(30), 2)
    frame["stage"] = ["I"] + ["II", "III"] * 29 + ["III"]
    # Two people of one family each.
    path = tmp_path / "late.csv"
    frame.to_csv(path, index=False)
    columns = (*ROLES, "--entry", "seen", "--id", "who", "--folds", 2, "--repeats", 2)
    ended = run("evaluate", path, *columns, "--json", *QUICK)
    assert ended.code == 0, ended.err
    found = ended.json
    assert found["horizon"] is None
    assert found["methods"]["NeuralSurv"]["integrated_brier_score"]["mean"] is None
    assert len(found["scores"]) == 3 * 2 * 2
    assert any(note.startswith("with late entry only concordance and D-calibration") for note in found["notes"])
    rare = next(note for note in found["notes"] if note.startswith("column 'stage'"))
    assert rare == (
        "column 'stage': 1 test cell held a category or a gap that the training rows of its fold do not show; it was "
        "scored as the commonest value."
    )
    subjects = run("evaluate", path, *columns[:-2], *QUICK, "--seed", 3)
    assert "integrated Brier" not in subjects.out


def test_warnings_are_counted(table):
    ended = run("evaluate", table, *ROLES, "--folds", 2, "--json", *QUICK, "--set", "max_sweeps=1")
    assert any(
        text.startswith("in 2 of 2 fits of NeuralSurv: the variational sweeps stopped")
        for text in ended.json["warnings"]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--folds", "50"), "too few for 50 folds"),
        (("--horizon", "1000"), "--horizon 1000 cannot be scored in every fold; give a time above 0 and up to "),
        (("--cox-penalty", "-1"), "the penalty of the ridge Cox model is -1.0"),
        (("--set", "nothing=1"), "there is no setting 'nothing'"),
    ],
)
def test_wrong_plans(table, arguments, message):
    assert message in refused("evaluate", table, *ROLES, *QUICK, *arguments)


def test_an_interrupt_inside_a_fit_ends_the_whole_work(table, monkeypatch):
    """The estimator keeps what it has when it is interrupted, so the command must not go on with the next fold."""
    from neuralsurv import PaperNeuralSurv

    fit, fits = PaperNeuralSurv.fit, []

    def interrupted(self, *arguments, **options):
        fit(self, *arguments, **options)
        self.fitted_ = replace(self.fitted_, diagnostics=replace(self.diagnostics_, interrupted=True))
        fits.append(self)
        return self

    monkeypatch.setattr(PaperNeuralSurv, "fit", interrupted)
    ended = run("evaluate", table, *ROLES, "--folds", 2, "--quiet", *QUICK)
    assert ended.code == 130
    assert ended.err.splitlines()[1:] == ["error: interrupted; nothing was written."]
    assert len(fits) == 1


def some_outcome(n=60, events=20):
    return Outcome.from_arrays(np.arange(1, n + 1), np.arange(n) < events)


def test_folds_cover_the_cohort_and_share_the_events():
    cohort = some_outcome()
    folds = make_folds(cohort, None, 5, 2, seed=0)
    assert [(fold.repeat, fold.number) for fold in folds] == [(r, k) for r in (1, 2) for k in range(1, 6)]
    for repeat in (1, 2):
        tested = np.concatenate([fold.test for fold in folds if fold.repeat == repeat])
        assert sorted(tested) == list(range(60))
    for fold in folds:
        assert not set(fold.train) & set(fold.test)
        assert cohort.event[fold.test].sum() == 4
    assert (folds[0].test != folds[5].test).any()
    assert (folds[0].test == make_folds(cohort, None, 5, 1, seed=0)[0].test).all()


def test_subjects_stay_together():
    subject = np.repeat([f"s{k}" for k in range(20)], 3)
    for fold in make_folds(some_outcome(), subject, 4, 3, seed=1):
        assert not set(subject[fold.train]) & set(subject[fold.test])


@pytest.mark.parametrize(
    ("cohort", "subject", "folds", "message"),
    [
        (some_outcome(events=3), None, 5, "only 3 rows have an event, too few for 5 folds; use --folds with a smaller"),
        (some_outcome(events=58), None, 5, "only 2 rows have no event, too few for 5 folds"),
        (some_outcome(), np.repeat(np.arange(15), 4), 6, "only 5 subjects have an event, too few for 6 folds"),
        (some_outcome(), np.where(np.arange(60) < 2, np.nan, 1.0), 2, "the id is missing in 2 rows; fill it in"),
    ],
)
def test_folds_that_cannot_be_made(cohort, subject, folds, message):
    with pytest.raises(InputError, match=message):
        make_folds(cohort, subject, folds, 1, seed=0)


def test_a_fold_without_an_event(monkeypatch):
    rows = np.arange(60)
    monkeypatch.setattr(
        "sklearn.model_selection.StratifiedGroupKFold.split",
        lambda self, X, y, groups: iter([(rows[20:], rows[:20]), (rows[:20], rows[20:])]),
    )
    with pytest.raises(InputError, match="fold 1 of 2 has no event, because subjects stay together; use fewer"):
        make_folds(some_outcome(), np.arange(60), 2, 1, seed=0)


def test_all_events_is_fine():
    assert len(make_folds(some_outcome(20, 20), None, 4, 1, seed=0)) == 4


def test_tables_of_a_fold():
    frame = pd.DataFrame(
        {
            "age": [1.0, 2.0, 4.0, np.nan],
            "gap": [1.0, np.nan, 3.0, np.nan],
            "arm": ["a", "b", "b", "c"],
            "flat": [1, 1, 1, 2],
            "dose": [1, 2, 3, 4],
        }
    )
    train, test, changed = fold_tables(frame, Fold(1, 1, np.array([0, 1, 2]), np.array([3])))
    assert list(train.columns) == list(test.columns) == ["age", "gap", "arm", "dose"]
    assert test["age"].tolist() == [2.0]
    assert test["gap"].isna().all()
    assert test["arm"].tolist() == ["b"]
    assert changed == {"age": 1, "arm": 1}
    assert frame["age"].isna()[3], "the table itself must stay as it is"


def test_no_covariate_left():
    frame = pd.DataFrame({"flat": [1, 1, 2]})
    with pytest.raises(InputError, match="no covariate varies in the training rows of fold 1; use fewer --folds"):
        fold_tables(frame, Fold(1, 1, np.array([0, 1]), np.array([2])))
