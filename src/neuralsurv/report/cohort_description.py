"""The cohort of a report: its Kaplan–Meier curve, the numbers at risk, and its covariates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from scipy.special import ndtri

from neuralsurv.data.columns import Column
from neuralsurv.data.outcome import Outcome
from neuralsurv.metrics.kaplan_meier import censoring_curve, survival_curve
from neuralsurv.report.svg import number, ticks


@dataclass(frozen=True)
class CohortDescription:
    """What was observed."""

    # Counts; `late` of rows that enter late.
    rows: int
    events: int
    late: int
    # Median follow-up by the reverse Kaplan–Meier method; infinite if fewer than half are censored in the end.
    follow_up: float
    half: float  # median event time; infinite if the curve does not fall to one half
    # The Kaplan–Meier curve with its band, from time 0.
    times: np.ndarray
    survival: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    # Numbers at risk at some times.
    risk_times: np.ndarray
    at_risk: np.ndarray


def describe_cohort(outcome: Outcome, level: float) -> CohortDescription:
    """Describe what was observed, with a pointwise band by Greenwood's variance on the scale of log(−log S)."""
    curve = survival_curve(outcome)
    inside = (curve.survival > 0) & (curve.survival < 1)
    survival = np.where(inside, curve.survival, 0.5)
    spread = ndtri((1 + level) / 2) * np.sqrt(curve.greenwood) / np.abs(np.log(survival))
    lower = np.where(inside, survival ** np.exp(spread), 0.0)
    upper = np.where(inside, survival ** np.exp(-spread), np.where(curve.survival >= 1, 1.0, np.nan))
    # After the last row the interval stays as it was.
    upper = pd.Series(upper).ffill().fillna(1.0).to_numpy()
    last = float(outcome.time.max())
    risk_times = np.array(ticks(0.0, last))
    at_risk = [int(((outcome.entry <= t) & (outcome.time > t)).sum()) for t in risk_times]
    return CohortDescription(
        len(outcome),
        int(outcome.event.sum()),
        int((outcome.entry > 0).sum()),
        _half(censoring_curve(outcome).times, censoring_curve(outcome).survival),
        _half(curve.times, curve.survival),
        np.concatenate([[0.0], curve.times, [last]]),
        np.concatenate([[1.0], curve.survival, curve.survival[-1:]]),
        np.concatenate([[1.0], lower, lower[-1:]]),
        np.concatenate([[1.0], upper, upper[-1:]]),
        risk_times,
        np.array(at_risk),
    )


def _half(times: np.ndarray, survival: np.ndarray) -> float:
    under = np.flatnonzero(survival <= 0.5)
    return float(times[under[0]]) if len(under) else float("inf")


def describe_covariates(columns: tuple[Column, ...], frame: pd.DataFrame) -> list[tuple[str, str, str]]:
    """Return a row for each covariate: its name, what it is like, and its gaps."""
    rows = []
    for column in columns:
        values = frame[column.name]
        gaps = int(values.isna().sum())
        if column.kind == "number":
            low, middle, high = (number(float(values.quantile(q))) for q in (0.25, 0.5, 0.75))
            words = f"median {middle}, quartiles {low} to {high}"
        else:
            shares = values.dropna().map(str).value_counts(normalize=True)
            shown = [f"{level} {share:.0%}" for level, share in shares.head(5).items()]
            words = ", ".join(shown) + (", …" if len(shares) > 5 else "")
        rows.append((column.name, words, f"{gaps} ({gaps / len(frame):.0%})" if gaps else "none"))
    return rows
