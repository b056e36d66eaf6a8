"""Cox's model: with the paper's ridge penalty and without any, and the parts that other Cox-like methods share."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import numpy as np
import pandas as pd
from lifelines import CoxPHFitter
from lifelines.exceptions import ApproximationWarning, ConvergenceError, ConvergenceWarning
from numpy.typing import NDArray

from neuralsurv.errors import InputError
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Rows, Settings, Split

PAPER_PENALTY = 0.1
# Without a penalty the likelihood may have no maximum at 80 rows. Then the first of these that converges is taken.
RESCUE_PENALTIES = (1e-3, 1e-2, 1e-1)
# lifelines' Newton steps start at 0.95 of their length and may overshoot a maximum that shorter ones find.
FIRST_STEPS = (0.95, 0.3, 0.1)

Model = TypeVar("Model")


def read_cumulative_hazard(knots: Floats, values: Floats, times: Floats) -> Floats:
    """Return a cumulative baseline hazard at `times`: 0 at time 0, linear between knots, constant after the last one.

    The published step function is the same at the knots. Between them a line is what lifelines itself reads, and a
    smooth truth lies nearer to it than to the stairs.
    """
    if knots[0] > 0:
        knots, values = np.concatenate([[0.0], knots]), np.concatenate([[0.0], values])
    return np.interp(times, knots, values)


@dataclass(frozen=True)
class ProportionalHazards:
    """S(t | x) = exp(-H(t) exp((x - centre) · coefficients)).

    Attributes
    ----------
    coefficients, centre : ndarray of shape (d,)
        Log hazard ratios per unit of each covariate, and the covariates for which H is the cumulative hazard.
    knots, cumulative_hazard : ndarray of shape (k,)
        The baseline H at the training times.
    starts_at_one : bool
        Whether S is 1 at time 0. lifelines keeps the value of the first training time before that time.
    note : str
        What had to be done to get a fit; empty if nothing.
    """

    coefficients: Floats
    centre: Floats
    knots: Floats
    cumulative_hazard: Floats
    starts_at_one: bool = True
    note: str = ""

    def survival(self, x: Floats, times: Floats) -> Floats:
        """Return S(t | x), shape (len(x), len(times))."""
        if self.starts_at_one:
            baseline = read_cumulative_hazard(self.knots, self.cumulative_hazard, times)
        else:
            baseline = np.interp(times, self.knots, self.cumulative_hazard)
        # A hazard ratio beyond e^500 means certain death at once; the cut only avoids an overflow.
        ratio = np.exp(np.minimum((x - self.centre) @ self.coefficients, 500.0))
        survival: Floats = np.exp(-np.outer(ratio, baseline))
        return survival

    def risk(self, x: Floats) -> None:
        """Return None: there are curves."""


def partial_log_likelihood(time: Floats, event: NDArray[np.bool_], score: Floats) -> Floats:
    """Return Cox's partial log-likelihood (Breslow's rule for ties).

    Parameters
    ----------
    time, event : ndarray of shape (n,)
        Outcome of each row.
    score : ndarray of shape (n, m)
        Log hazard ratios of the rows under m models.

    Returns
    -------
    ndarray of shape (m,)
    """
    latest_first = np.argsort(-time, kind="stable")
    time, event, score = time[latest_first], event[latest_first], score[latest_first]
    at_risk = np.logaddexp.accumulate(score, axis=0)
    last_of_tie = np.searchsorted(-time, -time, side="right") - 1
    total: Floats = (score - at_risk[last_of_tie])[event].sum(axis=0)
    return total


def require_events(rows: Rows, method: str) -> None:
    """Refuse training rows without any event."""
    if not rows.event.any():
        raise InputError(
            f"{method} cannot be fitted: none of the {len(rows)} training rows has an event; draw other training rows."
        )


def varying_columns(x: Floats) -> NDArray[np.intp]:
    """Return the numbers of the columns that are not constant; a constant one says nothing about a hazard ratio."""
    return np.flatnonzero(np.ptp(x, axis=0) > 1e-12)


def lifelines_frame(rows: Rows, columns: NDArray[np.intp]) -> pd.DataFrame:
    """Return rows as lifelines reads them: columns x0, x1, ..., time and event."""
    frame = pd.DataFrame({f"x{column}": rows.x[:, column] for column in columns})
    return frame.assign(time=rows.time, event=rows.event)


@contextmanager
def quiet_lifelines() -> Iterator[list[warnings.WarningMessage]]:
    """Collect the warnings of a lifelines fit instead of printing them; pass on what is not about the fit."""
    with warnings.catch_warnings(record=True) as collected:
        warnings.simplefilter("always")
        yield collected
    for warning in collected:
        if not issubclass(warning.category, (ConvergenceWarning, ApproximationWarning, RuntimeWarning)):
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)


def first_to_converge(fits: Sequence[Callable[[], Model]]) -> Model:
    """Return the result of the first of `fits` that does not raise a ConvergenceError; the last may raise it."""
    for fit in fits[:-1]:
        try:
            return fit()
        except ConvergenceError:
            continue
    return fits[-1]()


def _lifelines_fit(frame: pd.DataFrame, penalty: float, first_step: float) -> CoxPHFitter:
    """Fit by lifelines.

    Raises
    ------
    ConvergenceError
        If there is no maximum to be found, by lifelines' own error or by its warning that the steps did not settle.
    """
    model = CoxPHFitter(penalizer=penalty)
    with quiet_lifelines() as collected:
        model.fit(frame, duration_col="time", event_col="event", fit_options={"step_size": first_step})
    if any("Newton-Raphson" in str(warning.message) for warning in collected):
        raise ConvergenceError("lifelines' steps did not settle")
    if not np.isfinite(model.params_).all():
        raise ConvergenceError("lifelines returned coefficients that are not finite")
    return model


def _fit_with_penalty(train: Rows, penalty: float, *, starts_at_one: bool) -> ProportionalHazards:
    columns = varying_columns(train.x)
    frame = lifelines_frame(train, columns)
    model = first_to_converge([partial(_lifelines_fit, frame, penalty, step) for step in FIRST_STEPS])
    coefficients = np.zeros(train.x.shape[1])
    coefficients[columns] = model.params_.to_numpy(float)
    baseline = model.baseline_cumulative_hazard_["baseline cumulative hazard"]
    return ProportionalHazards(
        coefficients,
        train.x.mean(axis=0),
        baseline.index.to_numpy(float),
        baseline.to_numpy(float),
        starts_at_one=starts_at_one,
    )


def _fit_rescued(train: Rows, penalty: float) -> ProportionalHazards:
    note = f"did not converge without a penalty: ridge penalty {penalty:g} used"
    return replace(_fit_with_penalty(train, penalty, starts_at_one=True), note=note)


def _fit_ridge(split: Split, settings: Settings) -> Fitted:
    require_events(split.train, "CoxPH")
    return _fit_with_penalty(split.train, PAPER_PENALTY, starts_at_one=settings.variant == "fair")


def _fit_unpenalised(split: Split, settings: Settings) -> Fitted:
    require_events(split.train, "CoxPH unpenalised")
    bare = partial(_fit_with_penalty, split.train, 0.0, starts_at_one=True)
    return first_to_converge([bare, *(partial(_fit_rescued, split.train, penalty) for penalty in RESCUE_PENALTIES)])


METHODS = (
    Method(
        name="CoxPH",
        family="classical",
        fit=_fit_ridge,
        variants={
            "as-published": "lifelines with ridge penalty 0.1, curves as it reads them: before the first training time "
            "they keep the value of that time",
            "fair": "lifelines with ridge penalty 0.1, S = 1 at time 0",
        },
    ),
    Method(
        name="CoxPH unpenalised",
        family="classical",
        fit=_fit_unpenalised,
        variants={
            "fair": "lifelines without a penalty; where that does not converge, with the first of 0.001, 0.01, 0.1 "
            "that does (said in `note`)"
        },
    ),
)
