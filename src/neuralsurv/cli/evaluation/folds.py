"""Folds of a cohort, stratified by event and grouped by subject, and the covariates of a fold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.cli.tables.covariate_checks import is_number, unusable
from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError


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
        raise InputError(f"{folds} folds and {repeats} repeats cannot be run; use at least 2 folds and 1 repeat.")
    people = np.arange(len(outcome)) if subject is None else subject
    if pd.isna(people).any():
        raise InputError(f"the id is missing in {int(pd.isna(people).sum())} rows; fill it in, or leave out --id.")
    for what, count in (
        ("an event", len(pd.unique(people[outcome.event]))),
        ("no event", len(pd.unique(people[~outcome.event]))),
    ):
        # Without any censoring there is nothing to balance.
        if count < folds and not (what == "no event" and count == 0):
            kind = "rows" if subject is None else "subjects"
            raise InputError(
                f"only {count} {kind} have {what}, too few for {folds} folds; use --folds with a smaller number."
            )
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
