"""Gradient-boosted trees on Cox's partial likelihood, depth and number of trees by cross-validation."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import sklearn
from sksurv.ensemble import GradientBoostingSurvivalAnalysis
from sksurv.linear_model.coxph import BreslowEstimator
from sksurv.util import Surv

from neuralsurv_bench.methods.coxph import partial_log_likelihood, read_cumulative_hazard, require_events
from neuralsurv_bench.methods.elastic_net_cox import inner_folds
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

FOLDS = 5
DEPTHS = (1, 2, 3)
MOST_TREES = 100
RATE = 0.05


@dataclass(frozen=True)
class BoostedHazards:
    """S(t | x) = exp(-H(t) exp(score(x))).

    Attributes
    ----------
    note : str
        Depth and number of trees that were chosen.
    """

    trees: GradientBoostingSurvivalAnalysis
    knots: Floats
    cumulative_hazard: Floats
    note: str

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        baseline = read_cumulative_hazard(self.knots, self.cumulative_hazard, times)
        survival: Floats = np.exp(-np.outer(np.exp(self.trees.predict(x)), baseline))
        return survival

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _boost(rows: Rows, depth: int, trees: int, seed: int) -> GradientBoostingSurvivalAnalysis:
    model = GradientBoostingSurvivalAnalysis(
        n_estimators=trees,
        learning_rate=RATE,
        max_depth=depth,
        subsample=0.7,
        min_samples_leaf=5,
        random_state=seed,
    )
    return model.fit(rows.x, Surv.from_arrays(rows.event, rows.time))


def _left_out_likelihood(rows: Rows, depth: int, seed: int) -> Floats:
    """Return what left-out rows add to the partial log-likelihood, after each number of trees from 1."""
    total = np.zeros(MOST_TREES)
    for kept, _ in inner_folds(rows, FOLDS, seed):
        part = Rows(rows.x[kept], rows.time[kept], rows.event[kept])
        score = np.stack(list(_boost(part, depth, MOST_TREES, seed).staged_predict(rows.x)), axis=1)
        total += partial_log_likelihood(rows.time, rows.event, score)
        total -= partial_log_likelihood(part.time, part.event, score[kept])
    return total


def _fit(split: Split, settings: Settings) -> Fitted:
    train = split.train
    require_events(train, "gradient boosting")
    best, depth, trees = -math.inf, DEPTHS[0], 1
    # The arguments are ours and the same for all trees: checking them for each takes a third of the fit.
    with sklearn.config_context(skip_parameter_validation=True, assume_finite=True):
        for candidate in DEPTHS:
            likelihood = _left_out_likelihood(train, candidate, settings.seed)
            if likelihood.max() > best:
                best, depth, trees = float(likelihood.max()), candidate, int(np.argmax(likelihood)) + 1
        model = _boost(train, depth, trees, settings.seed)
    baseline = BreslowEstimator().fit(model.predict(train.x), train.event, train.time).cum_baseline_hazard_
    return BoostedHazards(model, baseline.x, baseline.y, f"{trees} trees of depth {depth}")


METHODS = (
    Method(
        name="gradient boosting",
        family="classical",
        fit=_fit,
        variants={
            "fair": "scikit-survival on Cox's loss, rate 0.05, 70 % of the rows a tree, 1 to 100 trees of depth 1 to 3 "
            "by the partial likelihood of five inner folds; Breslow's baseline"
        },
    ),
)
