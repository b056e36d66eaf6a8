"""One job of the coverage study: simulate a cohort, fit it, and see how often bands hold the true curves."""

from __future__ import annotations

import hashlib
import json
import time
import warnings
import zlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from model_version import commit, default_digest

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data import simulate
from neuralsurv.data.simulate import SimulatedCohort
from neuralsurv.errors import NeuralSurvError, NeuralSurvWarning
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.metrics import band_coverage

# Each a function of rows, censoring share and seed.
# SAC's own follow-up ends when a fifth have no event yet; a later end makes room for 20 % censoring.
DESIGNS: dict[str, Callable[[int, float, int], SimulatedCohort]] = {
    "log-normal": lambda n, censoring, seed: simulate.lognormal_cohort(n, censoring=censoring, seed=seed),
    "SAC": lambda n, censoring, seed: simulate.sac_cohort(n, end=150.0, censoring=censoring, seed=seed),
    "proportional": lambda n, censoring, seed: simulate.proportional_hazards_cohort(n, censoring=censoring, seed=seed),
    "crossing": lambda n, censoring, seed: simulate.crossing_hazards_cohort(n, censoring=censoring, seed=seed),
    "interaction": lambda n, censoring, seed: simulate.interaction_cohort(n, censoring=censoring, seed=seed),
    "accelerated": lambda n, censoring, seed: simulate.accelerated_cohort(n, censoring=censoring, seed=seed),
    "sparse": lambda n, censoring, seed: simulate.sparse_cohort(n, censoring=censoring, seed=seed),
    "turning": lambda n, censoring, seed: simulate.turning_effects_cohort(n, censoring=censoring, seed=seed),
    "cure": lambda n, censoring, seed: simulate.cure_cohort(n, censoring=censoring, seed=seed),
    "frailty": lambda n, censoring, seed: simulate.frailty_cohort(n, censoring=censoring, seed=seed),
    "two waves": lambda n, censoring, seed: simulate.two_wave_cohort(n, censoring=censoring, seed=seed),
}
ROWS = (60, 100, 300, 1000, 3000)
CENSORING = (0.2, 0.5, 0.7)
LEVELS = (0.5, 0.8, 0.9, 0.95)
# The paper's method with the one hidden layer of its published tables.
PAPER_LAYERS = (16,)
PRESETS: dict[str, Callable[..., NeuralSurv | PaperNeuralSurv]] = {
    "default": NeuralSurv,
    "paper": partial(PaperNeuralSurv, hidden=PAPER_LAYERS),
}

PEOPLE = 100
TIMES = 20
LAST_TIME_QUANTILE = 0.9
NEAR = 0.01
MIDDLE = (0.02, 0.98)
# A cohort with fewer events says nothing; the next one is taken in its place.
LEAST_EVENTS = 2


@dataclass(frozen=True)
class Job:
    """A cell of the study, the number of its replicate, and the censoring share of that."""

    preset: str
    design: str
    rows: int
    censoring: float
    replicate: int

    @property
    def seed(self) -> int:
        """The seed of the cohort: the same for all presets, another for every cell and replicate."""
        return zlib.crc32(f"{self.design}/{self.rows}/{self.censoring}/{self.replicate}".encode())


def digest(preset: str) -> str:
    """Return a digest of the model behind a preset, so that results of another one are not taken for its own.

    That of the paper's method is made of its settings: which mode it finds is another matter on every machine.
    """
    if preset == "default":
        return default_digest()
    said = asdict(PaperSettings(hidden=PAPER_LAYERS))
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def cohort_of(job: Job) -> SimulatedCohort:
    """Return the job's training rows."""
    for attempt in range(1000):
        cohort = DESIGNS[job.design](job.rows, job.censoring, job.seed + attempt)
        if cohort.event.sum() >= LEAST_EVENTS:
            return cohort
    raise RuntimeError(f"no cohort of {job} has {LEAST_EVENTS} events")


def run(job: Job, model: str, draws: int = 1000) -> dict[str, Any]:
    """Do the job and return its record; an error of the library is one of the results."""
    cohort = cohort_of(job)
    people = DESIGNS[job.design](PEOPLE, job.censoring, job.seed + 2**40).x
    record: dict[str, Any] = asdict(job) | {"events": int(cohort.event.sum())}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuralSurvWarning)
        try:
            estimator = PRESETS[job.preset](draws=draws, verbose=False, random_state=job.replicate)
            record |= fitted_and_measured(estimator, cohort, people)
        except NeuralSurvError as error:
            record["error"] = f"{type(error).__name__}: {error}"
    said = sorted({type(warning.message).__name__ for warning in caught})
    return record | {"warnings": said} | provenance(model)


def provenance(model: str) -> dict[str, str]:
    """Return what says which model a record is of, and when it was made."""
    return {"model": model, "commit": commit(), "date": datetime.now(UTC).date().isoformat()}


