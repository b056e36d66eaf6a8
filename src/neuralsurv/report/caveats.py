"""Caveats of a report: what a reader should know before trusting it, in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import Outcome
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.names import counted
from neuralsurv.report.accuracy import Accuracy
from neuralsurv.report.svg import number

_FEW_EVENTS_PER_COLUMN = 10
_MANY_GAPS = 0.3
_LIKELY = 0.5


def same_as_training(model: SurvivalEstimator, outcome: Outcome) -> bool:
    """Return whether the rows look like the training rows: equal numbers of rows and events, and the same last time."""
    there = outcome.weight > 0
    facts = (int(there.sum()), int(outcome.event[there].sum()), float(outcome.time[there].max()))
    return facts == (int(model.training_["rows"]), int(model.training_["events"]), float(model.time_scale_))


def caveats(
    model: SurvivalEstimator, outcome: Outcome, frame: pd.DataFrame, accuracy: Accuracy, horizon: float
) -> list[str]:
    """Return what a reader should know before trusting the report, the most serious first."""
    return [*_about_the_fit(model), *_about_the_rows(model, outcome, frame, horizon), *_about_the_scores(accuracy)]


def _about_the_fit(model: SurvivalEstimator) -> list[str]:
    diagnostics: Any = model.diagnostics_
    found = []
    if getattr(diagnostics, "collapsed", False):
        found.append(
            "The model ignores the covariates: it predicts nearly the same curve for every person. Fit it again with "
            "another seed or a smaller network before comparing people."
        )
    if getattr(diagnostics, "interrupted", False):
        found.append("The fit was interrupted before it was finished; its results are provisional.")
    elif not diagnostics.converged:
        found.append("The fit reached its limit of steps before it converged; its results are provisional.")
    if diagnostics.null_share >= _LIKELY:
        found.append(
            f"The rows favour a model in which no covariate matters (its probability is {diagnostics.null_share:.2f}): "
            "people are told apart by little more than noise, and their curves are drawn together."
        )
    # What the fit itself reports, where the sentences above do not cover it.
    covered = ("collapse", "interrupted", "sweeps")
    found += [f"The fit reports: {concern.text}" for concern in diagnostics.concerns if concern.kind not in covered]
    return found


def _about_the_rows(model: SurvivalEstimator, outcome: Outcome, frame: pd.DataFrame, horizon: float) -> list[str]:
    found = []
    same = same_as_training(model, outcome)
    if same:
        found.append(
            "These look like the rows that the model was fitted to, so every score below is optimistic. Use other "
            "rows, or “neuralsurv evaluate”, to judge the model."
        )
    events, columns = int(model.training_["events"]), len(model.encoding_.outputs)
    if events < _FEW_EVENTS_PER_COLUMN * columns:
        found.append(
            f"The model was fitted to {counted(events, 'event')} with {counted(columns, 'encoded covariate')}, fewer "
            "than ten for each; effects of individual covariates are uncertain, and their intervals depend on the "
            "prior."
        )
    if int(outcome.event.sum()) < 30:
        here = counted(int(outcome.event.sum()), "event")
        found.append(f"These rows have only {here}: scores and calibration are rough figures.")
    if horizon > model.time_scale_:
        found.append(
            f"The horizon {number(horizon)} lies beyond {number(model.time_scale_)}, the last time that the model has "
            "seen; later predictions are extrapolated."
        )
    late = float((outcome.time > model.time_scale_).mean())
    if late > 0:
        found.append(
            f"{late:.0%} of these rows are followed beyond {number(model.time_scale_)}, the last time that the model "
            "has seen; its curves are extrapolated there."
        )
    for column in model.encoding_.columns:
        share = float(frame[column.name].isna().mean())
        if share > _MANY_GAPS:
            found.append(
                f"{column.name} is missing in {share:.0%} of the rows. Predictions for them are spread over the values "
                "that it has in training, which is right only if new rows have gaps for the same reasons."
            )
        if column.kind == "number" and not same:
            outside = _outside_training(model, column.name, frame[column.name])
            if outside > 0:
                found.append(
                    f"{column.name} is more than four standard deviations away from the training mean in {outside} of "
                    "these rows; predictions for them are extrapolated."
                )
    return found


def _outside_training(model: SurvivalEstimator, name: str, values: pd.Series) -> int:
    place = model.encoding_.outputs.index(name)
    center, scale = float(model.encoding_.center[place]), float(model.encoding_.scale[place])
    distance = np.abs(values.to_numpy(dtype=np.float64, na_value=np.nan) - center) / scale
    return int((distance > 4).sum())


def _about_the_scores(accuracy: Accuracy) -> list[str]:
    found = []
    if accuracy.concordance is not None and accuracy.concordance < 0.55:
        found.append(
            f"The concordance index is {accuracy.concordance:.2f}: the model hardly ranks people better than chance."
        )
    if accuracy.distribution.p_value < 0.05:
        found.append(
            f"D-calibration is rejected (p = {accuracy.distribution.p_value:.3f}): predicted probabilities do not "
            "match observed frequencies. See the histogram under Calibration."
        )
    off = [groups for groups in accuracy.groups if groups.p_value is not None and groups.p_value < 0.01]
    if off:
        times = ", ".join(number(groups.time) for groups in off)
        found.append(f"Predicted and observed survival differ by more than chance at time {times}.")
    if accuracy.late:
        found.append(
            "Some rows enter late. Discrimination over time, the Brier score and KM-calibration are not defined for "
            "them and are left out."
        )
    return found
