"""Accuracy of the predictions on the rows of a report: calibration, discrimination, Brier score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.metrics import (
    DCalibration,
    antolini_concordance,
    brier_score,
    censoring_horizon,
    d_calibration,
    km_calibration,
    one_calibration,
    survival_at,
)
from neuralsurv.metrics.kaplan_meier import censoring_curve, kaplan_meier, survival_curve

_RESAMPLES = 200
_FEWEST_IN_GROUP = 8
_Score = TypeVar("_Score")


@dataclass(frozen=True)
class Groups:
    """Predicted and observed survival at one time, in groups of similar predictions."""

    time: float
    table: pd.DataFrame  # of each group: mean prediction, Kaplan–Meier estimate with its 90 % interval, rows
    p_value: float | None  # of the test that they agree; None where it is not defined
    tested: int  # groups of that test: as many as define it


@dataclass(frozen=True)
class Accuracy:
    """All scores; None where a score is not defined for the cohort."""

    concordance: float | None  # Antolini's index
    distribution: DCalibration
    distance: float | None  # KM-calibration, the mean squared distance of the mean curve to Kaplan–Meier
    groups: tuple[Groups, ...]  # calibration at chosen times
    # The area under the time-dependent ROC curve by time, with a 90 % interval from resampled rows.
    discrimination: pd.DataFrame | None
    brier: pd.DataFrame | None  # the Brier score by time, of the model and of Kaplan–Meier (reference)
    late: bool  # whether rows enter late, for which some scores are not defined


def measure(outcome: Outcome, survival: np.ndarray, times: np.ndarray, chosen: np.ndarray) -> Accuracy:
    """Score mean predicted survival, shape (n, T), on a grid from 0 to the last observed time or further."""
    late = bool(outcome.entry.any())
    own = survival_at(outcome.time, survival, times) / np.maximum(survival_at(outcome.entry, survival, times), 1e-12)
    curves = (outcome.time, outcome.event, survival, times)
    entry = {"entry": outcome.entry} if late else {}
    return Accuracy(
        concordance=_defined(antolini_concordance, *curves, weight=outcome.weight, **entry),
        distribution=d_calibration(outcome.event, np.minimum(own, 1.0), weight=outcome.weight),
        distance=None if late else _defined(km_calibration, *curves, weight=outcome.weight),
        groups=tuple(_groups(outcome, _at(survival, times, t), t) for t in chosen),
        discrimination=None if late else _auc_over_time(outcome, survival, times),
        brier=None if late else _defined(_brier, outcome, survival, times),
        late=late,
    )


def _defined(score: Callable[..., _Score], *arguments: Any, **more: Any) -> _Score | None:
    """Return a score, or None if the rows do not define it."""
    try:
        return score(*arguments, **more)
    except InputError:
        return None


def _at(survival: np.ndarray, times: np.ndarray, time: float) -> np.ndarray:
    """Return survival of each row at one time."""
    return survival_at(np.full(len(survival), time), survival, times)


def _groups(outcome: Outcome, predicted: np.ndarray, time: float) -> Groups:
    count = int(min(10, max(2, len(outcome) // _FEWEST_IN_GROUP)))
    order = np.argsort(predicted, kind="stable")
    parts = [rows for rows in np.array_split(order, count) if len(rows)]
    # A group of which no row is followed that long, without all having had the event, cannot be compared.
    parts = [rows for rows in parts if _known(outcome.select(rows), time)]
    test, tested = None, count
    # A group in which none or all have had the event has no variance; fewer and larger groups may have one.
    while test is None and tested >= 2 and not outcome.entry.any():
        test = _defined(one_calibration, outcome.time, outcome.event, predicted, time, bins=tested)
        tested -= test is None
    found = [
        (np.average(predicted[rows], weights=outcome.weight[rows]), *_observed(outcome.select(rows), time), len(rows))
        for rows in parts
    ]
    table = pd.DataFrame(found, columns=["predicted", "observed", "lower", "upper", "size"])
    return Groups(time, table, None if test is None else test.p_value, tested)


def _known(outcome: Outcome, time: float) -> bool:
    curve = survival_curve(outcome)
    return curve.last >= time or float(curve.after(time)) == 0


def _observed(outcome: Outcome, time: float) -> tuple[float, float, float]:
    """Return the Kaplan–Meier estimate with a 90 % interval.

    Greenwood's variance is 0 where the estimate is exactly 0 or 1. There the interval is the exact binomial one, of all
    rows or of those still at risk.
    """
    estimate, low, high = kaplan_meier(outcome, time)
    if estimate == 1:
        at_risk = int((outcome.time >= time).sum())
        return 1.0, 0.05 ** (1 / max(1, at_risk)), 1.0
    return (0.0, 0.0, 1 - 0.05 ** (1 / len(outcome))) if estimate == 0 else (estimate, low, high)


def dynamic_auc(risk: np.ndarray, case: np.ndarray, control: np.ndarray) -> np.ndarray:
    """Return the area under the ROC curve for weighted cases and controls; NaN without either.

    A higher risk, shape (n,), means the event sooner; B sets of weights of shape (B, n) are 0 for a row that is not a
    case or control.
    """
    order = np.argsort(risk, kind="stable")
    ranked = risk[order]
    below, upto = np.searchsorted(ranked, ranked, "left"), np.searchsorted(ranked, ranked, "right")
    sums = np.concatenate([np.zeros((len(control), 1)), np.cumsum(control[:, order], axis=1)], axis=1)
    won = (case[:, order] * (sums[:, below] + sums[:, upto]) / 2).sum(axis=1)
    pairs = case.sum(axis=1) * control.sum(axis=1)
    return np.asarray(np.divide(won, pairs, out=np.full(len(case), np.nan), where=pairs > 0))


def _auc_over_time(outcome: Outcome, survival: np.ndarray, times: np.ndarray) -> pd.DataFrame | None:
    """Return the area under the cumulative/dynamic ROC curve, with inverse probability of censoring weights."""
    events = outcome.time[outcome.event & (outcome.weight > 0)]
    if len(events) < 5:
        return None
    grid = np.unique(np.quantile(events, np.linspace(0.1, 0.9, 17)))
    censoring = censoring_curve(outcome)
    weight = 1.0 / np.where(outcome.event, censoring.before(outcome.time), 1.0)
    rng = np.random.default_rng(0)
    copies = rng.multinomial(len(outcome), np.full(len(outcome), 1 / len(outcome)), size=_RESAMPLES)
    counts = np.concatenate([np.ones((1, len(outcome))), copies]) * outcome.weight
    rows = []
    for t in grid:
        risk = 1 - _at(survival, times, t)
        case = counts * np.where(outcome.event & (outcome.time <= t), weight, 0.0)
        area = dynamic_auc(risk, case, counts * (outcome.time > t))
        spread = area[1:][~np.isnan(area[1:])]
        ends = np.quantile(spread, [0.05, 0.95]) if len(spread) else (np.nan, np.nan)
        rows.append((area[0], *ends))
    table = pd.DataFrame(rows, index=grid, columns=["value", "lower", "upper"]).dropna()
    return table if len(table) else None


def _brier(outcome: Outcome, survival: np.ndarray, times: np.ndarray) -> pd.DataFrame:
    end = min(censoring_horizon(outcome.time, outcome.event, train_weight=outcome.weight), float(times[-1]))
    grid = np.linspace(end / 40, end * 0.98, 40)
    curves = {
        "model": np.stack([_at(survival, times, t) for t in grid], axis=1),
        "reference": np.tile(survival_curve(outcome).after(grid), (len(outcome), 1)),
    }
    training = {"train_time": outcome.time, "train_event": outcome.event, "train_weight": outcome.weight}
    scores = {
        name: brier_score(outcome.time, outcome.event, table, grid, weight=outcome.weight, **training)
        for name, table in curves.items()
    }
    return pd.DataFrame(scores, index=grid)
