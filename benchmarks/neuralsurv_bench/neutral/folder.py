"""Read a copy of the study's repository: data, folds and stored scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from neuralsurv.errors import InputError
from neuralsurv.names import check_known
from neuralsurv_bench.methods.interface import Floats

OUTCOME = ("time", "status")
_SCORE_COLUMNS = ("task_id", "learner_id", "iteration", "isbs", "harrell_c", "tune_measure", "learner_group")
KAPLAN_MEIER = "KM"
COX = "CPH"
# Factors of the study whose levels are numbers in its CSV files, which do not say so. An unpenalised Cox model has the
# stored C-index of the study's Cox model (folds 1 to 3, all digits) with these columns as factors and not without. For
# IV of uis both give the same C-index; its codes (never, previous, recent) are no scale either.
CODED_FACTORS = {
    "flchain": ("flc.grp",),
    "nwtco": ("stage",),
    "rdata": ("year",),
    "uis": ("HC", "IV"),
    "whas": ("mitype", "year"),
}
_GIVE = "give a copy of slds-lmu/paper_2023_survival_benchmark as --folder."

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Fold:
    """One stored fold.

    Attributes
    ----------
    iteration : int
        Its number in the study, from 1.
    train, test : ndarray of int
        Positions of its rows, from 0.
    """

    iteration: int
    train: Indices
    test: Indices


@dataclass(frozen=True)
class Task:
    """One data set of the study with its folds.

    Attributes
    ----------
    name : str
        Its name in the study.
    x : DataFrame of shape (n, d)
        Covariates; factors are categories.
    time : ndarray of shape (n,)
        Observed times.
    event : ndarray of bool, shape (n,)
        Whether the event was observed.
    folds : tuple of Fold
        The folds, by iteration.
    """

    name: str
    x: pd.DataFrame
    time: Floats
    event: NDArray[np.bool_]
    folds: tuple[Fold, ...]


@dataclass(frozen=True)
class StudyFolder:
    """A copy of the study's repository, or of a part of it in the same layout.

    Attributes
    ----------
    path : Path
        The folder, with ``datasets/*.csv``, ``resamplings/repeated_cv/*.csv`` and ``results/production/scores.csv``.
    """

    path: Path

    def names(self, only: Sequence[str] = ()) -> list[str]:
        """Return the tasks that have data and folds, from the smallest file to the largest, or only the given ones."""
        folds = {path.stem for path in (self.path / "resamplings" / "repeated_cv").glob("*.csv")}
        data = {path.stem: path.stat().st_size for path in (self.path / "datasets").glob("*.csv") if path.stem in folds}
        if not data:
            raise InputError(
                f"{self.path} has no task with both datasets/NAME.csv and resamplings/repeated_cv/NAME.csv; {_GIVE}"
            )
        for name in only:
            check_known(name, sorted(data), what="task")
        return sorted(only or data, key=lambda name: (data[name], name))

    def task(self, name: str) -> Task:
        """Return a task by its name."""
        table = self._table(f"datasets/{name}.csv", OUTCOME)
        stored = self._table(f"resamplings/repeated_cv/{name}.csv", ("set", "iteration", "row_id"))
        if not stored["row_id"].between(1, len(table)).all():
            raise InputError(f"the folds of {name} have a row_id that is not between 1 and its {len(table)} rows.")
        parts = {
            (iteration, part): rows.to_numpy(dtype=np.intp) - 1
            for (iteration, part), rows in stored.groupby(["iteration", "set"])["row_id"]
        }
        iterations = sorted(stored["iteration"].unique())
        x = table.drop(columns=list(OUTCOME))
        for column in x:
            if column in CODED_FACTORS.get(name, ()) or not pd.api.types.is_numeric_dtype(x[column]):
                x[column] = x[column].astype(str).astype("category")
        return Task(
            name,
            x,
            table["time"].to_numpy(dtype=np.float64),
            table["status"].to_numpy() == 1,
            tuple(Fold(int(k), parts[k, "train"], parts[k, "test"]) for k in iterations),
        )

    def scores(self) -> pd.DataFrame:
        """Return the stored scores, a line for each task, learner, iteration and measure that it was tuned for."""
        return self._table("results/production/scores.csv", _SCORE_COLUMNS)

    def _table(self, path: str, columns: Sequence[str]) -> pd.DataFrame:
        try:
            # Read to the last bit: ties between times decide where a curve is read.
            table = pd.read_csv(self.path / path, float_precision="round_trip")
        except FileNotFoundError:
            raise InputError(f"{self.path} has no {path}; {_GIVE}") from None
        missing = [name for name in columns if name not in table]
        if missing:
            raise InputError(f"{path} has no column {', '.join(map(repr, missing))}; its layout is not the study's.")
        return table
