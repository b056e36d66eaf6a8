"""Is the default model Kaplan–Meier where nothing predicts? Cohorts whose outcomes are permuted against covariates.

``run`` cross-validates both on ten permuted cohorts and stores a line for each, so that a run that was stopped goes on
where it was; ``table`` shows the Brier scores and their difference with the paired standard error.
``run --cohort VLC-137 --folds 2 --draws 100`` is quick.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import study_command  # first: it sets the number of threads
from job_store import run_jobs

import numpy as np  # isort: skip

# Cohorts of the benchmark and how many of their rows are taken.
COHORTS: dict[str, tuple[str, int]] = {
    f"{name}-{rows}": (name, rows)
    for name, rows in (
        ("METABRIC", 125),
        ("SUPPORT", 125),
        ("VLC", 137),
        ("COLON", 250),
        ("GBSG", 250),
        ("SAC3", 250),
        ("NWTCO", 500),
        ("WHAS", 500),
        ("METABRIC", 1000),
        ("SUPPORT", 1000),
    )
}
FOLDS = 5
TIMES = 50
HORIZON_QUANTILE = 0.9


@dataclass(frozen=True)
class Job:
    """A permutation of a cohort."""

    cohort: str
    permutation: int
    folds: int


def permuted(job: Job) -> tuple[Any, np.ndarray, np.ndarray]:
    """Return covariates, times and event flags, the outcomes in an order that has nothing to do with the covariates.

    Where a patient has several rows, one is taken.
    """
    from neuralsurv_bench.cohorts import load

    name, rows = COHORTS[job.cohort]
    cohort = load(name)
    rng = np.random.default_rng(zlib.crc32(f"no signal/{job.cohort}/{job.permutation}".encode()))
    order = rng.permutation(len(cohort))
    if cohort.group is not None:
        order = order[np.sort(np.unique(cohort.group[order], return_index=True)[1])]
    if len(order) < rows:
        raise RuntimeError(f"{name} has {len(order)} patients; {rows} were asked for.")
    people = order[:rows]
    outcomes = rng.permutation(people)
    return cohort.frame.iloc[people].reset_index(drop=True), cohort.time[outcomes], cohort.event[outcomes]


def row_scores(
    time: np.ndarray, event: np.ndarray, survival: np.ndarray, times: np.ndarray, train: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return each row's part (n,) of the integrated Brier score: their mean is `neuralsurv.metrics`' figure."""
    from neuralsurv.metrics.kaplan_meier import training_censoring

    censoring = training_censoring(*train)
    before, after = censoring.before(time)[:, None], censoring.after(times)
    gone = time[:, None] <= times
    # Those who have not had the event by the end of the grid have no weight as an event, which may not be defined.
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(gone, np.where(event[:, None], survival**2 / before, 0.0), (1 - survival) ** 2 / after)
    steps = np.diff(times)
    return np.asarray((steps * (parts[:, 1:] + parts[:, :-1]) / 2).sum(axis=1) / (times[-1] - times[0]))


def run_job(job: Job, model: str, draws: int) -> dict[str, Any]:
    """Cross-validate the default model and Kaplan–Meier and return the record."""
    from coverage_jobs import provenance
    from sklearn.model_selection import KFold

    from neuralsurv import NeuralSurv
    from neuralsurv.data.outcome import Outcome
    from neuralsurv.errors import NeuralSurvError
    from neuralsurv.metrics import censoring_horizon
    from neuralsurv.metrics.kaplan_meier import survival_curve

    x, times, events = permuted(job)
    scores = np.full((len(x), 2), np.nan)
    record: dict[str, Any] = vars(job) | {"rows": len(x), "covariates": x.shape[1], "events": int(events.sum())}
    began = time.process_time()
    folds = KFold(job.folds, shuffle=True, random_state=job.permutation)
    try:
        for train, test in folds.split(x):
            seen = times[train], events[train]
            last = min(float(np.quantile(seen[0], HORIZON_QUANTILE)), censoring_horizon(*seen))
            grid = last * np.arange(1, TIMES + 1) / TIMES
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fitted = NeuralSurv(draws=draws, verbose=False, random_state=job.permutation).fit(x.iloc[train], seen)
                curves = fitted.predict_survival(x.iloc[test], grid).mean.to_numpy()
            flat = np.tile(survival_curve(Outcome.from_arrays(*seen)).after(grid), (len(test), 1))
            for column, survival in enumerate((curves, flat)):
                scores[test, column] = row_scores(times[test], events[test], survival, grid, seen)
    except NeuralSurvError as error:
        return record | {"error": f"{type(error).__name__}: {error}"} | provenance(model)
    difference = scores[:, 0] - scores[:, 1]
    return (
        record
        | {
            "ibs": round(float(scores[:, 0].mean()), 6),
            "ibs_km": round(float(scores[:, 1].mean()), 6),
            "difference": round(float(difference.mean()), 6),
            "standard_error": round(float(difference.std(ddof=1) / np.sqrt(len(difference))), 6),
            "seconds": round(time.process_time() - began, 2),
        }
        | provenance(model)
    )


