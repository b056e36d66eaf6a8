"""Random survival forest of scikit-survival."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sklearn
from sksurv.ensemble import RandomSurvivalForest
from sksurv.util import Surv

from neuralsurv_bench.methods.coxph import require_events
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Settings, Split
from neuralsurv_bench.methods.kaplan_meier import read_steps

TREES = 1000


@dataclass(frozen=True)
class ForestCurves:
    """The average of the curves of the trees.

    Attributes
    ----------
    interpolate : bool
        Read lines between the training times instead of steps.
    """

    forest: RandomSurvivalForest
    interpolate: bool

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        knots = self.forest.unique_times_
        curves: Floats = self.forest.predict_survival_function(x, return_array=True).clip(0.0, 1.0)
        if not self.interpolate:
            return read_steps(knots, curves, times)
        if knots[0] > 0:
            knots, curves = np.concatenate([[0.0], knots]), np.pad(curves, ((0, 0), (1, 0)), constant_values=1.0)
        return np.stack([np.interp(times, knots, curve) for curve in curves])

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _fit(split: Split, settings: Settings) -> Fitted:
    require_events(split.train, "RSF")
    forest = RandomSurvivalForest(
        TREES, min_samples_split=10, min_samples_leaf=15, n_jobs=1, random_state=settings.seed
    )
    # The arguments are ours and the same for all trees: checking them a thousand times takes a third of the fit.
    with sklearn.config_context(skip_parameter_validation=True, assume_finite=True):
        forest.fit(split.train.x, Surv.from_arrays(split.train.event, split.train.time))
    return ForestCurves(forest, interpolate=settings.variant == "fair")


_SETTINGS = "scikit-survival, 1,000 trees, 10 rows to split, 15 in a leaf"
METHODS = (
    Method(
        name="RSF",
        family="classical",
        fit=_fit,
        variants={
            "as-published": f"{_SETTINGS}; steps between training times",
            "fair": f"{_SETTINGS}; lines between training times",
        },
    ),
)
