"""One job for each stored fold: fit the default model on its training rows and score it on its test rows."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import pandas as pd

from neuralsurv import NeuralSurv
from neuralsurv.errors import InputError
from neuralsurv_bench.jobs import record_of, seed_generators
from neuralsurv_bench.methods.neuralsurv_default import NAME
from neuralsurv_bench.neutral.folder import Fold, StudyFolder, Task
from neuralsurv_bench.neutral.study_scores import brier_times, study_brier, study_concordance
from neuralsurv_bench.store import Key, Record

EXPERIMENT = "neutral"
# Under which the scores of a record are kept; their names are those of the columns of scores.csv.
DEFINITION = "study"
# The mean curve of so many draws is off by less than a thousandth; all test times are asked for, which takes time.
_DRAWS = 250


@dataclass(frozen=True)
class FoldJob:
    """The default model on one stored fold.

    Attributes
    ----------
    key : Key
        The name under which its result is stored; `fold` is the study's iteration, from 1.
    folder : Path
        The copy of the study's repository.
    """

    key: Key
    folder: Path


def fold_jobs(folder: StudyFolder, *, only_tasks: Sequence[str] = (), folds: int | None = None) -> list[FoldJob]:
    """Return the jobs: the first fold of every task, from the smallest task to the largest, then the second, and so on.

    Parameters
    ----------
    folder : StudyFolder
        The copy of the study's repository.
    only_tasks : sequence of str
        Leave out all tasks but these; empty for all.
    folds : int, optional
        Run only this number of stored folds of each task, from the first (three make a repeat of the study's
        cross-validation); all by default.
    """
    if folds is not None and folds < 1:
        raise InputError(f"--folds {folds} leaves nothing to run; give at least 1.")
    keys = [
        (fold.iteration, place, name)
        for place, name in enumerate(folder.names(only_tasks))
        for fold in folder.task(name).folds[:folds]
    ]
    return [
        FoldJob(Key(EXPERIMENT, name, "", iteration, NAME, "fair", 0), folder.path)
        for iteration, _, name in sorted(keys)
    ]


def execute_fold(job: FoldJob) -> Record:
    """Do a job and return its record."""
    return record_of(job.key, partial(_fit_and_score, job))


def _fit_and_score(job: FoldJob, result: dict[str, Any]) -> None:
    task = _task(job.folder, job.key.cohort)
    fold = next(one for one in task.folds if one.iteration == job.key.fold)
    train, test = covariates(task, fold)
    train_outcome = task.time[fold.train], task.event[fold.train]
    test_outcome = task.time[fold.test], task.event[fold.test]
    seed_generators(job.key.seed)
    began, processor_began = time.perf_counter(), time.process_time()
    model = NeuralSurv(random_state=job.key.seed, verbose=False, draws=_DRAWS).fit(train, train_outcome)
    fitted_at = time.perf_counter()
    result["fit_seconds"] = fitted_at - began
    result["details"]["fit_processor_seconds"] = time.process_time() - processor_began
    survival = model.predict_survival(test, brier_times(test_outcome[0])).mean.to_numpy()
    risk = model.predict(test)
    result["predict_seconds"] = time.perf_counter() - fitted_at
    result["scores"] = {
        DEFINITION: {
            "isbs": study_brier(train_outcome, test_outcome, survival),
            "harrell_c": study_concordance(*test_outcome, risk),
        }
    }


def covariates(task: Task, fold: Fold) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the covariates of the training and the test rows.

    Columns that are constant in the training rows are left out, and a category that the training rows do not have
    counts as their most frequent one.
    """
    train, test = task.x.iloc[fold.train], task.x.iloc[fold.test]
    varying = [name for name in train if train[name].nunique() > 1]
    train, test = train[varying], test[varying].copy()
    for name in train.select_dtypes("category"):
        seen = test[name].isin(train[name].unique())
        test[name] = test[name].where(seen, train[name].mode()[0])
    return train, test


# A worker meets the same task again and again.
@lru_cache(maxsize=4)
def _task(folder: Path, name: str) -> Task:
    return StudyFolder(folder).task(name)