def run(given: argparse.Namespace) -> None:
    """Do what is not stored yet."""
    from model_version import default_digest

    model = default_digest()
    wanted = [
        Job(cohort, permutation, given.folds) for permutation in range(given.permutations) for cohort in given.cohort
    ]
    run_jobs(
        "no signal",
        given.store,
        wanted,
        lambda job: run_job(job, model, given.draws),
        key=lambda record: (record["cohort"], record["permutation"], record["folds"], record["model"]),
        key_of_job=lambda job: (*vars(job).values(), model),
        at_once=given.jobs,
        retry_failed=given.retry_failed,
    )


def page(records: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Cohorts without signal",
        "",
        "Outcomes are permuted against the covariates, so that nothing predicts and the Kaplan–Meier curve of the "
        "training rows is the best prediction for everybody. Integrated Brier score of the default model and of "
        f"Kaplan–Meier by {' or '.join(sorted({str(record['folds']) for record in records}))}-fold cross-validation, "
        "up to the 90 % quantile of the training times. The difference (a plus sign is worse than Kaplan–Meier) has "
        "the standard error of paired rows; *within* says whether it is at most that. "
        + study_command.provenance_line(records),
        "",
        "| cohort | covariates | permutations | default | Kaplan–Meier | difference, in thousandths | within |",
        "|---|---|---|---|---|---|---|",
    ]
    means = []
    for cohort in [name for name in COHORTS if name in {record["cohort"] for record in records}]:
        own = [record for record in records if record["cohort"] == cohort]
        ours, theirs, difference = (np.mean([of[name] for of in own]) for name in ("ibs", "ibs_km", "difference"))
        error = np.sqrt(np.sum([of["standard_error"] ** 2 for of in own])) / len(own)
        means.append(difference)
        lines.append(
            f"| {cohort} | {own[0]['covariates']} | {len(own)} | {ours:.4f} | {theirs:.4f} | "
            f"{1000 * difference:+.2f} ± {1000 * error:.2f} | {'yes' if difference <= error else 'no'} |"
        )
    error = np.std(means, ddof=1) / np.sqrt(len(means)) if len(means) > 1 else np.nan
    lines += [
        "",
        f"Mean difference over {len(means)} cohorts, in thousandths, with the standard error over cohorts: "
        f"{1000 * np.mean(means):+.2f}" + ("." if np.isnan(error) else f" ± {1000 * error:.2f}."),
        "",
        "Produced by `python benchmarks/proof/no_signal.py run` and `table`.",
        "",
    ]
    return "\n".join(lines)


def options(running: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    running.add_argument("--cohort", nargs="+", choices=COHORTS, default=list(COHORTS), metavar="NAME")
    running.add_argument("--permutations", type=int, default=1, metavar="P", help="of each cohort (%(default)s)")
    running.add_argument("--folds", type=int, default=FOLDS, metavar="K", help="of the cross-validation (%(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return study_command.main("no_signal", __doc__, arguments, options=options, run=run, page=page)


if __name__ == "__main__":
    sys.exit(main())
