"""Warnings of a report, in plain words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import Outcome
from neuralsurv.estimator.neuralsurv import NeuralSurv
from neuralsurv.report.accuracy import Accuracy
from neuralsurv.report.svg import number

_FEW_EVENTS_PER_COLUMN = 10
_MANY_GAPS = 0.3


def same_as_training(model: NeuralSurv, outcome: Outcome) -> bool:
    """Return whether the rows look like those that the model was fitted to: as many, as many events, one last time."""
    there = outcome.weight > 0
    facts = (int(there.sum()), int(outcome.event[there].sum()), float(outcome.time[there].max()))
    return facts == (int(model.training_["rows"]), int(model.training_["events"]), float(model.time_scale_))


def caveats(model: NeuralSurv, outcome: Outcome, frame: pd.DataFrame, accuracy: Accuracy, horizon: float) -> list[str]:
    """Return what a reader should know before trusting the report, the gravest first.

    Parameters
    ----------
    model : NeuralSurv
        The fitted model.
    outcome, frame
        The rows of the report.
    accuracy : Accuracy
        Scores on them.
    horizon : float
        Horizon of the restricted means.
    """
    return [
        *_about_the_fit(model),
        *_about_the_rows(model, outcome, frame, horizon),
        *_about_the_scores(accuracy),
    ]


def _about_the_fit(model: NeuralSurv) -> list[str]:
    found: Any = model.diagnostics_
    said = []
    if getattr(found, "collapsed", False):
        said.append(
            "The model has given up on the covariates: it predicts nearly the same curve for everybody. Do not read "
            "differences between people from it; fit it again with another seed or a smaller network."
        )
    if getattr(found, "interrupted", False):
        said.append("The fit was interrupted before it was finished; its results are provisional.")
    elif not found.converged:
        said.append("The fit had not settled when it reached its limit of steps; its results are provisional.")
    # What the fit itself said, where the sentences above do not cover it.
    covered = ("collapse", "interrupted", "sweeps")
    said += [f"The fit reports: {concern.text}" for concern in found.concerns if concern.kind not in covered]
    return said


def _about_the_rows(model: NeuralSurv, outcome: Outcome, frame: pd.DataFrame, horizon: float) -> list[str]:
    said = []
    same = same_as_training(model, outcome)
    if same:
        said.append(
            "These look like the very rows that the model was fitted to, so every score below is too favourable. Use "
            "other rows, or “neuralsurv evaluate”, to judge the model."
        )
    events, columns = int(model.training_["events"]), len(model.encoding_.outputs)
    if events < _FEW_EVENTS_PER_COLUMN * columns:
        said.append(
            f"The model was fitted to {events} events with {columns} encoded covariates, fewer than ten for each; "
            "effects of single covariates are uncertain, and their intervals lean on the prior."
        )
    if int(outcome.event.sum()) < 30:
        said.append(
            f"These rows have only {int(outcome.event.sum())} events: scores and calibration are rough figures."
        )
    if horizon > model.time_scale_:
        said.append(
            f"The horizon {number(horizon)} lies beyond {number(model.time_scale_)}, the last time that the model has "
            "seen: what it says of later times is a guess."
        )
    late = float((outcome.time > model.time_scale_).mean())
    if late > 0:
        said.append(
            f"{late:.0%} of these rows are watched beyond {number(model.time_scale_)}, the last time that the model "
            "has seen; its curves are extrapolated there."
        )
    for column in model.encoding_.columns:
        share = float(frame[column.name].isna().mean())
        if share > _MANY_GAPS:
            said.append(
                f"{column.name} is missing in {share:.0%} of the rows. Predictions for them are spread over the values "
                "that it has in training, which is right only if new rows have gaps for the same reasons."
            )
        if column.kind == "number" and not same:
            outside = _outside_training(model, column.name, frame[column.name])
            if outside > 0:
                said.append(
                    f"{column.name} is more than four standard deviations away from the training mean in {outside} of "
                    "these rows; predictions for them are extrapolated."
                )
    return said


def _outside_training(model: NeuralSurv, name: str, values: pd.Series) -> int:
    place = model.encoding_.outputs.index(name)
    center, scale = float(model.encoding_.center[place]), float(model.encoding_.scale[place])
    distance = np.abs(values.to_numpy(dtype=np.float64, na_value=np.nan) - center) / scale
    return int((distance > 4).sum())


def _about_the_scores(accuracy: Accuracy) -> list[str]:
    said = []
    if accuracy.concordance is not None and accuracy.concordance < 0.55:
        said.append(
            f"The concordance index is {accuracy.concordance:.2f}: the model hardly tells who has the event sooner."
        )
    if accuracy.distribution.p_value < 0.05:
        said.append(
            f"D-calibration is rejected (p = {accuracy.distribution.p_value:.3f}): predicted probabilities do not come "
            "true as often as they say. Look at the histogram below."
        )
    off = [groups for groups in accuracy.groups if groups.p_value is not None and groups.p_value < 0.01]
    if off:
        times = ", ".join(number(groups.time) for groups in off)
        said.append(f"Predicted and observed survival differ by more than chance at time {times}.")
    if accuracy.late:
        said.append(
            "Some rows come under observation late. Discrimination over time, the Brier score and KM-calibration are "
            "not defined for them and are left out."
        )
    return said
