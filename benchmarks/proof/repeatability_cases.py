"""The fits whose repeatability is measured, what is compared of them, and the ways to get the same prediction."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS = 60
TIMES = (2.0, 10.0, 25.0, 60.0)
_QUIET = {"draws": 200, "verbose": False, "random_state": 7}
# What is left of a model when all but numbers is taken away: mean, lower and upper ends of the bands, last ELBO.
Numbers = dict[str, np.ndarray]


def people(rows: int = ROWS, noise: int = 3) -> Any:
    """Return the cohort that is fitted."""
    from neuralsurv.data.simulate import lognormal_cohort

    return lognormal_cohort(rows, noise=noise, seed=5)


def _module() -> Any:
    import torch
    from torch import nn

    class Perceptron(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, t: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            out: torch.Tensor = self.layers(torch.cat([t[:, None], x], 1))
            return out

    with torch.random.fork_rng():
        torch.manual_seed(3)
        return Perceptron()


def estimator(case: str) -> Any:
    """Return the estimator of a case, not fitted."""
    from neuralsurv import NeuralSurv

    settings: dict[str, dict[str, Any]] = {
        "default": {},
        "default, 1,500 rows": {"hidden": (16,)},
        "paper": {"preset": "paper", "quadrature_points": 60},
        "gibbs": {"preset": "paper", "hidden": (4,), "inference": "gibbs", "chains": 2, "warmup": 50, "thin": 1},
        "own network": {"network": _module() if case == "own network" else None, "epochs": 5},
        "stream": {"hidden": (8,)},
    }
    return NeuralSurv(**_QUIET, **settings[case])


CASES = ("default", "default, 1,500 rows", "paper", "gibbs", "own network", "stream")


def fit(case: str, order: np.ndarray | None = None, **changes: Any) -> Any:
    """Fit a case, its rows in another order where one is given, some of its settings changed."""
    cohort = people(*((1500, 9) if "rows" in case else (ROWS, 3)))
    order = np.arange(len(cohort.x)) if order is None else order
    x, time, event = cohort.x.iloc[order], cohort.time[order], cohort.event[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case == "stream":
            table = x.assign(years=time, died=event)
            parts = [table[:25], table[25:]]
            return (
                estimator(case).set_params(**changes).fit_stream(parts, time="years", event="died", training_passes=3)
            )
        return estimator(case).set_params(**changes).fit(x, (time, event))


def asked(case: str) -> pd.DataFrame:
    """Return the people who are predicted."""
    x: pd.DataFrame = people(*((1500, 9) if "rows" in case else (ROWS, 3))).x.head(40)
    return x


def numbers_of(model: Any, x: pd.DataFrame) -> Numbers:
    """Return what is compared."""
    curves = model.predict_survival(x, TIMES)
    lower, upper = curves.interval(0.9)
    bands = np.stack([lower.to_numpy(), upper.to_numpy()])
    return {"mean": curves.mean.to_numpy(), "bands": bands, "elbo": np.array([float(model.elbo_[-1])])}


def _in_parts(model: Any, x: pd.DataFrame, size: int) -> Numbers:
    found = [numbers_of(model, x.iloc[first : first + size]) for first in range(0, len(x), size)]
    return {
        "mean": np.concatenate([part["mean"] for part in found]),
        "bands": np.concatenate([part["bands"] for part in found], axis=1),
        "elbo": found[0]["elbo"],
    }


def _backwards(model: Any, x: pd.DataFrame) -> Numbers:
    found = numbers_of(model, x[::-1])
    return {"mean": found["mean"][::-1], "bands": found["bands"][:, ::-1], "elbo": found["elbo"]}


def _reopened(model: Any, x: pd.DataFrame) -> Numbers:
    from neuralsurv import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        return numbers_of(load(path, network=model.network), x)


# Ways to ask a fitted model that should all give the same answer.
ASKING: dict[str, Callable[[Any, pd.DataFrame], Numbers]] = {
    "asked again": numbers_of,
    "people one by one": lambda model, x: _in_parts(model, x, 1),
    "people in sevens": lambda model, x: _in_parts(model, x, 7),
    "people backwards": _backwards,
    "saved and loaded": _reopened,
}


def pickled(model: Any, x: pd.DataFrame) -> Numbers:
    """Return the numbers of a model that went through pickle; a network must then be importable."""
    return numbers_of(pickle.loads(pickle.dumps(model)), x)


def difference(one: Numbers, other: Numbers) -> dict[str, float]:
    """Return the largest difference of each quantity."""
    return {name: float(np.max(np.abs(one[name] - other[name]))) for name in one}
