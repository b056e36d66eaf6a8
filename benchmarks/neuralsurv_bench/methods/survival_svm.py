"""Survival support vector machine of scikit-survival: ranks people, has no survival curves."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sksurv.metrics import concordance_index_censored
from sksurv.svm import FastSurvivalSVM
from sksurv.util import Surv

from neuralsurv_bench.methods.coxph import require_events
from neuralsurv_bench.methods.elastic_net_cox import inner_folds
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

ALPHAS: Floats = np.exp2(np.arange(-12.0, 13.0, 2.0))
FOLDS = 5
# Listing all pairs is several times faster than the trees that avoid it, while they fit in memory.
MOST_ROWS_IN_PAIRS = 300


@dataclass(frozen=True)
class Ranking:
    """A linear score on standardised covariates.

    Attributes
    ----------
    note : str
        The regularisation that was chosen.
    """

    machine: FastSurvivalSVM
    centre: Floats
    spread: Floats
    note: str

    def survival(self, x: Floats, times: Floats) -> None:
        """Return None: there are no curves."""

    def risk(self, x: Floats) -> Floats:
        """Return one score a row, higher is sooner."""
        score: Floats = self.machine.predict((x - self.centre) / self.spread)
        return score


def _machine(x: Floats, rows: Rows, alpha: float, seed: int) -> FastSurvivalSVM:
    optimizer = "simple" if len(rows) <= MOST_ROWS_IN_PAIRS else "avltree"
    machine = FastSurvivalSVM(alpha=alpha, rank_ratio=1.0, max_iter=200, optimizer=optimizer, random_state=seed)
    with warnings.catch_warnings():
        # At the weak end of the grid the optimum is flat; what it reached is judged like any other.
        warnings.filterwarnings("ignore", category=ConvergenceWarning)
        return machine.fit(x, Surv.from_arrays(rows.event, rows.time))


def _concordance(rows: Rows, score: Floats) -> float:
    """Return Harrell's concordance, or 1/2 where no pair can be compared."""
    longest_after_event = rows.time.max() > rows.time[rows.event].min() if rows.event.any() else False
    return float(concordance_index_censored(rows.event, rows.time, score)[0]) if longest_after_event else 0.5


def _in_sample(x: Floats, rows: Rows, seed: int) -> Floats:
    return np.array([_concordance(rows, _machine(x, rows, alpha, seed).predict(x)) for alpha in ALPHAS])


def _left_out(x: Floats, rows: Rows, seed: int) -> Floats:
    """Return the concordance of left-out rows for each alpha, averaged over folds."""
    folds = []
    for kept, left in inner_folds(rows, FOLDS, seed):
        part = Rows(rows.x[kept], rows.time[kept], rows.event[kept])
        rest = Rows(rows.x[left], rows.time[left], rows.event[left])
        folds.append([_concordance(rest, _machine(x[kept], part, alpha, seed).predict(x[left])) for alpha in ALPHAS])
    mean: Floats = np.mean(folds, axis=0)
    return mean


def _fit(split: Split, settings: Settings) -> Fitted:
    train = split.train
    require_events(train, "SSVM")
    centre, spread = train.x.mean(axis=0), train.x.std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    x = (train.x - centre) / spread
    judge = _in_sample if settings.variant == "as-published" else _left_out
    alpha = float(ALPHAS[int(np.argmax(judge(x, train, settings.seed)))])
    return Ranking(_machine(x, train, alpha, settings.seed), centre, spread, f"alpha {alpha:g}")


METHODS = (
    Method(
        name="SSVM",
        family="classical",
        fit=_fit,
        variants={
            "as-published": "scikit-survival, alpha of 2^-12 to 2^12 with the best concordance on the training rows",
            "fair": "scikit-survival, alpha of 2^-12 to 2^12 with the best concordance of five inner folds",
        },
    ),
)
