"""Accuracy of the predictions on the rows of a report: calibration, discrimination, Brier score."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import numpy as np

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
    # shape (G,): mean prediction; Kaplan–Meier estimate and its 90 % interval.
    predicted: np.ndarray
    observed: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    size: np.ndarray  # rows in each group, shape (G,)
    p_value: float | None  # of the test that they agree; None where it is not defined
    tested: int  # groups of that test: as many as define it


@dataclass(frozen=True)
class OverTime:
    """A score at several times, with a 90 % interval from resampled rows where there is one."""

    times: np.ndarray
    value: np.ndarray
    lower: np.ndarray
    upper: np.ndarray


@dataclass(frozen=True)
class Accuracy:
    """All scores; None where a score is not defined for the cohort."""

    concordance: float | None  # Antolini's index
    distribution: DCalibration
    distance: float | None  # KM-calibration, the mean squared distance of the mean curve to Kaplan–Meier
    groups: tuple[Groups, ...]  # calibration at chosen times
    discrimination: OverTime | None  # the area under the time-dependent ROC curve
    # The Brier score of the model, and of Kaplan–Meier.
    brier: OverTime | None
    brier_reference: OverTime | None
    late: bool  # whether rows enter late, for which some scores are not defined


def measure(outcome: Outcome, survival: np.ndarray, times: np.ndarray, chosen: np.ndarray, seed: int = 0) -> Accuracy:
    """Score mean predicted survival, shape (n, T), on a grid from 0 to the last observed time or further."""
    late = bool(outcome.entry.any())
    entry = outcome.entry if late else None
    own = survival_at(outcome.time, survival, times) / np.maximum(survival_at(outcome.entry, survival, times), 1e-12)
    model, reference = (None, None) if late else _brier(outcome, survival, times)

    def concordance() -> float:
        return antolini_concordance(outcome.time, outcome.event, survival, times, entry=entry, weight=outcome.weight)

    def distance() -> float:
        return km_calibration(outcome.time, outcome.event, survival, times, weight=outcome.weight)

    return Accuracy(
        concordance=_defined(concordance),
        distribution=d_calibration(outcome.event, np.minimum(own, 1.0), weight=outcome.weight),
        distance=None if late else _defined(distance),
        groups=tuple(_groups(outcome, survival_at(np.full(len(outcome), t), survival, times), t) for t in chosen),
        discrimination=None if late else _auc_over_time(outcome, survival, times, seed),
        brier=model,
        brier_reference=reference,
        late=late,
    )


def _defined(score: Callable[[], _Score]) -> _Score | None:
    """Return a score, or None if the rows do not define it."""
    try:
        return score()
    except InputError:
        return None


def _groups(outcome: Outcome, predicted: np.ndarray, time: float) -> Groups:
    count = int(min(10, max(2, len(outcome) // _FEWEST_IN_GROUP)))
    order = np.argsort(predicted, kind="stable")
    parts = [rows for rows in np.array_split(order, count) if len(rows)]
    # A group of which no row is followed that long, without all having had the event, cannot be compared.
    parts = [rows for rows in parts if _known(outcome.select(rows), time)]
    columns = np.array([_observed(outcome.select(rows), time) for rows in parts]).reshape(-1, 3)
    test, tested = None, count
    # A group in which none or all have had the event has no variance; fewer and larger groups may have one.
    while test is None and tested >= 2 and not outcome.entry.any():
        test = _defined(partial(_agreement, outcome, predicted, time, tested))
        tested -= test is None
    means = np.array([float(np.average(predicted[rows], weights=outcome.weight[rows])) for rows in parts])
    sizes = np.array([len(rows) for rows in parts], dtype=int)
    return Groups(time, means, columns[:, 0], columns[:, 1], columns[:, 2], sizes, test, tested)


def _agreement(outcome: Outcome, predicted: np.ndarray, time: float, groups: int) -> float:
    return one_calibration(outcome.time, outcome.event, predicted, time, bins=groups).p_value


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


def _auc_over_time(outcome: Outcome, survival: np.ndarray, times: np.ndarray, seed: int) -> OverTime | None:
    """Return the area under the cumulative/dynamic ROC curve, with inverse probability of censoring weights."""
    events = outcome.time[outcome.event & (outcome.weight > 0)]
    if len(events) < 5:
        return None
    grid = np.unique(np.quantile(events, np.linspace(0.1, 0.9, 17)))
    censoring = censoring_curve(outcome)
    weight = 1.0 / np.where(outcome.event, censoring.before(outcome.time), 1.0)
    rng = np.random.default_rng(seed)
    copies = rng.multinomial(len(outcome), np.full(len(outcome), 1 / len(outcome)), size=_RESAMPLES)
    counts = np.concatenate([np.ones((1, len(outcome))), copies]) * outcome.weight
    rows = []
    for t in grid:
        risk = 1 - survival_at(np.full(len(outcome), t), survival, times)
        case = counts * np.where(outcome.event & (outcome.time <= t), weight, 0.0)
        area = dynamic_auc(risk, case, counts * (outcome.time > t))
        spread = area[1:][~np.isnan(area[1:])]
        ends = np.quantile(spread, [0.05, 0.95]) if len(spread) else (np.nan, np.nan)
        rows.append((area[0], *ends))
    table = np.array(rows)
    there = ~np.isnan(table).any(axis=1)
    return OverTime(grid[there], *table[there].T) if there.any() else None


def _brier(outcome: Outcome, survival: np.ndarray, times: np.ndarray) -> tuple[OverTime | None, OverTime | None]:
    end = min(censoring_horizon(outcome.time, outcome.event, train_weight=outcome.weight), float(times[-1]))
    grid = np.linspace(end / 40, end * 0.98, 40)
    curves = np.stack([survival_at(np.full(len(outcome), t), survival, times) for t in grid], axis=1)
    flat = np.tile(survival_curve(outcome).after(grid), (len(outcome), 1))

    def score(table: np.ndarray) -> OverTime:
        value = brier_score(
            outcome.time, outcome.event, table, grid, train_time=outcome.time, train_event=outcome.event,
            weight=outcome.weight, train_weight=outcome.weight,
        )  # fmt: skip
        return OverTime(grid, value, value, value)

    return _defined(lambda: score(curves)), _defined(lambda: score(flat))
