"""Do the bands hold the true curves as often as they say? Simulated cohorts, many times over.

``run`` does the jobs that are not stored yet and adds a line to the store for each, so that a run that was stopped goes
on where it was; ``table`` and ``plot`` make the page and the picture of the documentation from the store.
``python benchmarks/proof/coverage_study.py run --replicates 1 --rows 25`` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Before torch is imported, which reads this only once: the jobs themselves run in parallel.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

from job_store import append, read_store  # noqa: E402

FOLDER = Path(__file__).parent
STORE = FOLDER / "coverage.jsonl"
PAGE = FOLDER.parents[1] / "docs" / "proof" / "coverage.md"
PICTURE = PAGE.with_suffix(".png")


def jobs_wanted(given: argparse.Namespace) -> list[Any]:
    """Return the jobs that were asked for, replicate by replicate, so that all cells grow together."""
    from coverage_jobs import Job

    return [
        Job(preset, design, rows, censoring, replicate)
        for replicate in range(given.replicates)
        for rows in given.rows
        for preset in given.preset
        for design in given.design
        for censoring in given.censoring
    ]


def run(given: argparse.Namespace) -> int:
    """Do what is not stored yet."""
    from coverage_jobs import fingerprint
    from coverage_jobs import run as run_job
    from joblib import Parallel, delayed

    from neuralsurv.progress import bar

    done = {_key(record) for record in read_store(given.store) if not (given.retry_failed and "error" in record)}
    wanted = jobs_wanted(given)
    left = [job for job in wanted if (*vars(job).values(), fingerprint(job.preset, job.rows)) not in done]
    print(f"{len(wanted)} jobs, {len(wanted) - len(left)} of them stored, {len(left)} to do")
    finished = Parallel(n_jobs=given.jobs, return_as="generator_unordered")(
        delayed(run_job)(job, given.draws) for job in left
    )
    with bar("coverage", len(left), "auto") as advance:
        for count, record in enumerate(finished, 1):
            append(given.store, record)
            advance(count, f"{count} of {len(left)}: {record['design']}, {record['rows']} rows")
    return 0


def _key(record: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(record[name] for name in ("preset", "design", "rows", "censoring", "replicate", "fingerprint"))


def table(given: argparse.Namespace) -> int:
    """Write the page."""
    from coverage_report import page

    text = page(read_store(given.store))
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
    running.add_argument("--design", nargs="+", choices=DESIGNS, default=list(DESIGNS))
    running.add_argument("--rows", nargs="+", type=int, default=ROWS, metavar="N")
    running.add_argument("--censoring", nargs="+", type=float, default=CENSORING, metavar="SHARE")
    running.add_argument("--replicates", type=int, default=10, metavar="R", help="cohorts in a cell (%(default)s)")
    running.add_argument("--draws", type=int, default=1000, metavar="S", help="posterior draws (%(default)s)")
    running.add_argument("--jobs", type=int, default=1, metavar="J", help="jobs at once; -1 for all cores")
    running.add_argument("--retry-failed", action="store_true", help="do jobs again that are stored as failed")
    running.set_defaults(action=run)
    for name, action, out in (("table", table, PAGE), ("plot", plot, PICTURE)):
        making = actions.add_parser(name, parents=[common], help=f"write {out.name} of the documentation")
        making.add_argument("--out", type=Path, default=out, metavar="FILE")
        making.set_defaults(action=action)
    given = parser.parse_args(arguments)
    try:
        return int(given.action(given))
    except KeyboardInterrupt:
        print("stopped; start again to go on where it was.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
