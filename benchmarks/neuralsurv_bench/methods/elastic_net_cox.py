"""Cox's model with an elastic-net or ridge penalty, its strength chosen by cross-validation of the training rows."""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import StratifiedKFold
from sksurv.linear_model import CoxnetSurvivalAnalysis
from sksurv.linear_model.coxph import BreslowEstimator
from sksurv.util import Surv

from neuralsurv_bench.methods.coxph import (
    ProportionalHazards,
    partial_log_likelihood,
    require_events,
    varying_columns,
)
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

FOLDS = 10
# One partition into folds is a noisy judge at 100 rows: five of them are averaged.
REPEATS = 5
# The lasso-like share of the penalty. scikit-survival wants it above 0, so "ridge" is a share that changes nothing.
RIDGE_SHARE = 1e-8
ELASTIC_NET_SHARES = (0.1, 0.5, 0.9)
# Penalties on standardised covariates, strongest first: from a model in which nobody differs to one without a penalty.
RIDGE_PENALTIES: Floats = np.geomspace(30.0, 1e-3, 28)
# For the elastic net the strongest penalty is the smallest one that sets all coefficients to 0; the weakest is this
# part of it.
WEAKEST_PART = 0.01
ELASTIC_NET_STEPS = 25


def inner_folds(rows: Rows, folds: int, seed: int) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return (kept, left out) row numbers of cross-validation within `rows`, events and censored rows spread evenly.

    There are fewer folds where there are fewer events than folds, so that every kept part has an event.
    """
    folds = max(2, min(folds, int(rows.event.sum()), int((~rows.event).sum()) or folds))
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    with warnings.catch_warnings():
        # One event or one censored row alone cannot be spread over two folds; the folds are still folds.
        warnings.filterwarnings("ignore", message="The least populated class", category=UserWarning)
        return list(splitter.split(rows.x, rows.event))


def coefficient_path(x: Floats, rows: Rows, share: float, penalties: Floats) -> Floats:
    """Return coefficients for each penalty, shape (d, len(penalties)).

    Where scikit-survival's path fails, it does at the weak end: that end is given up, step by step, and is NaN. Where
    it ends early because a weaker penalty changes nothing any more, its last coefficients stand for the rest.
    """
    outcome = Surv.from_arrays(rows.event, rows.time)
    path = np.full((x.shape[1], len(penalties)), np.nan)
    for reached in range(len(penalties), 0, -1):
        model = CoxnetSurvivalAnalysis(alphas=penalties[:reached], l1_ratio=share, normalize=False, tol=1e-7)
        try:
            with warnings.catch_warnings():
                # The strongest penalty is there because it sets all coefficients to 0.
                warnings.filterwarnings("ignore", message="all coefficients are zero", category=UserWarning)
                warnings.filterwarnings("ignore", category=ConvergenceWarning)
                model.fit(x, outcome)
        except ArithmeticError:
            continue
        found = model.coef_.shape[1]
        path[:, :found] = model.coef_
        path[:, found:reached] = model.coef_[:, -1:]
        break
    return path


def strongest_penalty(x: Floats, rows: Rows, share: float) -> float:
    """Return the smallest penalty that sets all coefficients to 0: the largest slope at 0, over the share."""
    latest_first = np.argsort(-rows.time, kind="stable")
    x, time, event = x[latest_first], rows.time[latest_first], rows.event[latest_first]
    last_of_tie = np.searchsorted(-time, -time, side="right") - 1
    mean_at_risk = np.cumsum(x, axis=0)[last_of_tie] / (last_of_tie + 1)[:, None]
    slope = (x - mean_at_risk)[event].sum(axis=0) / len(x)
    return float(np.abs(slope).max()) / share


def cross_validated_likelihood(x: Floats, rows: Rows, share: float, penalties: Floats, seed: int) -> Floats:
    """Return what left-out rows add to the partial log-likelihood, for each penalty (Verweij and van Houwelingen 1993).

    The term of a fold is the likelihood of all rows less that of the kept ones, both at the coefficients of the kept
    ones: left-out rows are judged in the risk sets of everybody, which a fold of ten rows alone would not offer. The
    sum over folds is averaged over `REPEATS` partitions.
    """
    total = np.zeros(len(penalties))
    partition_seeds = np.random.default_rng(seed).integers(2**31, size=REPEATS)
    for kept in [kept for partition in partition_seeds for kept, _ in inner_folds(rows, FOLDS, int(partition))]:
        part = Rows(rows.x[kept], rows.time[kept], rows.event[kept])
        score = x @ coefficient_path(x[kept], part, share, penalties)
        total += partial_log_likelihood(rows.time, rows.event, score) / REPEATS
        total -= partial_log_likelihood(part.time, part.event, score[kept]) / REPEATS
    return np.where(np.isfinite(total), total, -np.inf)


@dataclass(frozen=True)
class _Candidate:
    """The best penalty at one share, with its coefficients on standardised covariates."""

    likelihood: float
    share: float
    penalty: float
    coefficients: Floats


def _best_penalty(x: Floats, rows: Rows, share: float, penalties: Floats, seed: int) -> _Candidate:
    likelihood = cross_validated_likelihood(x, rows, share, penalties, seed)
    path = coefficient_path(x, rows, share, penalties)
    likelihood = np.where(np.isfinite(path).all(axis=0), likelihood, -np.inf)
    best = int(np.argmax(likelihood))
    return _Candidate(float(likelihood[best]), share, float(penalties[best]), np.nan_to_num(path[:, best]))


def _fit(split: Split, settings: Settings, shares: tuple[float, ...], name: str) -> Fitted:
    train = split.train
    require_events(train, name)
    columns = varying_columns(train.x)
    centre, spread = train.x.mean(axis=0), train.x.std(axis=0)
    x = (train.x[:, columns] - centre[columns]) / spread[columns]
    candidates = []
    for share in shares:
        penalties = RIDGE_PENALTIES
        if share != RIDGE_SHARE:
            penalties = strongest_penalty(x, train, share) * np.geomspace(1.0, WEAKEST_PART, ELASTIC_NET_STEPS)
        candidates.append(_best_penalty(x, train, share, penalties, settings.seed))
    best = max(candidates, key=lambda candidate: candidate.likelihood)
    baseline = BreslowEstimator().fit(x @ best.coefficients, train.event, train.time).cum_baseline_hazard_
    coefficients = np.zeros(train.x.shape[1])
    coefficients[columns] = best.coefficients / spread[columns]
    if np.isfinite(best.likelihood):
        note = f"penalty {best.penalty:.3g}, lasso-like share {best.share:.1g}"
    else:
        note = "no path of coefficients converged: covariates are not used"
    return ProportionalHazards(coefficients, centre, baseline.x, baseline.y, note=note)


def _fit_elastic_net(split: Split, settings: Settings) -> Fitted:
    return _fit(split, settings, ELASTIC_NET_SHARES, "elastic-net Cox")


def _fit_ridge(split: Split, settings: Settings) -> Fitted:
    return _fit(split, settings, (RIDGE_SHARE,), "ridge Cox CV")


METHODS = (
    Method(
        name="elastic-net Cox",
        family="classical",
        fit=_fit_elastic_net,
        variants={
            "fair": "scikit-survival's path, lasso-like share 0.1, 0.5 or 0.9 and penalty by the partial likelihood "
            "of five times ten inner folds; Breslow's baseline"
        },
    ),
    Method(
        name="ridge Cox CV",
        family="classical",
        fit=_fit_ridge,
        variants={"fair": "ridge penalty by the partial likelihood of five times ten inner folds; Breslow's baseline"},
    ),
)
