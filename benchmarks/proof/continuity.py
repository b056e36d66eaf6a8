"""Do coverage, error or width of the default model jump as the number of rows grows?

``run`` fits the first N rows of the same cohorts for a series of N, and stores a line for each fit, so that a run that
was stopped goes on where it was; ``table`` and ``plot`` show the means by N with standard errors, and what of a step is
left between neighbouring N beside a smooth trend. ``run --replicates 2 --rows 100 200 300 400 500`` is quick.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import study_command  # first: it sets the number of threads
from job_store import run_jobs

import numpy as np  # isort: skip

DESIGNS = ("accelerated", "crossing", "interaction", "two waves")
ROWS = (500, 700, 1000, 1400, 1900, 2100, 2800, 4000)
CENSORING = 0.4
# Whether a measure's logarithm is taken, so that a step is a share of it.
MEASURES = {"coverage 0.9": False, "absolute_error": True, "half_width": True}
_WORDS = {
    "coverage 0.9": "coverage of the 90 % band",
    "absolute_error": "error of the mean curve",
    "half_width": "half width of the 90 % band",
}
# A trend of this order in log N, and a step.
_ORDER = 2
_FLIPS = 4096


@dataclass(frozen=True)
class Job:
    """The first rows of a cohort of a design."""

    design: str
    replicate: int
    rows: int


def run_job(job: Job, model: str, draws: int) -> dict[str, Any]:
    """Fit the first rows of the cohort and return the record; people and times are the same for all numbers of rows."""
    import coverage_jobs as coverage

    from neuralsurv import NeuralSurv
    from neuralsurv.data.simulate import SimulatedCohort
    from neuralsurv.errors import NeuralSurvError

    seed = zlib.crc32(f"continuity/{job.design}/{job.replicate}".encode())
    whole = coverage.DESIGNS[job.design](max(ROWS), CENSORING, seed)
    people = coverage.DESIGNS[job.design](coverage.PEOPLE, CENSORING, seed + 2**40).x
    last = float(np.quantile(whole.time[whole.event], coverage.LAST_TIME_QUANTILE))
    cohort = SimulatedCohort(whole.x.head(job.rows), whole.time[: job.rows], whole.event[: job.rows], whole.design)
    record = asdict(job) | {"censoring": CENSORING, "events": int(cohort.event.sum())}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            estimator = NeuralSurv(draws=draws, verbose=False, random_state=job.replicate)
            record |= coverage.fitted_and_measured(estimator, cohort, people, last=last)
        except NeuralSurvError as error:
            record["error"] = f"{type(error).__name__}: {error}"
    return record | coverage.provenance(model)


def run(given: argparse.Namespace) -> None:
    """Do what is not stored yet."""
    from model_version import default_digest

    model = default_digest()
    if max(given.rows) > max(ROWS):
        raise SystemExit(f"--rows {max(given.rows)}: the cohorts have {max(ROWS)} rows.")
    wanted = [
        Job(design, replicate, rows)
        for replicate in range(given.replicates)
        for design in given.design
        for rows in given.rows
    ]
    run_jobs(
        "continuity",
        given.store,
        wanted,
        lambda job: run_job(job, model, given.draws),
        key=lambda record: (record["design"], record["replicate"], record["rows"], record["model"]),
        key_of_job=lambda job: (*vars(job).values(), model),
        at_once=given.jobs,
        retry_failed=given.retry_failed,
    )


def values_of(records: list[dict[str, Any]], design: str, measure: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of rows (K,) and the values (R, K) of the replicates that have all of them."""
    sizes = sorted({record["rows"] for record in records if record["design"] == design})
    by_replicate: dict[int, dict[int, float]] = {}
    for record in records:
        if record["design"] == design:
            name, _, level = measure.partition(" ")
            value = record[name][level] if level else record[name]
            by_replicate.setdefault(record["replicate"], {})[record["rows"]] = value
    whole = [[of[rows] for rows in sizes] for of in by_replicate.values() if len(of) == len(sizes)]
    return np.array(sizes), np.array(whole).reshape(-1, len(sizes))


