"""A small cohort, and an estimator that fits it in a third of a second, to convergence and without a warning."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv import NeuralSurv, PaperNeuralSurv


@dataclass(frozen=True)
class SmallCohort:
    """People whose hazard rises with age and not with dose; times in years."""

    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray

    @property
    def y(self) -> np.ndarray:
        """The structured array of scikit-survival, which scikit-learn can also cut into folds."""
        return np.array(list(zip(self.event, self.time, strict=True)), dtype=[("event", bool), ("time", float)])

    def frame(self) -> pd.DataFrame:
        """Return covariates and outcome in one table."""
        return self.x.assign(years=self.time, died=self.event)


def small_cohort(n: int = 40, seed: int = 3) -> SmallCohort:
    """Return n people."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(n, 2))
    death, leave = rng.exponential(np.exp(-1.5 * noise[:, 0])), rng.exponential(2.0, size=n)
    x = pd.DataFrame({"age": 60 + 10 * noise[:, 0], "dose": 0.1 * noise[:, 1]})
    return SmallCohort(x, np.minimum(death, leave), death <= leave)


def quick_model(**parameters: Any) -> PaperNeuralSurv:
    """Return an estimator of the paper's method with small settings, some of them replaced."""
    settings: dict[str, Any] = {
        "hidden": (4,),
        "activation": "tanh",
        "quadrature": "gauss-legendre",
        "quadrature_points": 16,
        "starts": 1,
        # To the end: two searches of one problem then stop at the same place, not on the way to it.
        "mode_tolerance": 1e-14,
        "draws": 40,
        "verbose": False,
        "random_state": 0,
    }
    return PaperNeuralSurv(**settings | parameters)


def quick_default(**parameters: Any) -> NeuralSurv:
    """Return an estimator of the default model with a small network, some of its parameters replaced."""
    settings: dict[str, Any] = {"hidden": (4,), "draws": 40, "verbose": False, "random_state": 0}
    return NeuralSurv(**settings | parameters)
