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
from functools import cache, partial
from importlib.metadata import version
from typing import Any

import numpy as np

from neuralsurv import NeuralSurv, PaperNeuralSurv
from neuralsurv.data import simulate
from neuralsurv.data.simulate import SimulatedCohort
from neuralsurv.errors import NeuralSurvError, NeuralSurvWarning
from neuralsurv.inference.default.settings import DefaultSettings
from neuralsurv.inference.default.structure import build_network, build_prior
from neuralsurv.inference.paper.settings import PaperSettings
from neuralsurv.metrics import band_coverage, band_coverage_by_time, simultaneous_band_coverage

# SAC's own follow-up ends when a fifth have no event yet; a later end makes room for 20 % censoring.
DESIGNS = {
    "log-normal": lambda n, censoring, seed: simulate.lognormal_cohort(n, censoring=censoring, seed=seed),
    "SAC": lambda n, censoring, seed: simulate.sac_cohort(n, end=150.0, censoring=censoring, seed=seed),
    "proportional": lambda n, censoring, seed: simulate.proportional_hazards_cohort(n, censoring=censoring, seed=seed),
    "crossing": lambda n, censoring, seed: simulate.crossing_hazards_cohort(n, censoring=censoring, seed=seed),
    "interaction": lambda n, censoring, seed: simulate.interaction_cohort(n, censoring=censoring, seed=seed),
}
ROWS = (25, 50, 100, 300, 1000)
# From this many rows on the default model has neighbourhoods; these sizes are shown apart.
ROWS_OF_LARGE = (2000, 5000)
CENSORING = (0.2, 0.5, 0.8)
LEVELS = (0.5, 0.8, 0.9, 0.95)
# The paper's method with the one hidden layer of its published tables.
PAPER_LAYERS = (16,)
PRESETS: dict[str, Callable[..., NeuralSurv | PaperNeuralSurv]] = {
    "default": NeuralSurv,
    "paper": partial(PaperNeuralSurv, hidden=PAPER_LAYERS),
}
# Stored digests also hold the training of custom networks, which this study does not use.
_OWN_NETWORKS = {"epochs": 50, "learning_rate": 2e-3}

PEOPLE = 100
TIMES = 20
LAST_TIME_QUANTILE = 0.9
NEAR = 0.01
MIDDLE = (0.02, 0.98)
# A cohort with fewer events says nothing; the next one is taken in its place.
LEAST_EVENTS = 2


@dataclass(frozen=True)
class Job:
    """A cell of the study and the number of its replicate."""

    preset: str
    design: str
    rows: int
    censoring: float
    replicate: int

    @property
    def seed(self) -> int:
        """The seed of the cohort: the same for all presets, another for every cell and replicate."""
        return zlib.crc32(f"{self.design}/{self.rows}/{self.censoring}/{self.replicate}".encode())


@cache
def fingerprint(preset: str, rows: int) -> str:
    """Return a digest of the settings of a preset, so that results of other settings are not taken for its own.

    It sees settings, priors and the draw of the network; after a change of the algorithm, start a new store. What only
    concerns large cohorts does not change the digest of small ones.
    """
    said = asdict(PaperSettings(hidden=PAPER_LAYERS))
    if preset == "default":
        import torch

        settings = DefaultSettings()
        said = asdict(settings) | _OWN_NETWORKS
        said |= said.pop("ablation")
        times = torch.linspace(0.1, 1, 10, dtype=torch.float64)
        network = build_network(times, torch.ones_like(times), 3, settings, 0)
        prior = build_prior(network, settings)
        if rows < ROWS_OF_LARGE[0]:
            del said["neighbourhoods"]
        said |= {"groups": [asdict(group) for group in prior.groups], "unit": prior.unit.tolist()}
        # Rounded: the last digits differ between machines.
        said["origin"] = [round(weight, 4) for weight in network.origin.tolist()]
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()[:12]