def contrasts(rows: np.ndarray) -> np.ndarray:
    """Return for each gap between neighbours the weights (K - 1, K) that estimate a step there beside a smooth trend.

    They are those of least squares with a quadratic in log N and a step: 0 for every quadratic, 1 for the step itself.
    """
    logs = np.log(rows)
    scaled = (logs - logs.mean()) / logs.std()
    trend = np.vander(scaled, _ORDER + 1)
    found = []
    for gap in range(1, len(rows)):
        step = (np.arange(len(rows)) >= gap).astype(float)
        found.append(np.linalg.pinv(np.column_stack([trend, step]))[-1])
    return np.array(found)


@dataclass(frozen=True)
class Steps:
    """Estimated steps between neighbouring N.

    Attributes
    ----------
    size, error : ndarray of shape (K - 1,)
        Step, and its standard error over replicates: the same cohorts are fitted with all N, so noise that they share
        cancels.
    p_value : float
        How often the largest step in units of its error is as large by chance, by flips of the signs of replicates:
        one probability for all gaps together.
    """

    size: np.ndarray
    error: np.ndarray
    p_value: float

    @property
    def ratio(self) -> np.ndarray:
        """The steps in units of their errors."""
        return np.asarray(self.size / self.error)


def steps(rows: np.ndarray, values: np.ndarray) -> Steps:
    """Return the steps in values of shape (R, K), R at least 2."""
    own = values @ contrasts(rows).T
    count = len(own)

    def ratios(signs: np.ndarray) -> np.ndarray:
        mean = signs @ own / count
        variance = ((own**2).sum(axis=0) / count - mean**2) / (count - 1)
        return np.abs(mean) / np.sqrt(np.maximum(variance, 1e-300))

    if 2**count <= _FLIPS:
        signs = np.array(list(itertools.product([1.0, -1.0], repeat=count)))
    else:
        signs = np.random.default_rng(0).choice([1.0, -1.0], (_FLIPS, count))
        signs[0] = 1.0
    largest = ratios(signs).max(axis=1)
    # The first row is the data; rounding must not make it smaller than itself.
    p_value = float((largest >= largest[0] * (1 - 1e-9)).mean())
    return Steps(own.mean(axis=0), own.std(axis=0, ddof=1) / np.sqrt(count), p_value)


