"""The fits whose repeatability is measured, what is compared of them, and the ways to get the same prediction."""

from __future__ import annotations

import pickle
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

ROWS = 60
_SIZES = {"default, 1,500 rows": (1500, 9), "paper, 300 rows": (300, 3)}
# Seeds of the cohorts. On other machines some cases are compared on all of them, for one may end well by luck.
COHORTS = (5, 11, 12, 15, 17)
SEVERAL = ("default", "paper", "paper, tanh")
TIMES = (2.0, 10.0, 25.0, 60.0)
_QUIET = {"draws": 200, "verbose": False, "random_state": 7}
# What is left of a model when all but numbers is taken away: mean, lower and upper ends of the bands, last ELBO.
Numbers = dict[str, np.ndarray]


def people(case: str, cohort: int = COHORTS[0]) -> Any:
    """Return a cohort that is fitted."""
    from neuralsurv.data.simulate import lognormal_cohort

    rows, noise = _SIZES.get(case, (ROWS, 3))
    return lognormal_cohort(rows, noise=noise, seed=cohort)


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
    from neuralsurv import NeuralSurv, OwnNetwork, PaperNeuralSurv

    make: dict[str, Callable[[], Any]] = {
        "default": lambda: NeuralSurv(**_QUIET),
        "default, 1,500 rows": lambda: NeuralSurv(**_QUIET, hidden=(16,)),
        "paper": lambda: PaperNeuralSurv(**_QUIET, hidden=(16,)),
        "paper, tanh": lambda: PaperNeuralSurv(**_QUIET, hidden=(16,), activation="tanh"),
        "paper, 300 rows": lambda: PaperNeuralSurv(**_QUIET),
        "gibbs": lambda: PaperNeuralSurv(**_QUIET, hidden=(4,)),
        "own network": lambda: NeuralSurv(**_QUIET, network=OwnNetwork(_module(), epochs=5)),
        "stream": lambda: NeuralSurv(**_QUIET, hidden=(8,)),
    }
    return make[case]()


CASES = (
    *("default", "default, 1,500 rows", "paper", "paper, tanh", "paper, 300 rows"),
    *("gibbs", "own network", "stream"),
)


def fit(case: str, *, shuffled: bool = False, cohort: int = COHORTS[0], **changes: Any) -> Any:
    """Fit a case, its rows in another order if asked, some of its settings changed."""
    of = people(case, cohort)
    order = np.random.default_rng(0).permutation(len(of.x)) if shuffled else np.arange(len(of.x))
    x, time, event = of.x.iloc[order], of.time[order], of.event[order]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = estimator(case).set_params(**changes)
        if case == "stream":
            table = x.assign(years=time, died=event)
            return model.fit_stream([table[:25], table[25:]], time="years", event="died", training_passes=3)
        if case == "gibbs":
            return model.fit_exact(x, (time, event), chains=2, warmup=50, thin=1)
        return model.fit(x, (time, event))


def asked(case: str) -> pd.DataFrame:
    """Return the people who are predicted."""
    x: pd.DataFrame = people(case).x.head(40)
    return x


def on_all_cohorts(case: str) -> Numbers:
    """Fit a case to all cohorts that it is compared on but the first, and return their numbers together."""
    seeds = COHORTS[1:] if case in SEVERAL else ()
    return together([numbers_of(fit(case, cohort=seed), asked(case)) for seed in seeds])


def together(found: Sequence[Numbers]) -> Numbers:
    """Return the numbers of several models as one."""
    if not found:
        return {}
    return {
        "mean": np.concatenate([part["mean"] for part in found]),
        "bands": np.concatenate([part["bands"] for part in found], axis=1),
        "elbo": np.concatenate([part["elbo"] for part in found]),
    }


def numbers_of(model: Any, x: pd.DataFrame) -> Numbers:
    """Return what is compared."""
    curves = model.predict_survival(x, TIMES)
    lower, upper = curves.interval(0.9)
    bands = np.stack([lower.to_numpy(), upper.to_numpy()])
    return {"mean": curves.mean.to_numpy(), "bands": bands, "elbo": np.array([float(model.elbo_[-1])])}


def _in_parts(model: Any, x: pd.DataFrame, size: int) -> Numbers:
    found = [numbers_of(model, x.iloc[first : first + size]) for first in range(0, len(x), size)]
    return together(found) | {"elbo": found[0]["elbo"]}


def _backwards(model: Any, x: pd.DataFrame) -> Numbers:
    found = numbers_of(model, x[::-1])
    return {"mean": found["mean"][::-1], "bands": found["bands"][:, ::-1], "elbo": found["elbo"]}


def _reopened(model: Any, x: pd.DataFrame) -> Numbers:
    from neuralsurv import load

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        model.save(path)
        return numbers_of(load(path, network=getattr(model, "network", None)), x)


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
