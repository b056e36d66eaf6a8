"""The contents of a report, computed from a model and a cohort."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass

import numpy as np
import pandas as pd

from neuralsurv.data.outcome import Outcome
from neuralsurv.errors import InputError
from neuralsurv.estimator.base import SurvivalEstimator
from neuralsurv.report.accuracy import Accuracy, measure
from neuralsurv.report.caveats import caveats
from neuralsurv.report.cohort_description import CohortDescription, describe_cohort, describe_covariates
from neuralsurv.report.effects import Effect, covariate_effects
from neuralsurv.report.individuals import (
    LeastCertain,
    ShownPeople,
    check_people,
    choose_people,
    find_least_certain,
    show_people,
)

_TIMES = 101
_MOST_AVERAGED = 40
_MOST_DRAWS = 300


@dataclass(frozen=True)
class ReportOptions:
    """Options of a report."""

    title: str = "Survival model report"
    times: tuple[float, ...] = ()  # times for calibration in groups; three quartiles of the event times if empty
    # Horizon of restricted means and of the curves; by default where a tenth of the rows is still followed.
    horizon: float | None = None
    level: float = 0.9  # of intervals and bands
    people: tuple[int, ...] = ()  # rows whose curves are drawn
    most_rows: int = 1000  # more rows than this are thinned at random for everything that is predicted
    seed: int = 0  # of what is random in the report


@dataclass(frozen=True)
class Report:
    """Everything that a page shows, as numbers and words."""

    options: ReportOptions
    horizon: float
    cohort: CohortDescription
    covariates: list[tuple[str, str, str]]
    scored: int
    times: np.ndarray
    mean: np.ndarray
    summary: tuple[tuple[str, str, str], ...]
    elbo: np.ndarray
    last_training: float
    shown: ShownPeople
    accuracy: Accuracy
    effects: list[Effect]
    averaged: int
    least_certain: LeastCertain
    warnings: list[str]


def build(
    model: SurvivalEstimator,
    frame: pd.DataFrame,
    outcome: Outcome,
    labels: list[str],
    options: ReportOptions,
    advance: Callable[[int, str], None],
) -> Report:
    """Compute the contents of a report on rows that are called `labels`.

    `advance` is called with the number of finished steps, of five, and a few words.
    """
    if not 0 < options.level < 1:
        raise InputError(f"level={options.level!r} must lie strictly between 0 and 1; use 0.9 for a 90 % interval.")
    if not outcome.event.any():
        raise InputError(f"none of the {len(outcome)} rows has an event; there is nothing to compare the model with.")
    check_people(options.people, len(frame))
    horizon = _horizon(outcome, options.horizon)
    chosen = _chosen_times(outcome, options.times)
    rng = np.random.default_rng(options.seed)
    kept = _thinned(len(frame), options.most_rows, rng, options.people)
    people, seen, names = frame.iloc[kept], outcome.select(kept), [labels[k] for k in kept]
    last = float(max(horizon, outcome.time.max(), *chosen))
    times = np.unique(np.concatenate([np.linspace(0, last, _TIMES), [horizon]]))
    curves = model.predict_survival(people, times)
    lower, upper = (end.to_numpy() for end in curves.interval(options.level))
    survival = curves.mean.to_numpy()
    advance(1, "curves")
    restricted = model.predict_rmst(people, horizon)
    ends = restricted.interval(options.level)
    mean = (restricted.median.to_numpy(), ends.lower.to_numpy(), ends.upper.to_numpy())
    advance(2, "restricted means")
    accuracy = measure(seen, survival, times, chosen, options.seed)
    advance(3, "calibration and discrimination")
    averaged = people.iloc[_thinned(len(people), _MOST_AVERAGED, rng, ())]
    # Every covariate takes several predictions; the ends of an interval need no more draws than these.
    lighter = copy(model).set_params(draws=min(int(model.draws), _MOST_DRAWS))
    effects = covariate_effects(lighter, averaged, horizon, options.level)
    advance(4, "effects")
    wanted = tuple(int(np.flatnonzero(kept == place)[0]) for place in options.people)
    places, called = choose_people(names, mean[0], wanted)
    drawn = np.linspace(0, horizon, 81)
    inside = times <= horizon
    band = (lower[:, inside], upper[:, inside])
    report = Report(
        options=options,
        horizon=horizon,
        cohort=describe_cohort(outcome, options.level),
        covariates=describe_covariates(model.encoding_.columns, frame),
        scored=len(people),
        times=times,
        mean=np.average(survival, axis=0, weights=seen.weight),
        summary=model.summary().rows,
        elbo=np.asarray(model.elbo_, dtype=np.float64),
        last_training=float(model.time_scale_),
        shown=show_people(model, people, places, called, drawn, horizon, options.level),
        accuracy=accuracy,
        effects=effects,
        averaged=len(averaged),
        least_certain=find_least_certain(model, people, names, mean, band, times[inside]),
        warnings=caveats(model, outcome, frame, accuracy, horizon),
    )
    advance(5, "people")
    return report


def _horizon(outcome: Outcome, given: float | None) -> float:
    if given is not None:
        if not 0 < given < np.inf:
            raise InputError(f"horizon={given!r} must be a positive, finite time.")
        return float(given)
    # Three digits are enough to name it, and rounding down keeps rows at risk there.
    value = float(np.quantile(outcome.time, 0.9))
    power = 10.0 ** (np.floor(np.log10(value)) - 2)
    return float(np.floor(value / power) * power)


def _chosen_times(outcome: Outcome, given: tuple[float, ...]) -> np.ndarray:
    if given:
        chosen = np.unique(np.array(given, dtype=np.float64))
        bad = (chosen <= 0) | (chosen > outcome.time.max())
        if bad.any():
            raise InputError(
                f"time {chosen[bad][0]:g} cannot be compared with these rows; give times above 0 and up to "
                f"{outcome.time.max():g}."
            )
        return chosen
    return np.unique(np.quantile(outcome.time[outcome.event], [0.25, 0.5, 0.75], method="nearest"))


def _thinned(rows: int, most: int, rng: np.random.Generator, always: tuple[int, ...]) -> np.ndarray:
    """Return all rows, or `most` of them at random, in order and with those that must be there."""
    if rows <= most:
        return np.arange(rows)
    picked = rng.choice(rows, size=most, replace=False)
    return np.unique(np.concatenate([picked, always]).astype(int))
