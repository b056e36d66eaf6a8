import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench.neutral.folder import Fold, Task
from neuralsurv_bench.neutral.reproduction import check_reproduction, kaplan_meier_brier


def change_scores(study, change):
    path = study.path / "results" / "production" / "scores.csv"
    change(pd.read_csv(path)).to_csv(path, index=False)


def test_kaplan_meier_has_the_scores_that_loops_give(study):
    found = check_reproduction(study)
    assert (found.tasks, found.folds) == (4, 12)
    # The stored ones are rounded to six digits.
    assert found.largest_difference <= 5.1e-7
    assert found.sentence().startswith(
        "Kaplan–Meier has its stored Brier score on all 12 folds of 4 tasks; the largest"
    )


def test_another_score_is_refused_with_the_worst_folds(copied_study):
    def change(scores):
        wrong = (scores["learner_id"] == "KM") & (scores["task_id"] == "words") & (scores["iteration"] > 1)
        scores.loc[wrong, "isbs"] += [0.001, 0.002]
        return scores

    change_scores(copied_study, change)
    with pytest.raises(
        InputError, match=r"on 2 of 12 folds \(words, fold 3: 0\.\d+ in place of 0\.\d+; words, fold 2:"
    ):
        check_reproduction(copied_study)


def test_a_missing_score_is_refused(copied_study):
    change_scores(copied_study, lambda scores: scores[(scores["task_id"] != "wide") | (scores["iteration"] != 2)])
    with pytest.raises(InputError, match="no KM score of 1 of the 12 stored folds, the first being fold 2 of wide"):
        check_reproduction(copied_study)


def test_an_undefined_score_is_refused(copied_study):
    def change(scores):
        scores.loc[0, "isbs"] = np.nan
        return scores

    change_scores(copied_study, change)
    with pytest.raises(InputError, match=r"on 1 of 12 folds \(small, fold 1: 0\.\d+ in place of nan"):
        check_reproduction(copied_study)


def test_a_step_at_a_time_that_r_rounds_up_comes_after_it():
    # Both have the 15 digits of 1.1. Rounded down, the step is seen at its time; rounded up, it is not.
    above, below = np.nextafter(1.1, 2), np.nextafter(1.1, 1)
    scores = []
    for step in (above, below):
        time = np.array([step, 2.0, 3.0, step, 2.5, 3.5])
        task = Task("steps", pd.DataFrame(index=range(6)), time, np.ones(6, dtype=bool), ())
        scores.append(kaplan_meier_brier(task, Fold(1, np.arange(3), np.arange(3, 6))))
    # At the step S is 2/3 or still 1; of three test rows one has the event there and two live on.
    means = [((2 / 3) ** 2 + 2 * (1 / 3) ** 2) / 3, 1 / 3]
    at_2_5 = ((1 / 3) ** 2 * 2 + (2 / 3) ** 2) / 3
    expected = [((2.5 - 1.1) * (mean + at_2_5) / 2 + 1.0 * (at_2_5 + 0) / 2) / 2.4 for mean in means]
    np.testing.assert_allclose(scores, expected, rtol=1e-12)
