"""Do one job: make its split, fit, predict, score, and turn whatever happens into a record."""

from __future__ import annotations

import math
import random
import time
import traceback
import warnings
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache, lru_cache, partial
from typing import Any, Protocol, cast, runtime_checkable

import numpy as np
import torch

from neuralsurv_bench import cohorts, protocol, scores
from neuralsurv_bench.environment import environment, without_paths
from neuralsurv_bench.experiments import Job
from neuralsurv_bench.methods.interface import Fitted, Floats, Method, Settings, Split, Variant
from neuralsurv_bench.methods.neuralsurv_default import default_method
from neuralsurv_bench.methods.neuralsurv_paper import paper_method
from neuralsurv_bench.store import Key, Record
from neuralsurv_bench.threads import one_thread

# Level of the band in the synthetic figure, and at how many times its curves are kept.
BAND = 0.9
_CURVE_TIMES = 60
# Enough to see what a method complained about.
_MOST_WARNINGS = 5


@runtime_checkable
class HasDetails(Protocol):
    """A fitted method that knows more than its curves."""

    def details(self) -> Mapping[str, Any]:
        """Return what else is worth keeping."""
        ...


@runtime_checkable
class HasBand(Protocol):
    """A fitted method that knows how sure it is."""

    def band(self, x: Floats, times: Floats, level: float) -> tuple[Floats, Floats]:
        """Return the ends of the credible band of the mean curve of the people `x`."""
        ...


def execute(job: Job) -> Record:
    """Do a job and return its record."""
    return record_of(job.key, partial(_work, job))


def record_of(key: Key, work: Callable[[dict[str, Any]], None]) -> Record:
    """Return the record of some work, done in one thread; an error becomes a record that says what went wrong.

    Parameters
    ----------
    key : Key
        The job.
    work : callable
        Does it, and writes what it finds into a dict with the names of the fields of `Record`, as soon as it has it.
    """
    result: dict[str, Any] = {"details": {}}
    with one_thread(), warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        try:
            work(result)
            result["status"] = "finished"
        # Whatever a method of another package raises is a result of the benchmark.
        except Exception as error:
            result["status"] = "failed"
            result["error"] = _in_words(error)
    said = dict.fromkeys(without_paths(f"{one.category.__name__}: {one.message}") for one in complaints)
    if said:
        result["details"]["warnings"] = list(said)[:_MOST_WARNINGS]
    date = datetime.now(UTC).isoformat(timespec="seconds")
    return Record(key, environment=environment(), date=date, **result)


def _work(job: Job, result: dict[str, Any]) -> None:
    split, method = split_of(job), method_of(job)
    settings = Settings(variant=cast(Variant, job.key.variant), hidden=job.hidden, seed=job.key.seed)
    seed_generators(job.key.seed)
    began, processor_began = time.perf_counter(), time.process_time()
    fitted = method.fit(split, settings)
    fitted_at = time.perf_counter()
    result["fit_seconds"] = fitted_at - began
    # Hardly longer on a busy machine, unlike the seconds on the wall.
    result["details"]["fit_processor_seconds"] = time.process_time() - processor_began
    times = scores.grid(split)
    survival = fitted.survival(split.test.x, times)
    risk = fitted.risk(split.test.x)
    result["predict_seconds"] = time.perf_counter() - fitted_at
    if isinstance(fitted, HasDetails):
        result["details"].update(fitted.details())
    note = getattr(fitted, "note", "")
    if note:
        result["details"]["note"] = note
    # The smallest of these have five test rows, which no metric is made for.
    if job.key.experiment != "runtime":
        published_rules = job.key.variant == "as-published"
        by_paper = scores.paper_scores(split, survival, times, risk, published_rules=published_rules)
        result["scores"] = {"paper": _kept(by_paper), "ours": _kept(scores.our_scores(split, survival, times, risk))}
    if job.key.experiment == "synthetic":
        result["details"]["curves"] = _curves(job, split, fitted)


def _kept(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return scores as they are stored: empty ones left out, and a word where one is infinite, which JSON is not."""
    reasons = dict(found["reasons"])
    for name, value in found.items():
        if isinstance(value, float) and math.isinf(value):
            reasons[name] = "plus infinity" if value > 0 else "minus infinity"
    kept = {name: value for name, value in found.items() if value != [] and name != "reasons"}
    return {**kept, "reasons": reasons} if reasons else kept


def method_of(job: Job) -> Method:
    """Return the method of a job: by its name, or the paper preset as the experiment wants it."""
    if job.phi_prior is not None:
        return paper_method(job.hidden, job.phi_prior)
    if job.change:
        ingredients = job.key.experiment == "ingredients"
        return default_method(job.change) if ingredients else paper_method(job.hidden, change=job.change)
    follows_experiment = paper_method(None)
    if job.key.method == follows_experiment.name:
        return follows_experiment
    # Imported here: the packages behind the methods take seconds to load, and only workers need them.
    from neuralsurv_bench.methods.registry import METHODS

    return METHODS[job.key.method]


def split_of(job: Job) -> Split:
    """Return the rows of a job."""
    key = job.key
    if key.experiment == "synthetic":
        return _synthetic(job.rows).split
    return _splits(key.experiment, key.cohort, job.rows, key.seed)[key.fold]


# A worker meets the same cohort again and again.
@cache
def _cohort(name: str) -> cohorts.Cohort:
    return cohorts.load(name)


@lru_cache(maxsize=32)
def _splits(experiment: str, cohort: str, rows: int, seed: int) -> list[Split]:
    loaded = _cohort(cohort)
    if experiment == "full":
        return protocol.full_splits(loaded)
    if experiment in ("repeated", "ingredients"):
        return protocol.repeated_splits(loaded, seed, rows=rows)
    return protocol.paper_splits(loaded, rows=rows)


@cache
def _synthetic(rows: int) -> protocol.Synthetic:
    return protocol.synthetic(rows)


def seed_generators(seed: int) -> None:
    """Seed the global generators of Python, numpy and torch."""
    random.seed(seed)
    # Packages that know no other generator draw from this one.
    np.random.seed(seed)  # noqa: NPY002
    torch.manual_seed(seed)


def _curves(job: Job, split: Split, fitted: Fitted) -> dict[str, Any]:
    """Return the mean curve of each group of test rows, with the truth and, where there is one, the band."""
    last = split.train.time[split.train.event].max()
    times = np.linspace(0, last, _CURVE_TIMES)
    truth = _synthetic(job.rows).truth(split.test.x, times)
    # People with the same truth are a group; which column says so is the protocol's business.
    which = np.unique(np.round(truth, 10), axis=0, return_inverse=True)[1].reshape(-1)
    survival = fitted.survival(split.test.x, times)
    if survival is None:
        return {}
    curves: dict[str, Any] = {"times": times, "groups": []}
    for group in range(which.max() + 1):
        members = which == group
        curve = {"people": int(members.sum()), "truth": truth[members].mean(0), "mean": survival[members].mean(0)}
        if isinstance(fitted, HasBand):
            curve["lower"], curve["upper"] = fitted.band(split.test.x[members], times, BAND)
        curves["groups"].append(curve)
    return curves


def _in_words(error: Exception) -> str:
    """Return kind, message and place of an error, without the folders of this machine."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" [{frames[-1].name}, line {frames[-1].lineno} of {frames[-1].filename}]" if frames else ""
    return without_paths(f"{type(error).__name__}: {error}{place}")
