"""Faults, at length: kills at random moments, full disks, two writers, fits too large for the memory.

``python benchmarks/proof/faults.py`` takes some minutes, adds a dated line to ``faults.jsonl`` and writes the page of
the documentation. ``--share 0.05 --store /tmp/trial.jsonl`` does a twentieth of the rounds. The tests in
``tests/faults`` do the same in seconds, and make every single call of a write fail.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

# Before torch is imported: a process that is forked must have no threads.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"

FOLDER = Path(__file__).parent
STORE = FOLDER / "faults.jsonl"
PAGE = FOLDER.parents[1] / "docs" / "proof" / "faults.md"
PACKAGES = ("neuralsurv", "torch", "numpy", "safetensors")


def measure(share: float, seed: int) -> dict[str, Any]:
    """Do all rounds and return the record."""
    from fault_memory import FITS, measured, warm_up
    from fault_rounds import SCENARIOS

    chance, scenarios = random.Random(seed), {}
    for name, (rounds, scenario) in SCENARIOS.items():
        began = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            found = scenario(max(2, round(share * rounds)), chance, Path(folder))
        scenarios[name] = {**found, "seconds": round(time.perf_counter() - began, 1)}
        print(f"{name}: {found['rounds']} rounds, {len(found['problems'])} problems", file=sys.stderr, flush=True)
    warm_up()
    fits = {}
    for name, settings in FITS.items():
        estimate, taken = measured(**settings)
        fits[name] = {"estimate_mib": round(estimate), "measured_mib": round(taken)}
        print(f"{name}: said {estimate:.0f} MiB, took {taken:.0f} MiB", file=sys.stderr, flush=True)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "scenarios": scenarios,
        "memory": fits,
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
        "machine": {"system": platform.system(), "processor": platform.machine(), "cores": os.cpu_count()},
    }


def page(record: dict[str, Any] | None) -> str:
    """Return the page in Markdown, without figures where nothing is stored yet."""
    lines = [
        "# Faults",
        "",
        "<!-- Written by `python benchmarks/proof/faults.py`; do not edit. -->",
        "",
        "What is guaranteed when processes are killed, disks are full, clocks change or memory runs out:",
        "",
        "- **A file is either the old one or the new one.** Models, checkpoints and the output of commands are written "
        "to a temporary file in the same folder, flushed to disk, and renamed. An error or Ctrl-C removes the partial "
        "file at once; that of a killed process is removed when the next one writes to the folder. Every file has a "
        "digest: damage is an error, not another prediction.",
        "- **A fit that is killed leaves no files behind,** and a streamed one resumes from its checkpoint with "
        "bit-identical results.",
        "- **Lack of memory is reported before it is allocated:** `NotEnoughMemoryError` says how much a fit or a "
        "prediction needs, how much is available (of the machine, of its container, within the limits of the process) "
        "and what to do. On Linux; elsewhere nothing is refused. `NEURALSURV_MEMORY_GIB` overrides what the system "
        "reports.",
        "- **Clocks may change.** Deadlines, checkpoints and progress bars use a monotonic clock.",
        "",
        "```python",
        "import os",
        "from neuralsurv import NeuralSurv",
        "from neuralsurv.data.simulate import lognormal_cohort",
        "from neuralsurv.errors import NotEnoughMemoryError",
        "",
        "cohort = lognormal_cohort(5_000, seed=0)",
        'os.environ["NEURALSURV_MEMORY_GIB"] = "0.1"',
        "try:",
        "    NeuralSurv().fit(cohort.x, cohort.y)",
        "except NotEnoughMemoryError as error:",
        "    print(error)",
        'del os.environ["NEURALSURV_MEMORY_GIB"]',
        "```",
        "",
        "## Measured",
        "",
    ]
    if record is None:
        return "\n".join([*lines, "Not run yet.", ""])
    lines += [
        f"Run {record['date']}, {record['machine']['cores']} cores, {record['machine']['system']}. The times of the "
        "kills and the positions at which disks were full are random.",
        "",
        "| fault | rounds | broken | what was found |",
        "|---|--:|--:|---|",
    ]
    for name, found in record["scenarios"].items():
        broken = len(found["problems"])
        lines.append(f"| {name} | {found['rounds']} | {broken or 'none'} | {found['found']} |")
    lines += [
        "",
        "The tests of the library (`tests/faults`) do fewer rounds of the same, and in addition let every single call "
        "of a write fail, or kill the process, once, and change the time of day by years while a model is fitted, "
        "streamed and served.",
        "",
        "## Estimated and measured memory",
        "",
        "The estimate comes from the sizes alone (rows, quadrature nodes, weights, solver), before anything is "
        "allocated. *Measured* is the growth of the peak memory of the process.",
        "",
        "| fit | estimate, MiB | measured, MiB | ratio |",
        "|---|--:|--:|--:|",
    ]
    for name, found in record["memory"].items():
        estimate, taken = found["estimate_mib"], found["measured_mib"]
        lines.append(f"| {name} | {estimate} | {taken} | {estimate / max(1, taken):.2f} |")
    lines += ["", "Not covered: a disk that loses data it has confirmed, and bit flips in memory.", ""]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Do the rounds, store them, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--share", type=float, default=1.0, help="share of the rounds to do (default: all)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the moments")
    parser.add_argument("--store", type=Path, default=STORE, help="where a line of JSON is added")
    parser.add_argument("--page-only", action="store_true", help="write the page from what is stored, and do no rounds")
    given = parser.parse_args(arguments)
    from job_store import append, read_store

    if given.page_only:
        PAGE.write_text(page((read_store(STORE) or [None])[-1]), encoding="utf-8")
        return 0
    if not hasattr(os, "fork"):
        raise SystemExit("this system cannot fork processes; run it on Linux or macOS.")
    record = measure(given.share, given.seed)
    append(given.store, record)
    if given.store == STORE:
        PAGE.write_text(page(record), encoding="utf-8")
    print(page(record))
    problems = [problem for found in record["scenarios"].values() for problem in found["problems"]]
    print("\n".join(problems[:20]), file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
