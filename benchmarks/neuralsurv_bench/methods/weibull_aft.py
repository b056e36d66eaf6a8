"""Weibull accelerated failure time model of lifelines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from lifelines import WeibullAFTFitter
from lifelines.exceptions import ConvergenceError

from neuralsurv_bench.methods.coxph import (
    first_to_converge,
    lifelines_frame,
    quiet_lifelines,
    require_events,
    varying_columns,
)
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

FAIR_PENALTY = 0.05
RESCUE_PENALTIES = (1e-3, 1e-2, 1e-1)


@dataclass(frozen=True)
class WeibullCurves:
    """S(t | x) = exp(-(t / scale(x))^shape) with log scale(x) = intercept + x · coefficients.

    Attributes
    ----------
    note : str
        What had to be done to get a fit; empty if nothing.
    """

    intercept: float
    coefficients: Floats
    shape: float
    note: str = ""

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        with np.errstate(divide="ignore"):
            log_time = np.log(times)
        exponent = self.shape * (log_time[None, :] - (self.intercept + x @ self.coefficients)[:, None])
        # e^500 is as certain as infinity and does not overflow.
        survival: Floats = np.exp(-np.exp(np.minimum(exponent, 500.0)))
        return survival

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def _positive_times(rows: Rows) -> Rows:
    """Put rows with time 0, which lifelines refuses, at half the earliest positive time."""
    earliest = rows.time[rows.time > 0].min()
    return Rows(rows.x, np.where(rows.time > 0, rows.time, earliest / 2), rows.event)


def _fit_with_penalty(train: Rows, penalty: float) -> WeibullCurves:
    columns = varying_columns(train.x)
    model = WeibullAFTFitter(penalizer=penalty)
    with quiet_lifelines():
        model.fit(lifelines_frame(_positive_times(train), columns), duration_col="time", event_col="event")
    coefficients = np.zeros(train.x.shape[1])
    coefficients[columns] = [model.params_["lambda_", f"x{column}"] for column in columns]
    fitted = WeibullCurves(
        float(model.params_["lambda_", "Intercept"]), coefficients, float(np.exp(model.params_["rho_", "Intercept"]))
    )
    if not np.isfinite([fitted.intercept, fitted.shape, *coefficients]).all():
        raise ConvergenceError("lifelines returned parameters that are not finite")
    return fitted


def _fit_rescued(train: Rows, asked: float, penalty: float) -> WeibullCurves:
    note = f"did not converge with penalty {asked:g}: penalty {penalty:g} used"
    return replace(_fit_with_penalty(train, penalty), note=note)


def _fit(split: Split, settings: Settings) -> Fitted:
    require_events(split.train, "Weibull AFT")
    asked = 0.0 if settings.variant == "as-published" else FAIR_PENALTY
    stronger = [penalty for penalty in RESCUE_PENALTIES if penalty > asked]
    rescues = [partial(_fit_rescued, split.train, asked, penalty) for penalty in stronger]
    return first_to_converge([partial(_fit_with_penalty, split.train, asked), *rescues])


METHODS = (
    Method(
        name="Weibull AFT",
        family="classical",
        fit=_fit,
        variants={
            "as-published": "lifelines without a penalty; where that does not converge, with the first of 0.001, 0.01, "
            "0.1 that does (said in `note`)",
            "fair": "lifelines with penalty 0.05",
        },
    ),
)
