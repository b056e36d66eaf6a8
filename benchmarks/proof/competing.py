"""Do the bands of cumulative incidences cover the truth, and does it help that causes share strength?

``run`` fits the default model to simulated cohorts with two causes of events, and one model to each cause alone, and
stores a line for each cohort, so that a run that was stopped goes on where it was; ``table`` shows coverage and error.
``run --rows 100 --cohorts 2 --draws 100`` is quick.
"""

from __future__ import annotations

import argparse
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import study_command  # first: it sets the number of threads
from job_store import run_jobs

import numpy as np  # isort: skip

ROWS = (100, 300, 1000)
COHORTS = 20
PEOPLE = 100
TIMES = np.array([0.5, 1.0, 2.0, 3.0, 4.0, 5.0])
LEVEL = 0.9
_STEPS = 101


@dataclass(frozen=True)
class Job:
    """A simulated cohort."""

    rows: int
    number: int


def _figures(draws: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """Return coverage and error of draws (S, n, T) of curves."""
    lower, upper = np.quantile(draws, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return {
        "coverage": round(float(((lower <= truth) & (truth <= upper)).mean()), 4),
        "squared_error": round(float(((draws.mean(0) - truth) ** 2).mean()), 7),
        "width": round(float((upper - lower).mean()), 4),
    }


def run_job(job: Job, model: str, draws: int) -> dict[str, Any]:
    """Fit one cohort and return the record."""
    import torch
    from coverage_jobs import provenance

    from neuralsurv import NeuralSurv
    from neuralsurv.data.simulate.competing import CAUSES, competing_cohort
    from neuralsurv.errors import NeuralSurvError
    from neuralsurv.posterior.competing import incidences

    cohort, people = (competing_cohort(count, seed=2 * job.number + k) for k, count in enumerate((job.rows, PEOPLE)))
    record: dict[str, Any] = dict(vars(job))
    hazards, seconds, edges = [], 0.0, np.linspace(0, TIMES[-1], _STEPS)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            began = time.process_time()
            joint = NeuralSurv(draws=draws, verbose=False, random_state=job.number)
            joint.fit(cohort.x, time=cohort.time, event=cohort.event)
            record["seconds"] = round(time.process_time() - began, 2)
            for cause in CAUSES:
                began = time.process_time()
                alone = NeuralSurv(draws=draws, verbose=False, random_state=job.number)
                alone.fit(cohort.x, time=cohort.time, event=cohort.event == cause)
                seconds += time.process_time() - began
                hazards.append(torch.from_numpy(alone.predict_cumulative_hazard(people.x, edges).draws.copy()))
    except NeuralSurvError as error:
        return record | {"error": f"{type(error).__name__}: {error}"} | provenance(model)
    curves = incidences(torch.stack(hazards))[..., np.searchsorted(edges, TIMES - 1e-9)].numpy()
    for k, cause in enumerate(CAUSES):
        truth = people.true_incidence(TIMES, cause)
        record[cause] = {
            "shared": _figures(joint.predict_cumulative_incidence(people.x, TIMES, cause).draws, truth),
            "alone": _figures(curves[k], truth),
        }
    return record | {"seconds_alone": round(seconds / len(CAUSES), 2)} | provenance(model)


def run(given: argparse.Namespace) -> None:
    """Do what is not stored yet."""
    from model_version import default_digest

    model = default_digest()
    run_jobs(
        "competing risks",
        given.store,
        [Job(rows, number) for rows in given.rows for number in range(given.cohorts)],
        lambda job: run_job(job, model, given.draws),
        key=lambda record: (record["rows"], record["number"], record["model"]),
        key_of_job=lambda job: (job.rows, job.number, model),
        at_once=given.jobs,
        retry_failed=given.retry_failed,
    )


def page(records: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Competing risks",
        "",
        "Simulated cohorts with two causes of events, whose true cumulative incidences are known "
        "(`neuralsurv.data.simulate.competing`). Coverage of the 90 % bands and mean squared error (in thousandths) of "
        f"the posterior mean, over {PEOPLE} new people and {len(TIMES)} times, averaged over cohorts with the standard "
        "error. *Shared* is one fit with both causes; *alone* is one fit for each, with the other cause censored, and "
        "the incidences from both. Time is processor time of the shared fit over that of a fit to one cause. "
        + study_command.provenance_line(records),
        "",
        "| rows | cohorts | cause | coverage, shared | alone | error, shared | alone | difference | time |",
        "|--:|--:|---|--:|--:|--:|--:|--:|--:|",
    ]
    for rows in sorted({record["rows"] for record in records}):
        own = [record for record in records if record["rows"] == rows]
        ratio = sum(record["seconds"] for record in own) / sum(record["seconds_alone"] for record in own)
        for cause in ("relapse", "death"):
            found = {
                (kind, name): np.array([record[cause][kind][name] for record in own])
                for kind in ("shared", "alone")
                for name in ("coverage", "squared_error")
            }
            gap = found["shared", "squared_error"] - found["alone", "squared_error"]
            cells = [
                *(_mean(found[kind, "coverage"]) for kind in ("shared", "alone")),
                *(_mean(1000 * found[kind, "squared_error"]) for kind in ("shared", "alone")),
                _mean(1000 * gap),
            ]
            lines.append(f"| {rows} | {len(own)} | {cause} | {' | '.join(cells)} | {ratio:.2f} |")
    lines += ["", "Produced by `python benchmarks/proof/competing.py run` and `table`.", ""]
    return "\n".join(lines)


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else np.nan
    return study_command.plus_minus(float(values.mean()), float(error), 2)


def options(running: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    running.add_argument("--rows", type=int, nargs="+", default=list(ROWS), metavar="N", help="of each cohort")
    running.add_argument("--cohorts", type=int, default=COHORTS, metavar="C", help="of each size (%(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return study_command.main("competing", __doc__, arguments, options=options, run=run, page=page, draws=400)


if __name__ == "__main__":
    sys.exit(main())
