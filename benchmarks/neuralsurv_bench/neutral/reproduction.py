"""The study's Kaplan–Meier scores computed again: data, folds and score are the study's if and only if they agree."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv_bench.methods.interface import Floats
from neuralsurv_bench.methods.kaplan_meier import read_steps
from neuralsurv_bench.neutral.folder import KAPLAN_MEIER, Fold, StudyFolder, Task
from neuralsurv_bench.neutral.study_scores import brier_times, study_brier

# The stored scores have six digits.
TOLERANCE = 1e-5
_WORST_SHOWN = 5


@dataclass(frozen=True)
class Reproduction:
    """How closely the stored Kaplan–Meier scores are reproduced.

    Attributes
    ----------
    tasks, folds : int
        How many were compared.
    largest_difference : float
        The largest absolute difference of a Brier score.
    """

    tasks: int
    folds: int
    largest_difference: float

    def sentence(self) -> str:
        """Return it in words."""
        return (
            f"Kaplan–Meier has its stored Brier score on all {self.folds} folds of {self.tasks} tasks; the largest "
            f"difference is {self.largest_difference:.1e}."
        )


def kaplan_meier_brier(task: Task, fold: Fold) -> float:
    """Return the Brier score of the training rows' Kaplan–Meier curve on the test rows of a fold.

    The study reads its curves from a matrix whose columns are named by their times, in R's 15 significant digits. A
    time with more digits is rounded by that, and if it is rounded up, the curve at that time is still the one before
    its step. Only gbsg and metabric have such times; without the rounding their scores differ by up to 4e-6.
    """
    train, test = ((task.time[rows], task.event[rows]) for rows in (fold.train, fold.test))
    curve = survival_curve(Outcome.from_arrays(*train))
    times = brier_times(test[0])
    return study_brier(train, test, read_steps(_fifteen_digits(curve.times), curve.survival, times)[None])


def _fifteen_digits(times: Floats) -> Floats:
    return np.array([float(f"{time:.15g}") for time in times])


def check_reproduction(folder: StudyFolder) -> Reproduction:
    """Compare the Kaplan–Meier score of every fold with the stored one, and refuse the folder unless all agree."""
    scores = folder.scores()
    stored = scores[scores["learner_id"] == KAPLAN_MEIER].set_index(["task_id", "iteration"])["isbs"]
    names = folder.names()
    found = pd.Series(
        {
            (task.name, fold.iteration): kaplan_meier_brier(task, fold)
            for task in map(folder.task, names)
            for fold in task.folds
        }
    )
    missing = found.index.difference(stored.index)
    if len(missing):
        task, iteration = missing[0]
        raise InputError(
            f"scores.csv has no {KAPLAN_MEIER} score of {len(missing)} of the {len(found)} stored folds, the first "
            f"being fold {iteration} of {task}; give a complete copy of the study's results."
        )
    differences = (found - stored.loc[found.index]).abs().sort_values(ascending=False)
    wrong = differences[~(differences <= TOLERANCE)]
    if len(wrong):
        worst = "; ".join(
            f"{task}, fold {iteration}: {found[task, iteration]:.6f} in place of {stored[task, iteration]:.6f}"
            for task, iteration in wrong.index[:_WORST_SHOWN]
        )
        raise InputError(
            f"Kaplan–Meier does not have its stored Brier score on {len(wrong)} of {len(found)} folds ({worst}), so "
            "scores of ours could not be compared with the stored ones; check that data, folds and scores are from one "
            "version of the study."
        )
    return Reproduction(len(names), len(found), float(differences.iloc[0]))