def cohort_of(job: Job) -> SimulatedCohort:
    """Return the job's training rows."""
    for attempt in range(1000):
        cohort = DESIGNS[job.design](job.rows, job.censoring, job.seed + attempt)
        if cohort.event.sum() >= LEAST_EVENTS:
            return cohort
    raise RuntimeError(f"no cohort of {job} has {LEAST_EVENTS} events")


def run(job: Job, draws: int = 1000) -> dict[str, Any]:
    """Do the job and return its record; an error of the library is one of the results."""
    cohort = cohort_of(job)
    people = DESIGNS[job.design](PEOPLE, job.censoring, job.seed + 2**40).x
    last = float(np.quantile(cohort.time[cohort.event], LAST_TIME_QUANTILE))
    times = last * np.arange(1, TIMES + 1) / TIMES
    began = time.perf_counter()
    record: dict[str, Any] = asdict(job) | {"events": int(cohort.event.sum())}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", NeuralSurvWarning)
        try:
            model = PRESETS[job.preset](draws=draws, verbose=False, random_state=job.replicate)
            curves = model.fit(cohort.x, cohort.y).predict_survival(people, times)
            record |= measured(curves, cohort.true_survival(times, people))
            record["scales"] = {name: round(scale, 3) for name, scale in model.diagnostics_.scales.items()}
        except NeuralSurvError as error:
            record["error"] = f"{type(error).__name__}: {error}"
    said = sorted({type(warning.message).__name__ for warning in caught})
    return record | {
        "warnings": said,
        "seconds": round(time.perf_counter() - began, 2),
        "fingerprint": fingerprint(job.preset, job.rows),
        "versions": {name: version(name) for name in ("neuralsurv", "torch", "numpy")},
        "date": datetime.now(UTC).date().isoformat(),
    }


def measured(curves: Any, truth: np.ndarray) -> dict[str, Any]:
    """Return coverage and width at every level, and how far the mean curve is from the truth.

    ``standardised`` is the root mean square of the error in posterior standard deviations: 1 where the band has the
    right width. ``spread`` is the standard deviation between people of the predicted curves, averaged over time, over
    that of the true ones: below 1 where people are drawn together. ``within`` is the share of people and times at which
    the truth lies inside the 90 % band or no further from it than `NEAR`; ``middle`` is the coverage where the truth is
    between `MIDDLE`, and ``middle_share`` how often it is: outside, a band misses by next to nothing.
    """
    mean, deviation = curves.mean.to_numpy(), curves.std.to_numpy()
    levels = {}
    for level in LEVELS:
        lower, upper = (end.to_numpy() for end in curves.interval(level))
        levels[str(level)] = {
            "pointwise": round(band_coverage(lower, upper, truth), 4),
            "simultaneous": round(simultaneous_band_coverage(lower, upper, truth), 4),
            "width": round(float((upper - lower).mean()), 4),
        }
    lower, upper = (end.to_numpy() for end in curves.interval(0.9))
    error = mean - truth
    outside = np.maximum(0, np.maximum(lower - truth, truth - upper))
    middle = (truth >= MIDDLE[0]) & (truth <= MIDDLE[1])
    return {
        "within": round(float((outside <= NEAR).mean()), 4),
        "middle": round(float((outside[middle] == 0).mean()), 4) if middle.any() else None,
        "middle_share": round(float(middle.mean()), 4),
        "levels": levels,
        "by_time": band_coverage_by_time(lower, upper, truth).round(3).tolist(),
        "absolute_error": round(float(np.abs(error).mean()), 4),
        "bias": round(float(error.mean()), 4),
        "common_error": round(float(np.abs(error.mean(axis=0)).mean()), 4),
        "standardised": round(float(np.sqrt(np.mean((error / np.maximum(deviation, 1e-12)) ** 2))), 3),
        "spread": round(float(mean.std(axis=0).mean() / truth.std(axis=0).mean()), 3),
    }
