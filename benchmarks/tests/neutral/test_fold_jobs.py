import numpy as np
import pandas as pd
import pytest

from neuralsurv.errors import InputError
from neuralsurv_bench.neutral.fold_jobs import covariates, execute_fold, fold_jobs
from neuralsurv_bench.neutral.folder import Fold, Task


def test_small_tasks_come_first_and_one_fold_of_each_before_the_next(study):
    names = [(job.key.cohort, job.key.fold) for job in fold_jobs(study, folds=2)]
    assert names == [(name, fold) for fold in (1, 2) for name in ("small", "nwtco", "words", "wide")]
    assert len(fold_jobs(study)) == 12
    assert {job.key.cohort for job in fold_jobs(study, only_tasks=["wide"])} == {"wide"}


def test_no_folds_are_refused(study):
    with pytest.raises(InputError, match="--folds 0 leaves nothing to run"):
        fold_jobs(study, folds=0)


def test_constant_columns_are_left_out_and_new_categories_count_as_the_most_frequent():
    x = pd.DataFrame(
        {
            "site": pd.Categorical(["a", "b", "b", "c", "a"]),
            "one": pd.Categorical(["u", "u", "u", "v", "u"]),
            "flat": [1.0, 1.0, 1.0, 2.0, 3.0],
            "age": [1.0, 2.0, 3.0, 4.0, 5.0],
        }
    )
    task = Task("any", x, np.arange(1.0, 6), np.ones(5, dtype=bool), ())
    train, test = covariates(task, Fold(1, np.arange(3), np.arange(3, 5)))
    assert list(train) == list(test) == ["site", "age"]
    assert test["site"].tolist() == ["b", "a"]


def test_a_fold_is_fitted_and_scored(study):
    job = fold_jobs(study, only_tasks=["words"])[0]
    record = execute_fold(job)
    assert record.status == "finished", record.error
    assert record.key == job.key
    assert 0 < record.scores["study"]["isbs"] < 0.4
    assert 0 <= record.scores["study"]["harrell_c"] <= 1
    assert record.date
    assert record.environment["packages"]["neuralsurv"]


def test_an_error_becomes_a_record(copied_study):
    job = fold_jobs(copied_study, only_tasks=["wide"])[0]
    path = copied_study.path / "datasets" / "wide.csv"
    pd.read_csv(path).assign(time=0).to_csv(path, index=False)
    record = execute_fold(job)
    assert record.status == "failed"
    assert "'time' is zero or negative" in record.error