def fitted_and_measured(
    estimator: Any, cohort: SimulatedCohort, people: pd.DataFrame, last: float | None = None
) -> dict[str, Any]:
    """Fit a cohort, predict curves (up to `last`) and event times of other people, and return the measures of both."""
    if last is None:
        last = float(np.quantile(cohort.time[cohort.event], LAST_TIME_QUANTILE))
    times = last * np.arange(1, TIMES + 1) / TIMES
    began = time.process_time()
    estimator.fit(cohort.x, cohort.y)
    fitted = time.process_time()
    curves = estimator.predict_survival(people, times)
    found = measured(curves, cohort.true_survival(times, people), times)
    found |= event_times_measured(estimator.predict_event_time(people), cohort, people)
    return found | {
        "fit_seconds": round(fitted - began, 2),
        "predict_seconds": round(time.process_time() - fitted, 2),
    }


def measured(curves: Any, truth: np.ndarray, times: np.ndarray) -> dict[str, Any]:
    """Return coverage at every level, the half width at 90 %, and how far the mean curve is from the truth.

    ``error_in_sd`` is the root mean square of the error in posterior standard deviations: 1 where the band has the
    right width. ``ibs`` is the expected Brier score of the mean curve for new people who are never censored, integrated
    from 0 to the last time over its range, and ``ibs_truth`` that of the truth, which no model can beat. ``spread`` is
    the standard deviation between people of the predicted curves, averaged over time, over that of the true ones:
    below 1 where people are drawn together. ``within`` is the share of people and times at which the truth lies inside
    the 90 % band or no further from it than `NEAR`; ``middle`` is the coverage where the truth is between `MIDDLE`.
    """
    mean, deviation = curves.mean.to_numpy(), curves.std.to_numpy()
    coverage = {}
    for level in LEVELS:
        lower, upper = (end.to_numpy() for end in curves.interval(level))
        coverage[str(level)] = round(band_coverage(lower, upper, truth), 4)
    lower, upper = (end.to_numpy() for end in curves.interval(0.9))
    error = mean - truth
    outside = np.maximum(0, np.maximum(lower - truth, truth - upper))
    middle = (truth >= MIDDLE[0]) & (truth <= MIDDLE[1])
    # The event status of a new person has variance S(1 − S); the square of the error comes on top.
    least = _integrated(truth * (1 - truth), times)
    return {
        "coverage": coverage,
        "half_width": round(float((upper - lower).mean() / 2), 4),
        "absolute_error": round(float(np.abs(error).mean()), 4),
        "bias": round(float(error.mean()), 4),
        "error_in_sd": round(float(np.sqrt(np.mean((error / np.maximum(deviation, 1e-12)) ** 2))), 3),
        "ibs": round(least + _integrated(error**2, times), 5),
        "ibs_truth": round(least, 5),
        "spread": round(float(mean.std(axis=0).mean() / truth.std(axis=0).mean()), 3),
        "within": round(float((outside <= NEAR).mean()), 4),
        "middle": round(float((outside[middle] == 0).mean()), 4) if middle.any() else None,
    }


def _integrated(values: np.ndarray, times: np.ndarray) -> float:
    """Return the mean over people (rows) and, by the trapezoid rule from 0, where the value is 0, over time."""
    curve = np.concatenate([[0.0], values.mean(axis=0)])
    steps = np.diff(times, prepend=0.0)
    return float(np.sum(steps * (curve[1:] + curve[:-1]) / 2) / times[-1])


def event_times_measured(predicted: Any, cohort: SimulatedCohort, people: pd.DataFrame) -> dict[str, float]:
    """Return how likely the 90 % prediction interval of a new person's own event time is to hold it, by the truth.

    ``interval`` is that of the equal-tailed interval, as ``predict_event_time(x).interval(0.9)`` has it. Draws beyond
    the training range are infinite; where more than 5 % of them are, so is the upper end, and by the model's own word
    the interval then holds more than 90 %: ``interval_mass`` is what it should hold. ``interval_90`` is the coverage
    of an interval that should hold 90 % everywhere: from the 10 % quantile on where the upper end is infinite.

    Parameters
    ----------
    predicted : Prediction
        Predictive draws of the event times of `people`.
    cohort : SimulatedCohort
        The training rows.
    people : DataFrame of shape (n, d)
        Their covariates.
    """
    last = float(cohort.time.max())

    def true_survival(at: np.ndarray) -> np.ndarray:
        # An infinite time is one after the end of the training range.
        return np.diag(cohort.true_survival(np.where(np.isinf(at), last, at), people))

    def coverage(lower: np.ndarray, upper: np.ndarray) -> float:
        beyond = np.where(np.isinf(upper), 0.0, true_survival(upper))
        return float((true_survival(lower) - beyond).mean())

    lower, upper = (end.to_numpy() for end in predicted.interval(0.9))
    draws = predicted.draws
    from_here = np.where(np.isinf(upper), predicted.quantile(0.1).to_numpy(), lower)
    return {
        "interval": round(coverage(lower, upper), 4),
        "interval_mass": round(float(((draws >= lower) & (draws <= upper)).mean()), 4),
        "interval_90": round(coverage(from_here, upper), 4),
    }
