"""Six small cohorts, each hard in its own way, with the people and the times whose survival is compared."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.simulate import lognormal_cohort

ROWS = 60
# One hidden layer of eight units on time and two covariates: 41 weights.
HIDDEN = (8,)
CURVE_TIMES = 25


@dataclass(frozen=True)
class GoldProblem:
    """A cohort, and what is asked of it.

    Attributes
    ----------
    name, story : str
        What it is called, and what is hard about it.
    x : DataFrame of shape (N, 2)
        Covariates.
    time, event, entry : ndarray of shape (N,)
        The outcome.
    people : DataFrame of shape (4, 2)
        Whose survival is compared.
    options : dict
        Parameters of the estimator besides the preset.
    """

    name: str
    story: str
    x: pd.DataFrame
    time: np.ndarray
    event: np.ndarray
    entry: np.ndarray
    people: pd.DataFrame
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def times(self) -> np.ndarray:
        """Where whole distributions are compared: quartiles of the observed times."""
        return np.quantile(self.time, [0.25, 0.5, 0.75])

    @property
    def curve_times(self) -> np.ndarray:
        """Where mean curves are compared."""
        return np.linspace(0, self.time.max(), CURVE_TIMES + 1)[1:]


def _normal_covariates(rng: np.random.Generator) -> pd.DataFrame:
    return pd.DataFrame(rng.standard_normal((ROWS, 2)), columns=["a", "b"])


PEOPLE = pd.DataFrame({"a": [-1.0, 1.0, 0.0, 0.0], "b": [0.0, 0.0, -1.0, 1.0]})


def _proportional(
    name: str,
    story: str,
    effects: tuple[float, float],
    censoring: float,
    *,
    seed: int,
    shape: float = 1.0,
    late: float = 0.0,
    **options: Any,
) -> GoldProblem:
    """Simulate Weibull times with proportional hazards; `late` is the mean of an exponential entry time."""
    rng = np.random.default_rng(seed)
    rows: list[pd.DataFrame] = []
    kept = {"time": [], "event": [], "entry": []}  # type: dict[str, list[np.ndarray]]
    while sum(map(len, rows)) < ROWS:
        x = _normal_covariates(rng)
        died = (rng.exponential(size=ROWS) * np.exp(-x.to_numpy() @ effects)) ** (1 / shape)
        left = rng.exponential(1 / censoring, ROWS)
        entry = rng.exponential(late, ROWS) if late else np.zeros(ROWS)
        # Who has died or left before the entry is never seen: that is what truncation means.
        seen = np.minimum(died, left) > entry
        rows.append(x[seen])
        for key, values in (("time", np.minimum(died, left)), ("event", died <= left), ("entry", entry)):
            kept[key].append(values[seen])
    table = pd.concat(rows, ignore_index=True).head(ROWS)
    columns = {key: np.concatenate(parts)[:ROWS] for key, parts in kept.items()}
    return GoldProblem(name, story, table, columns["time"], columns["event"], columns["entry"], PEOPLE, options)


def strong_signal() -> GoldProblem:
    """Two strong effects, hardly any censoring."""
    return _proportional("strong signal", "log hazard ratios 1.5 and −1, few censored", (1.5, -1.0), 0.1, seed=1)


def no_signal() -> GoldProblem:
    """Exponential times that no covariate changes."""
    return _proportional("no signal", "exponential times, no effects", (0.0, 0.0), 0.25, seed=2)


def heavy_censoring() -> GoldProblem:
    """Four of five rows are censored."""
    return _proportional("heavy censoring", "log hazard ratio 1, most rows censored", (1.0, 0.0), 5.0, seed=3)


def crossing_hazards() -> GoldProblem:
    """The log-normal cohort of the paper: the hazards of the two groups cross."""
    cohort = lognormal_cohort(ROWS, noise=1, seed=4)
    people = pd.DataFrame({"group": [0.0, 1.0, 0.0, 1.0], "noise1": [-1.0, -1.0, 1.0, 1.0]})
    story = "the paper's two log-normal groups"
    return GoldProblem("crossing hazards", story, cohort.x, cohort.time, cohort.event, np.zeros(ROWS), people)


def rho_not_one() -> GoldProblem:
    """Weibull times, and a baseline that rises with time."""
    story = "Weibull times of shape 2; `paper` is fitted with rho = 2"
    return _proportional("rho = 2", story, (0.8, 0.0), 0.4, seed=5, shape=2.0, rho=2.0)


def truncation() -> GoldProblem:
    """People are seen only from a random entry on."""
    return _proportional("truncation", "late entry, log hazard ratio 0.8", (0.8, 0.0), 0.3, seed=6, late=0.4)


PROBLEMS: dict[str, Callable[[], GoldProblem]] = {
    "strong-signal": strong_signal,
    "no-signal": no_signal,
    "heavy-censoring": heavy_censoring,
    "crossing-hazards": crossing_hazards,
    "rho": rho_not_one,
    "truncation": truncation,
}
