"""How rows are split into training, validation and test rows, and how covariates are prepared, in each experiment."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import GroupKFold, KFold, train_test_split
from sklearn.preprocessing import StandardScaler

from neuralsurv.errors import InputError
from neuralsurv_bench.cohorts import synthetic as synthetic_cohort
from neuralsurv_bench.cohorts.cohort import Cohort
from neuralsurv_bench.methods.interface import Floats, Rows, Split

FOLDS = 5
_PAPER_SEED = 42
_PAPER_VALIDATION_SHARE = 0.2
# A number that no subsample has.
_FULL_SEED = 1_000_000
# Covariates that the paper standardises, by cohort; the others, categories and counts of few values, are left as they
# are. They come first: the paper's matrices have this order of columns.
_PAPER_STANDARDISED = {
    "COLON": ("age", "nodes"),
    "METABRIC": ("x0", "x1", "x2", "x3", "x8"),
    "GBSG": ("x3", "x4", "x5", "x6"),
    "NWTCO": ("age",),
    "WHAS": ("age", "bmi", "diasbp", "hr", "los", "sysbp"),
    "SUPPORT": ("x0", "x7", "x8", "x9", "x10", "x11", "x12", "x13"),
    "VLC": ("Age_in_years", "Karnofsky_score", "Months_from_Diagnosis"),
    "SAC3": tuple(f"x{k}" for k in range(45)),
}
_SWAPS_LATE_TEST_ROWS = ("VLC",)

Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Synthetic:
    """The synthetic experiment with one size of the training set.

    Attributes
    ----------
    split : Split
        Covariates are as drawn, not standardised, as in the paper.
    truth : callable
        Takes covariates (n, d) and times (T,), returns the true survival probabilities (n, T).
    """

    split: Split
    truth: Callable[[Floats, Floats], Floats]


def paper_splits(cohort: Cohort, rows: int = 125) -> list[Split]:
    """Return the five folds of the paper, with the paper's preparation of covariates.

    A subsample of `rows` rows (``DataFrame.sample(rows, random_state=42)``; all rows in their order if the cohort has
    fewer) is cut by ``KFold(5, shuffle=True, random_state=42)``; of the four parts that are not the test rows,
    ``train_test_split(test_size=0.2, random_state=42)`` makes the validation rows. 125 rows give 80 training, 20
    validation and 25 test rows; 250 give 160, 40 and 50. Patients of COLON, who have two rows each, can be on both
    sides: that is the paper's way, and `repeated_splits` does not follow it.

    Continuous covariates are standardised with mean and standard deviation of the training rows and come first;
    categories and counts of few values (GBSG's size class, NWTCO's stage, SUPPORT's number of illnesses, race and
    so on) are left as they are and come last.

    On VLC, and only there, test rows that are not before the last training time are swapped: each changes places with
    a training row before the last training time, drawn by ``sample(random_state=42)``. Both come last in their new
    place. With 125 rows this concerns two test rows of the second fold. It looks at outcomes and makes the test rows
    easier; without it the C-index of ridge Cox is 0.702 instead of the published 0.697, and its IBS 0.109 instead of
    0.125. In the other cohorts such rows stay test rows.

    Parameters
    ----------
    cohort : Cohort
        One of the paper's eight.
    rows : int
        Rows of the subsample: 125, or 250 in the ablation.
    """
    if cohort.name not in _PAPER_STANDARDISED:
        raise InputError(
            f"the paper has no cohort {cohort.name!r}, so it is not known which of its {cohort.frame.shape[1]} "
            f"covariates to standardise; take one of {', '.join(_PAPER_STANDARDISED)}, or repeated_splits."
        )
    everything = pd.Series(np.arange(len(cohort)))
    chosen = everything if rows > len(cohort) else everything.sample(rows, random_state=_PAPER_SEED)
    sample: Indices = chosen.to_numpy()
    standardised = _PAPER_STANDARDISED[cohort.name]
    left = [name for name in cohort.frame if name not in standardised]
    splits = []
    for learn, test in KFold(FOLDS, shuffle=True, random_state=_PAPER_SEED).split(sample):
        train, validation = train_test_split(sample[learn], test_size=_PAPER_VALIDATION_SHARE, random_state=_PAPER_SEED)
        scored = sample[test]
        if cohort.name in _SWAPS_LATE_TEST_ROWS:
            train, scored = _swapped_late_test_rows(cohort.time, train, scored)
        splits.append(_prepared(cohort, (train, validation, scored), standardised, left))
    return splits


def repeated_splits(cohort: Cohort, subsample: int, rows: int = 125) -> list[Split]:
    """Return five folds of another subsample, without validation rows and with all covariates standardised.

    The subsample is drawn by a generator seeded with the cohort's name and `subsample`, never the one of the paper.
    A row censored at time 0 (METABRIC has one) says nothing, is refused by several methods, and is never drawn. Every
    covariate is standardised with mean and standard deviation of the training rows; one that is constant there is only
    centred. Where rows belong to patients, all rows of a patient are in one fold.

    Parameters
    ----------
    cohort : Cohort
        Any cohort.
    subsample : int
        Number of the subsample, from 0.
    rows : int
        Rows of the subsample; 125 give 100 training and 25 test rows in each fold.
    """
    observed = np.flatnonzero(cohort.time > 0)
    if rows > len(observed):
        raise InputError(
            f"{cohort.name} has {len(observed)} rows that are observed for some time; a subsample of {rows} cannot be "
            "drawn, ask for fewer."
        )
    if subsample < 0:
        raise InputError(f"subsample={subsample} is not the number of a subsample; they are numbered from 0.")
    generator = np.random.default_rng([zlib.crc32(cohort.name.encode()), subsample])
    sample = generator.choice(observed, rows, replace=False)
    if cohort.group is None:
        folds = KFold(FOLDS).split(sample)
    else:
        # GroupKFold fills its folds in an order that depends on the labels of the groups: random labels, random folds.
        _, patient = np.unique(cohort.group[sample], return_inverse=True)
        folds = GroupKFold(FOLDS).split(sample, groups=generator.permutation(patient.max() + 1)[patient])
    names = list(cohort.frame)
    nobody = np.empty(0, dtype=np.intp)
    return [_prepared(cohort, (sample[train], nobody, sample[test]), names, []) for train, test in folds]


def full_splits(cohort: Cohort) -> list[Split]:
    """Return five folds of all rows, shuffled, without validation rows and with all covariates standardised.

    Rows censored at time 0 are left out, and rows of a patient stay together, as in `repeated_splits`.
    """
    return repeated_splits(cohort, _FULL_SEED, rows=int((cohort.time > 0).sum()))


def synthetic(n: int) -> Synthetic:
    """Return the paper's synthetic experiment: n training, 100 validation and 100 test rows, and the true survival.

    The rows are the paper's own, drawn again from its seed. Validation and test rows are the same for every n. With
    50 training rows the last test time (88.6) is after the last training time (85.3).

    Parameters
    ----------
    n : {25, 50, 100, 150}
        Training rows.
    """
    train, validation, test = (Rows(part.frame.to_numpy(), part.time, part.event) for part in synthetic_cohort.parts(n))
    return Synthetic(Split(train, validation, test, synthetic_cohort.COLUMNS), synthetic_cohort.true_survival)


def _swapped_late_test_rows(time: Floats, train: Indices, test: Indices) -> tuple[Indices, Indices]:
    last = time[train].max()
    late = time[test] >= last
    early = pd.Series(train[time[train] < last])
    given: Indices = early.sample(int(late.sum()), random_state=_PAPER_SEED).to_numpy()
    kept = train[~np.isin(train, given)]
    return np.concatenate([kept, test[late]]), np.concatenate([test[~late], given])


def _prepared(
    cohort: Cohort, parts: tuple[Indices, Indices, Indices], standardised: Sequence[str], left: Sequence[str]
) -> Split:
    to_scale, as_is = cohort.frame[list(standardised)].to_numpy(), cohort.frame[list(left)].to_numpy()
    scaler = StandardScaler().fit(to_scale[parts[0]])

    def rows(index: Indices) -> Rows:
        scaled = scaler.transform(to_scale[index]) if len(index) else to_scale[index]
        return Rows(np.hstack([scaled, as_is[index]]), cohort.time[index], cohort.event[index])

    train, validation, test = map(rows, parts)
    return Split(train, validation, test, (*standardised, *left))
