import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench.neutral.folder import StudyFolder


def test_tasks_are_listed_from_the_smallest(study):
    assert study.names() == ["small", "nwtco", "words", "wide"]
    assert study.names(["wide", "small"]) == ["small", "wide"]


def test_a_task_without_folds_is_not_listed(copied_study):
    (copied_study.path / "resamplings" / "repeated_cv" / "wide.csv").unlink()
    assert "wide" not in copied_study.names()


def test_an_unknown_task_is_refused(study):
    with pytest.raises(InputError, match="there is no task 'smal'; did you mean 'small'"):
        study.names(["smal"])


def test_a_task_has_its_rows_and_folds(study):
    task = study.task("small")
    assert task.x.shape == (30, 2)
    assert list(task.x) == ["age", "stage"]
    assert [fold.iteration for fold in task.folds] == [1, 2, 3]
    for fold in task.folds:
        assert sorted([*fold.train, *fold.test]) == list(range(30))
    # Each row is a test row once.
    assert sorted(np.concatenate([fold.test for fold in task.folds])) == list(range(30))


def test_factors_are_categories_also_those_coded_as_numbers(study):
    assert isinstance(study.task("words").x["sex"].dtype, pd.CategoricalDtype)
    assert isinstance(study.task("nwtco").x["stage"].dtype, pd.CategoricalDtype)
    assert pd.api.types.is_numeric_dtype(study.task("small").x["stage"])


def test_another_folder_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has no task with both datasets/NAME.csv and .*; give a copy of slds-lmu"):
        StudyFolder(tmp_path).names()
    with pytest.raises(InputError, match=r"has no results/production/scores.csv; give a copy of slds-lmu"):
        StudyFolder(tmp_path).scores()


def test_another_layout_is_refused(copied_study):
    path = copied_study.path / "datasets" / "small.csv"
    pd.read_csv(path).rename(columns={"status": "event"}).to_csv(path, index=False)
    with pytest.raises(InputError, match=r"datasets/small.csv has no column 'status'; its layout is not the study's"):
        copied_study.task("small")


def test_folds_of_other_data_are_refused(copied_study):
    path = copied_study.path / "datasets" / "small.csv"
    pd.read_csv(path).head(20).to_csv(path, index=False)
    with pytest.raises(InputError, match="the folds of small have a row_id that is not between 1 and its 20 rows"):
        copied_study.task("small")
