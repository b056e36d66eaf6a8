"""How far do curves of the default model move with ``random_state``, in units of their posterior standard deviation?

``run`` fits each of six cohorts with several seeds and stores a line for each cohort, so that a run that was stopped
goes on where it was; ``table`` shows the movement. ``run --case VLC-110 --seeds 2`` is quick.
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

# Design or cohort, and rows. VLC has 137, of which some are predicted.
CASES: dict[str, tuple[str, int]] = {
    f"{name}-{rows}": (name, rows)
    for name, rows in (
        ("accelerated", 100),
        ("sparse", 300),
        ("accelerated", 1000),
        ("VLC", 110),
        ("METABRIC", 300),
        ("SUPPORT", 1000),
    )
}
CENSORING = 0.4
# So many that their own noise, 0.016 of a standard deviation, does not matter.
DRAWS = 4000
PEOPLE, TIMES, LAST_TIME_QUANTILE = 100, 20, 0.9
# At most a tenth of the posterior's standard deviation is asked for.
ALLOWED = 0.1
# Where the standard deviation is smaller, a movement is counted in units of this.
LEAST_DEVIATION = 1e-3


@dataclass(frozen=True)
class Job:
    """A case and how many seeds it is fitted with."""

    case: str
    seeds: int
    draws: int


def data_of(case: str) -> tuple[Any, np.ndarray, np.ndarray, Any]:
    """Return covariates, times and event flags of the training rows, and covariates of other people."""
    from coverage_jobs import DESIGNS

    from neuralsurv_bench.cohorts import load

    name, rows = CASES[case]
    seed = zlib.crc32(f"seeds/{case}".encode())
    if name in DESIGNS:
        made = DESIGNS[name](rows, CENSORING, seed)
        return made.x, made.time, made.event, DESIGNS[name](PEOPLE, CENSORING, seed + 2**40).x
    cohort = load(name)
    order = np.random.default_rng(seed).permutation(len(cohort))
    train, others = order[:rows], order[rows : rows + PEOPLE]
    return cohort.frame.iloc[train], cohort.time[train], cohort.event[train], cohort.frame.iloc[others]


def movement(means: np.ndarray, deviations: np.ndarray) -> tuple[float, float]:
    """Return how far curves of shape (seeds, people, times) move, in standard deviations: root mean square, and 95 %.

    The spread over seeds is that of one fit about the mean of all seeds; the standard deviation is averaged over seeds.
    """
    spread = means.std(axis=0, ddof=1)
    ratio = spread / np.maximum(np.sqrt((deviations**2).mean(axis=0)), LEAST_DEVIATION)
    return float(np.sqrt((ratio**2).mean())), float(np.quantile(ratio, 0.95))


def run_job(job: Job, model: str) -> dict[str, Any]:
    """Fit the case with every seed and return the record."""
    from coverage_jobs import provenance

    from neuralsurv import NeuralSurv
    from neuralsurv.errors import NeuralSurvError

    x, times, events, people = data_of(job.case)
    last = float(np.quantile(times[events], LAST_TIME_QUANTILE))
    grid = last * np.arange(1, TIMES + 1) / TIMES
    record: dict[str, Any] = vars(job) | {"rows": len(x), "covariates": x.shape[1], "events": int(events.sum())}
    means, deviations, ends = [], [], []
    began = time.process_time()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for seed in range(job.seeds):
                fitted = NeuralSurv(draws=job.draws, verbose=False, random_state=seed).fit(x, (times, events))
                curves = fitted.predict_survival(people, grid)
                means.append(curves.mean.to_numpy())
                deviations.append(curves.std.to_numpy())
                ends.append([end.to_numpy() for end in curves.interval(0.9)])
    except NeuralSurvError as error:
        return record | {"error": f"{type(error).__name__}: {error}"} | provenance(model)
    spread = np.array(deviations)
    moved, most = movement(np.array(means), spread)
    bands = [movement(np.array(ends)[:, side], spread)[0] for side in (0, 1)]
    figures = {
        "movement": round(moved, 4),
        "movement_95": round(most, 4),
        "movement_lower": round(bands[0], 4),
        "movement_upper": round(bands[1], 4),
        # A mean of so many draws moves by that much, whatever the model.
        "of_draws": round(1 / np.sqrt(job.draws), 4),
        "posterior_sd": round(float(np.sqrt((spread**2).mean())), 5),
        "seconds": round(time.process_time() - began, 2),
    }
    return record | figures | provenance(model)


def run(given: argparse.Namespace) -> None:
    """Do what is not stored yet."""
    from model_version import default_digest

    model = default_digest()
    run_jobs(
        "seeds",
        given.store,
        [Job(case, given.seeds, given.draws) for case in given.case],
        lambda job: run_job(job, model),
        key=lambda record: (record["case"], record["seeds"], record["draws"], record["model"]),
        key_of_job=lambda job: (*vars(job).values(), model),
        at_once=given.jobs,
        retry_failed=given.retry_failed,
    )


def page(records: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    lines = [
        "# Movement with the seed",
        "",
        "The same rows are fitted with several `random_state`s. *Movement* is the standard deviation of the mean curve "
        "over seeds, in units of the posterior's standard deviation, as root mean square over people and times; "
        "*95 %* is exceeded at one in twenty of these; *lower* and *upper* are the ends of the 90 % band. A mean of so "
        "many draws moves by *of draws* whatever the model, and the ends of a band by more than twice as much; *net* "
        f"is the movement without that part. At most {ALLOWED:g} is asked for of the movement. Where the posterior's "
        f"standard deviation is below {LEAST_DEVIATION:g}, {LEAST_DEVIATION:g} is taken for it. "
        + study_command.provenance_line(records),
        "",
        f"| cohort | seeds | movement | of draws | net | 95 % | lower | upper | at most {ALLOWED:g} |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    newest = {record["case"]: record for record in records}
    for case in [name for name in CASES if name in newest]:
        of = newest[case]
        net = np.sqrt(max(of["movement"] ** 2 - of["of_draws"] ** 2, 0.0))
        # The relative error of a standard deviation, by people and times that move as one.
        error = of["movement"] / np.sqrt(2 * (of["seeds"] - 1))
        lines.append(
            f"| {case} | {of['seeds']} | {study_command.plus_minus(of['movement'], error)} | {of['of_draws']:.3f} | "
            f"{net:.3f} | {of['movement_95']:.3f} | {of['movement_lower']:.3f} | {of['movement_upper']:.3f} | "
            f"{'yes' if of['movement'] <= ALLOWED else 'no'} |"
        )
    lines += [
        "",
        "The standard error is that of a standard deviation over so many seeds, as if all people and times moved as "
        "one; it is smaller where they do not.",
        "",
        "Produced by `python benchmarks/proof/seeds.py run` and `table`.",
        "",
    ]
    return "\n".join(lines)


def options(running: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    running.add_argument("--case", nargs="+", choices=CASES, default=list(CASES), metavar="NAME")
    running.add_argument("--seeds", type=int, default=8, metavar="K", help="fits of each (%(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return study_command.main("seeds", __doc__, arguments, options=options, run=run, page=page, draws=DRAWS)


if __name__ == "__main__":
    sys.exit(main())
