"""The effect of each covariate on the restricted mean survival time, with its interval from joint draws."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.columns import Column
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.report.svg import number

_MOST_LEVELS = 5


@dataclass(frozen=True)
class Effect:
    """The effect of a change of one covariate, averaged over people."""

    column: str
    change: str  # from what to what
    # Change of the restricted mean survival time, in the user's unit.
    median: float
    lower: float
    upper: float


def covariate_effects(model: SurvivalEstimator, people: pd.DataFrame, horizon: float, level: float) -> list[Effect]:
    """Return the effects on the restricted mean up to `horizon`, the largest first.

    A number goes from its lower to its upper quartile among the people; a category from the commonest level to each of
    the next commonest. Everything else about a person stays as it is.
    """
    found = []
    for column in model.encoding_.columns:
        values = _values(people[column.name], column)
        if len(values) < 2:
            continue
        means = {value: _average(model, people, column, value, horizon) for value in values}
        base, shown = values[0], number if column.kind == "number" else str
        for value in values[1:]:
            gap = means[value] - means[base]
            low, middle, high = np.quantile(gap, [(1 - level) / 2, 0.5, (1 + level) / 2])
            found.append(Effect(column.name, f"{shown(base)} → {shown(value)}", float(middle), float(low), float(high)))
    return sorted(found, key=lambda effect: -abs(effect.median))


def _values(column: pd.Series, described: Column) -> list[Any]:
    """Return the value to start from, and those to go to."""
    present = column.dropna()
    if described.kind == "category":
        common = present.map(str).value_counts().index.tolist()
        return [level for level in common if level in described.levels][: _MOST_LEVELS + 1]
    numbers = present.to_numpy(dtype=np.float64)
    for low, high in ((0.25, 0.75), (0.05, 0.95), (0.0, 1.0)):
        ends = np.quantile(numbers, [low, high], method="nearest") if len(numbers) else np.zeros(2)
        if ends[1] > ends[0]:
            return [float(ends[0]), float(ends[1])]
    return []


def _average(model: SurvivalEstimator, people: pd.DataFrame, column: Column, value: Any, horizon: float) -> np.ndarray:
    """Return the mean over people of each draw of the restricted mean, with the column set to a value."""
    changed = people.copy()
    if column.kind == "category" and pd.api.types.is_bool_dtype(people[column.name].dtype):
        changed[column.name] = value == "True"
    else:
        changed[column.name] = pd.Series([value] * len(people), people.index)
    prediction = model.predict_rmst(changed, horizon)
    total = sum(block.sum(axis=1) for block in prediction.blocks())
    return np.asarray(total / len(people)).reshape(-1)
