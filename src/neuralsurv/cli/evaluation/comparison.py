"""Cross-validated scores of the model beside those of Kaplan–Meier and of a ridge Cox model, and the folds."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import clone

from neuralsurv.cli.evaluation.ridge_cox import fit_ridge_cox
from neuralsurv.cli.start import interrupted
from neuralsurv.cli.tables.covariate_checks import is_number, unusable
from neuralsurv.data.features import Encoding
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError, MissingCodeWarning, NeuralSurvWarning
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.metrics import (
    antolini_concordance,
    censoring_horizon,
    d_calibration,
    integrated_brier_score,
    km_calibration,
    survival_at,
)
from neuralsurv.metrics.kaplan_meier import survival_curve
from neuralsurv.names import counted

NEURALSURV, KAPLAN_MEIER, RIDGE_COX = "NeuralSurv", "Kaplan–Meier", "ridge Cox"
METHODS = (NEURALSURV, RIDGE_COX, KAPLAN_MEIER)
SCORES = ("concordance", "integrated_brier_score", "km_calibration")
# Curves are predicted at the times of the test rows, or at quantiles of them if there are more than this.
_MOST_TIMES = 400
_BRIER_TIMES = 100
Curves = Callable[[pd.DataFrame, Outcome, pd.DataFrame, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Fold:
    """One split."""

    # Which repetition, and which fold of it, from 1.
    repeat: int
    number: int
    train: np.ndarray
    test: np.ndarray


def make_folds(outcome: Outcome, subject: np.ndarray | None, folds: int, repeats: int, seed: int) -> list[Fold]:
    """Split a cohort into folds with about the same share of events each; a subject is never on both sides."""
    from sklearn.model_selection import StratifiedGroupKFold, StratifiedKFold

    if folds < 2 or repeats < 1:
        raise InputError(
            f"{counted(folds, 'fold')} and {counted(repeats, 'repeat')} cannot be run; use at least 2 folds and "
            "1 repeat."
        )
    people = np.arange(len(outcome)) if subject is None else subject
    if pd.isna(people).any():
        gone = counted(int(pd.isna(people).sum()), "row")
        raise InputError(f"the id is missing in {gone}; fill it in, or leave out --id.")
    for what, count in (
        ("an event", len(pd.unique(people[outcome.event]))),
        ("no event", len(pd.unique(people[~outcome.event]))),
    ):
        # Without any censoring there is nothing to balance.
        if count < folds and not (what == "no event" and count == 0):
            few = counted(count, "row" if subject is None else "subject") + (" has" if count == 1 else " have")
            raise InputError(f"only {few} {what}, too few for {folds} folds; use --folds with a smaller number.")
    result = []
    for repeat in range(repeats):
        shuffle = {"n_splits": folds, "shuffle": True, "random_state": seed + repeat}
        cutter = StratifiedKFold(**shuffle) if subject is None else StratifiedGroupKFold(**shuffle)
        groups = None if subject is None else pd.factorize(people)[0]
        parts = cutter.split(np.zeros(len(outcome)), outcome.event, groups)
        for number, (train, test) in enumerate(parts, 1):
            if not outcome.event[test].any() or not outcome.event[train].any():
                raise InputError(
                    f"fold {number} of {folds} has no event, because subjects stay together; use fewer --folds."
                )
            result.append(Fold(repeat + 1, number, train, test))
    return result


def fold_tables(covariates: pd.DataFrame, fold: Fold) -> tuple[pd.DataFrame, pd.DataFrame, dict[str, int]]:
    """Return training and test covariates that a model can be fitted to and score, and what was changed.

    A column that the training rows do not vary in tells nothing and is left out. A category that they do not show, or
    a gap in a column in which they have none, becomes the commonest value (the median of numbers): every method is
    treated alike, and the number of such cells is returned by column.
    """
    train, test = covariates.iloc[fold.train].copy(), covariates.iloc[fold.test].copy()
    changed: dict[str, int] = {}
    for name in list(train.columns):
        if unusable(train[name]) is not None:
            train, test = train.drop(columns=name), test.drop(columns=name)
            continue
        strange = test[name].isna() if not train[name].isna().any() else pd.Series(False, test.index)
        if not is_number(train[name]):
            strange = strange | ~(test[name].isin(train[name].dropna().unique()) | test[name].isna())
        if strange.any():
            common = train[name].median() if is_number(train[name]) else train[name].mode().iloc[0]
            test[name] = (
                test[name].where(~strange, common).astype(np.float64 if is_number(train[name]) else train[name].dtype)
            )
            changed[str(name)] = int(strange.sum())
    if train.shape[1] == 0:
        raise InputError(f"no covariate varies in the training rows of fold {fold.number}; use fewer --folds.")
    return train, test, changed


@dataclass
class Scores:
    """Scores of every method in every fold."""

    # One for each method and fold: repeat, fold, method, rows, events, and the scores (None where not defined)
    folds: list[dict[str, Any]] = field(default_factory=list)
    # For each method the p-value of D-calibration over all rows of the first repeat.
    calibration: dict[str, float] = field(default_factory=dict)
    horizon: float = float("nan")  # where the Brier score ends
    changed: Counter[str] = field(default_factory=Counter)  # cells of test rows that had to be filled in, by column
    warnings: Counter[str] = field(default_factory=Counter)  # warnings of the fits, with how many gave each

    def values(self, method: str, score: str) -> np.ndarray:
        """Return a score of a method in all folds, NaN where it is not defined."""
        found = [fold[score] for fold in self.folds if fold["method"] == method]
        return np.array([np.nan if value is None else value for value in found], dtype=np.float64)


def compare(
    covariates: pd.DataFrame,
    outcome: Outcome,
    folds: list[Fold],
    model: SurvivalEstimator,
    *,
    penalty: float,
    horizon: float | None,
    advance: Callable[[int, str], None],
) -> Scores:
    """Fit a copy of the model and the other methods in all folds, and score them.

    The Brier score ends at `horizon`, by default where it is defined in every fold. `advance` is called with the number
    of finished fits and a few words.
    """
    scores = Scores(horizon=_horizon(outcome, folds, horizon))
    methods: dict[str, Curves] = {
        NEURALSURV: _neuralsurv(model, scores.warnings),
        RIDGE_COX: _ridge_cox(penalty),
        KAPLAN_MEIER: _kaplan_meier,
    }
    pooled: dict[str, list[np.ndarray]] = {name: [] for name in methods}
    done = 0
    for fold in folds:
        train_x, test_x, changed = fold_tables(covariates, fold)
        if fold.repeat == 1:
            scores.changed.update(changed)
        train, test = outcome.select(fold.train), outcome.select(fold.test)
        times = _times(train, test, scores.horizon)
        for name, curves in methods.items():
            survival = np.clip(curves(train_x, train, test_x, times), 0.0, 1.0)
            head = {"repeat": fold.repeat, "fold": fold.number, "method": name}
            counts = {"rows": len(test), "events": int(test.event.sum())}
            scores.folds.append({**head, **counts, **_fold_scores(train, test, survival, times, scores.horizon)})
            if fold.repeat == 1:
                pooled[name].append(_own_survival(test, survival, times))
            done += 1
            advance(done, f"fold {fold.number} of repeat {fold.repeat}, {name}")
    tested = np.concatenate([fold.test for fold in folds if fold.repeat == 1])
    for name in methods:
        found = d_calibration(outcome.event[tested], np.concatenate(pooled[name]), weight=outcome.weight[tested])
        scores.calibration[name] = found.p_value
    return scores


def _horizon(outcome: Outcome, folds: list[Fold], wanted: float | None) -> float:
    if outcome.entry.any():
        return float("nan")
    limits = []
    for fold in folds:
        train, test = outcome.select(fold.train), outcome.select(fold.test)
        limits.append(censoring_horizon(train.time, train.event, train_weight=train.weight))
        # At the last time of a fold all rows may be censored; a fold with an event before it can be scored.
        limits.append(float(test.time.max()) if test.event.any() else 0.0)
    limit = min(limits)
    if wanted is not None and not 0 < wanted <= limit:
        raise InputError(
            f"--horizon {wanted:g} cannot be scored in every fold; give a time above 0 and up to {limit:g}."
        )
    return limit if wanted is None else wanted


def _times(train: Outcome, test: Outcome, horizon: float) -> np.ndarray:
    own = np.unique(np.concatenate([test.time, test.entry[test.entry > 0]]))
    if len(own) > _MOST_TIMES:
        own = own[np.linspace(0, len(own) - 1, _MOST_TIMES).round().astype(int)]
    if np.isnan(horizon):
        return own
    return np.union1d(own, np.linspace(horizon / _BRIER_TIMES, horizon, _BRIER_TIMES))


def _own_survival(test: Outcome, survival: np.ndarray, times: np.ndarray) -> np.ndarray:
    """Return survival of each row up to its own time, given its entry."""
    end = survival_at(test.time, survival, times)
    start = survival_at(test.entry, survival, times)
    return np.asarray(np.divide(end, start, out=np.zeros(len(end)), where=start > 0))


def _fold_scores(
    train: Outcome, test: Outcome, survival: np.ndarray, times: np.ndarray, horizon: float
) -> dict[str, float | None]:
    entry = test.entry if test.entry.any() else None

    def concordance() -> float:
        return antolini_concordance(test.time, test.event, survival, times, entry=entry, weight=test.weight)

    def brier() -> float:
        grid = np.linspace(horizon / _BRIER_TIMES, horizon, _BRIER_TIMES)
        columns = survival[:, np.searchsorted(times, grid)]
        training = {"train_time": train.time, "train_event": train.event, "train_weight": train.weight}
        return integrated_brier_score(test.time, test.event, columns, grid, weight=test.weight, **training)

    def calibration() -> float:
        return km_calibration(test.time, test.event, survival, times, weight=test.weight)

    found: dict[str, float | None] = dict.fromkeys(SCORES)
    # With late entry the horizon is NaN, and only the concordance is defined.
    for name, score in zip(SCORES, (concordance, brier, calibration), strict=True):
        if name == "concordance" or not np.isnan(horizon):
            # A fold may not define a score, for example without a comparable pair; the caller counts these folds.
            with suppress(InputError):
                found[name] = score()
    return found


def _neuralsurv(estimator: SurvivalEstimator, counts: Counter[str]) -> Curves:
    def curves(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", NeuralSurvWarning)
            warnings.simplefilter("ignore", MissingCodeWarning)
            model = clone(estimator).fit(train_x, train)
        if model.diagnostics_.interrupted or interrupted():
            # The estimator keeps what it has when it is interrupted; here the user wants the whole work to end.
            raise KeyboardInterrupt
        # The part before the figures is the same in every fold.
        counts.update({str(item.message).split(":")[0].split(";")[0] for item in caught})
        return np.asarray(model.predict_survival(test_x, times).mean.to_numpy())

    return curves


def _ridge_cox(penalty: float) -> Curves:
    def curves(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
        encoding = Encoding.fit(train_x, train.risk_weight(), events=train.event_weight())
        model = fit_ridge_cox(encoding.transform(train_x), train, penalty)
        return model.survival(encoding.transform(test_x), times)

    return curves


def _kaplan_meier(train_x: pd.DataFrame, train: Outcome, test_x: pd.DataFrame, times: np.ndarray) -> np.ndarray:
    return np.tile(survival_curve(train).after(times), (len(test_x), 1))
