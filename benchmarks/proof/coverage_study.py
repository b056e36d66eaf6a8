"""Do the bands hold the true curves as often as they say? Simulated cohorts, many times over.

``run`` does the cohorts that are not stored yet and adds a line to the store for each, so that a run that was stopped
goes on where it was; ``table`` and ``plot`` make the page and the picture of the documentation from the store, and
``table --check`` ends with 1 if a cell of design and rows is not covered as it should be.
``python benchmarks/proof/coverage_study.py run --replicates 1 --rows 60`` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Before torch is imported, which reads this only once: the jobs themselves run in parallel.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[_name] = "1"

from job_store import read_store, run_jobs  # noqa: E402

FOLDER = Path(__file__).parent
STORE = FOLDER / "coverage.jsonl"
PAGE = FOLDER.parents[1] / "docs" / "proof" / "coverage.md"
PICTURE = PAGE.with_suffix(".png")


def jobs_wanted(given: argparse.Namespace) -> list[Any]:
    """Return the jobs that were asked for, replicate by replicate, so that all cells grow together.

    The censoring shares take turns, so that a cell of design and rows has cohorts of all of them.
    """
    from coverage_jobs import DESIGNS, Job

    designs = list(DESIGNS) if "all" in given.design else given.design
    return [
        Job(preset, design, rows, given.censoring[replicate % len(given.censoring)], replicate)
        for replicate in range(given.replicates)
        for rows in given.rows
        for preset in given.preset
        for design in designs
    ]


def run(given: argparse.Namespace) -> int:
    """Do what is not stored yet."""
    from coverage_jobs import digest
    from coverage_jobs import run as run_job

    models = {preset: digest(preset) for preset in given.preset}
    run_jobs(
        "coverage",
        given.store,
        jobs_wanted(given),
        lambda job: run_job(job, models[job.preset], given.draws),
        key=_key,
        key_of_job=lambda job: (*vars(job).values(), models[job.preset]),
        at_once=given.jobs,
        retry_failed=given.retry_failed,
    )
    return 0


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record.get(name) for name in ("preset", "design", "rows", "censoring", "replicate", "model"))


def table(given: argparse.Namespace) -> int:
    """Write the page, or with --check only say which cells do not hold."""
    from coverage_jobs import PRESETS, digest
    from coverage_report import RULE, newest, page, problems

    records = read_store(given.store)
    if given.check:
        own = newest(records)
        found = problems(own)
        if own["model"].iloc[0] != digest("default"):
            found = [f"the results are of {own['date'].max()} and of another model than today's; do `run` first."]
        print(RULE, *found, f"{len(found)} problems" if found else "every cell holds", sep="\n")
        return 1 if found else 0
    text = page(records, {preset: digest(preset) for preset in PRESETS})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def plot(given: argparse.Namespace) -> int:
    """Draw the picture."""
    from coverage_report import picture

    given.out.parent.mkdir(parents=True, exist_ok=True)
    picture(read_store(given.store), given.out)
    print(f"drawn: {given.out.name}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    from coverage_jobs import CENSORING, DESIGNS, PRESETS, ROWS

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="results (default: coverage.jsonl)")
    running = actions.add_parser("run", parents=[common], help="do the jobs that are not stored yet")
    running.add_argument("--preset", nargs="+", choices=PRESETS, default=["default"])
    running.add_argument("--design", nargs="+", choices=["all", *DESIGNS], default=["all"])
    running.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="N")
    running.add_argument("--censoring", nargs="+", type=float, default=CENSORING, metavar="SHARE", help="take turns")
    running.add_argument("--replicates", type=int, default=20, metavar="R", help="cohorts in a cell (%(default)s)")
    running.add_argument("--draws", type=int, default=1000, metavar="S", help="posterior draws (%(default)s)")
    running.add_argument("--jobs", type=int, default=1, metavar="J", help="jobs at once; -1 for all cores")
    running.add_argument("--retry-failed", action="store_true", help="do jobs again that are stored as failed")
    running.set_defaults(action=run)
    for name, action, out in (("table", table, PAGE), ("plot", plot, PICTURE)):
        making = actions.add_parser(name, parents=[common], help=f"write {out.name} of the documentation")
        making.add_argument("--out", type=Path, default=out, metavar="FILE")
        making.set_defaults(action=action)
        if name == "table":
            making.add_argument(
                "--check", action="store_true", help="write nothing; end with 1 if a cell does not hold"
            )
    given = parser.parse_args(arguments)
    try:
        return int(given.action(given))
    except KeyboardInterrupt:
        print("stopped; start again to go on where it was.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
