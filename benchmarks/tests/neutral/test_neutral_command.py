import pandas as pd
import pytest

from neuralsurv_bench.command import main
from neuralsurv_bench.store import Store


@pytest.fixture
def path(tmp_path):
    return tmp_path / "neutral.sqlite"


def run(path, *words):
    return main(["run", *words, "--store", str(path)])


def test_folds_are_run_once_and_the_page_is_written(made_up_study, path, tmp_path, capsys):
    words = ("neutral", "--folder", str(made_up_study), "--cohort", "small", "--cohort", "words")
    assert run(path, *words, "--folds", "1") == 0
    said = capsys.readouterr().out
    assert said.startswith("Kaplan–Meier has its stored Brier score on all 12 folds of 4 tasks")
    assert "neutral: 2 finished, 0 failed, 0 were there before, 0 left" in said
    assert run(path, *words, "--folds", "2", "--limit-minutes", "0") == 0
    assert "neutral: 0 finished, 0 failed, 2 were there before, 2 left" in capsys.readouterr().out
    out = tmp_path / "docs"
    assert main(["table", "neutral", "--folder", str(made_up_study), "--store", str(path), "--out", str(out)]) == 0
    assert capsys.readouterr().out.split() == [str(out / "neutral.md"), str(out / "neutral_ranks.png")]


def test_nothing_is_run_if_kaplan_meier_has_other_scores(copied_study, path, capsys):
    scores = copied_study.path / "results" / "production" / "scores.csv"
    pd.read_csv(scores).eval("isbs = isbs + 0.0001").to_csv(scores, index=False)
    assert run(path, "neutral", "--folder", str(copied_study.path)) == 2
    assert "Kaplan–Meier does not have its stored Brier score on 12 of 12 folds" in capsys.readouterr().err
    with Store(path) as store:
        assert not store.stored()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("neutral",), "neutral needs --folder, a copy of slds-lmu/paper_2023_survival_benchmark"),
        (("neutral", "--folder", ".", "--method", "CoxPH"), "--method is not an option of neutral"),
        (("classical", "--folder", "."), "--folder and --folds are options of neutral only"),
        (("classical", "--folds", "1"), "--folder and --folds are options of neutral only"),
    ],
)
def test_options_that_do_not_fit_are_refused(path, capsys, words, message):
    assert run(path, *words) == 2
    assert message in capsys.readouterr().err
    assert not path.exists()