def page(records: list[dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    from scipy.stats import t as student

    designs = [name for name in DESIGNS if name in {record["design"] for record in records}]
    lines = [
        "# Continuity in the number of rows",
        "",
        "Are coverage, error and width smooth in the number N of training rows? The first N rows of the same cohorts "
        f"({CENSORING:.0%} censored) are fitted for a series of N, and the same people are predicted at the same times "
        "as in the [coverage study](coverage.md). Mean ± standard error over cohorts. "
        + study_command.provenance_line(records),
        "",
        "![Coverage, error and width against the number of rows](continuity.png)",
        "",
    ]
    found: list[str] = []
    beyond, expected = 0, 0.0
    for measure, logarithm in MEASURES.items():
        sizes = sorted({record["rows"] for record in records})
        lines += [
            f"{_WORDS[measure].capitalize()}:",
            "",
            f"| design | {' | '.join(f'{rows:,}' for rows in sizes)} | cohorts |",
            f"|---|{'---|' * (1 + len(sizes))}",
        ]
        for design in designs:
            rows, values = values_of(records, design, measure)
            count = len(values)
            shown = dict.fromkeys(sizes, "–")
            if count:
                error = values.std(axis=0, ddof=1) / np.sqrt(count) if count > 1 else np.full(len(rows), np.nan)
                shown |= dict(zip(rows, map(study_command.plus_minus, values.mean(axis=0), error), strict=True))
            lines.append(f"| {design} | {' | '.join(shown.values())} | {count} |")
            if count < 2 or len(rows) <= _ORDER + 2:
                found.append(f"| {design} | {_WORDS[measure]} | too few cohorts or N | | | |")
                continue
            of = steps(rows, np.log(values) if logarithm else values)
            many = int((np.abs(of.ratio) > 2).sum())
            beyond += many
            expected += 2 * float(student.sf(2, count - 1)) * len(of.size)
            at = int(np.argmax(np.abs(of.ratio)))
            size, unit = (100 * of.size[at], " %") if logarithm else (of.size[at], "")
            noise = 100 * of.error[at] if logarithm else of.error[at]
            digits = 1 if logarithm else 3
            found.append(
                f"| {design} | {_WORDS[measure]} | {rows[at]:,} to {rows[at + 1]:,} | {size:+.{digits}f}{unit} ± "
                f"{noise:.{digits}f} | {many} of {len(of.size)} | {of.p_value:.3f} |"
            )
        lines.append("")
    lines += [
        "## Steps",
        "",
        "A step between neighbouring N is estimated beside a quadratic trend in log N (of the logarithm for error and "
        "width, so that it is a share of them); its noise is the standard error over cohorts. *Largest* is the one "
        "that is largest in units of its noise, *beyond* how many exceed twice their noise. *p* is the probability "
        "that the largest of a line is so large by chance (signs of cohorts flipped, all gaps together).",
        "",
        "| design | measure | largest between | size | beyond twice the noise | p |",
        "|---|---|---|---|---|---|",
        *found,
        "",
        f"Beyond twice their noise: {beyond}; without any step, {expected:.1f} are expected.",
        "",
        "Produced by `python benchmarks/proof/continuity.py run`, `table` and `plot`.",
        "",
    ]
    return "\n".join(lines)


def picture(records: list[dict[str, Any]], out: Path) -> None:
    """Draw the three measures against N, a column a design, with bars of two standard errors and the trend."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    designs = [name for name in DESIGNS if name in {record["design"] for record in records}]
    figure, axes = pyplot.subplots(
        len(MEASURES), len(designs), figsize=(0.6 + 2.8 * len(designs), 7), squeeze=False, sharex=True, sharey="row"
    )
    for line, (measure, logarithm) in enumerate(MEASURES.items()):
        for column, design in enumerate(designs):
            ax = axes[line, column]
            rows, values = values_of(records, design, measure)
            if len(values):
                error = 2 * values.std(axis=0, ddof=1) / np.sqrt(len(values)) if len(values) > 1 else None
                ax.errorbar(rows, values.mean(axis=0), error, color="#08306b", marker="o", markersize=3.5, linewidth=0)
                for bar in ax.containers[0][2]:
                    bar.set_linewidth(1.2)
                if len(rows) > _ORDER + 1:
                    means = (np.log(values) if logarithm else values).mean(axis=0)
                    trend = np.polynomial.Polynomial.fit(np.log(rows), means, _ORDER)
                    fine = np.geomspace(rows[0], rows[-1], 100)
                    curve = trend(np.log(fine))
                    ax.plot(fine, np.exp(curve) if logarithm else curve, color="0.6", linewidth=1, zorder=0)
                ax.set_xscale("log")
                ax.set_xticks(rows, [f"{size:,}" for size in rows], rotation=60, fontsize=7)
                ax.minorticks_off()
            ax.spines[["top", "right"]].set_visible(False)
            if line == 0:
                ax.set_title(design, fontsize=10)
            if line == len(MEASURES) - 1:
                ax.set_xlabel("training rows")
        axes[line, 0].set_ylabel(_WORDS[measure], fontsize=9)
    figure.tight_layout()
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def options(running: argparse.ArgumentParser) -> None:
    """Add the options of ``run``."""
    running.add_argument("--design", nargs="+", choices=DESIGNS, default=DESIGNS)
    running.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="N")
    running.add_argument("--replicates", type=int, default=10, metavar="R", help="cohorts of a design (%(default)s)")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    return study_command.main("continuity", __doc__, arguments, options=options, run=run, page=page, picture=picture)


if __name__ == "__main__":
    sys.exit(main())
