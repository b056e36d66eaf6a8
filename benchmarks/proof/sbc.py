"""Simulation-based calibration of the exact sampler, of the paper's CAVI, its correction, and the default's Gaussian.

``run`` does the replicates that are not stored yet and adds a line to the store for each, so that a run that was
stopped goes on where it was; ``table`` and ``plot`` make the page and the picture of the documentation from the store.
``python benchmarks/proof/sbc.py run --replicates 5 --store /tmp/trial.jsonl`` is quick.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

# Before torch is imported, which reads this only once: the jobs themselves run in parallel.
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

from job_store import append, read_store  # noqa: E402

FOLDER = Path(__file__).parent
STORE = FOLDER / "sbc.jsonl"
PAGE = FOLDER.parents[1] / "docs" / "proof" / "sbc.md"
PICTURE = PAGE.with_suffix(".png")


def fingerprint(model: str) -> str:
    """Return a digest of a model and of the chains, so that ranks of another are not taken for its own."""
    import sbc_models

    made = sbc_models.MODELS[model]()
    said = (
        [round(value, 6) for value in (*made.theta_star.tolist(), *made.precision.tolist())],
        [sbc_models.ROWS, sbc_models.LEAST_EVENTS, sbc_models.DRAWS],
        [sbc_models.CHAINS, sbc_models.WARMUP, sbc_models.THIN],
    )
    return hashlib.sha256(repr(said).encode()).hexdigest()[:12]


def do(model: str, method: str, number: int, digest: str) -> dict[str, Any]:
    """Do one replicate and return its record."""
    from sbc_models import replicate

    began = time.process_time()
    record = {"model": model, "method": method, "replicate": number, "fingerprint": digest}
    record |= replicate(model, method, number)
    seconds = round(time.process_time() - began, 2)
    return record | {"seconds": seconds, "date": datetime.now(UTC).date().isoformat()}


def run(given: argparse.Namespace) -> int:
    """Do what is not stored yet."""
    from joblib import Parallel, delayed
    from sbc_models import METHODS

    from neuralsurv.progress import bar

    prints = {model: fingerprint(model) for model in given.model}
    done = {(r["model"], r["method"], r["replicate"], r["fingerprint"]) for r in read_store(given.store)}
    wanted = [
        (model, method, number, prints[model])
        for number in range(given.replicates)
        for model in given.model
        for method in METHODS[model]
    ]
    left = [job for job in wanted if job not in done]
    print(f"{len(wanted)} jobs, {len(wanted) - len(left)} of them stored, {len(left)} to do", flush=True)
    finished = Parallel(n_jobs=given.jobs, return_as="generator_unordered")(delayed(do)(*job) for job in left)
    with bar("calibration", len(left), "auto") as advance:
        for count, record in enumerate(finished, 1):
            append(given.store, record)
            advance(count, f"{count} of {len(left)}")
    return 0


def table(given: argparse.Namespace) -> int:
    """Write the page."""
    from sbc_report import page

    text = page(read_store(given.store), {model: fingerprint(model) for model in _models()})
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(text, encoding="utf-8")
    print(text)
    return 0


def plot(given: argparse.Namespace) -> int:
    """Draw the picture."""
    from sbc_report import picture

    given.out.parent.mkdir(parents=True, exist_ok=True)
    picture(read_store(given.store), {model: fingerprint(model) for model in _models()}, given.out)
    print(f"drawn: {given.out.name}")
    return 0


def _models() -> list[str]:
    from sbc_models import MODELS

    return list(MODELS)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(required=True, metavar="ACTION")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--store", type=Path, default=STORE, metavar="FILE", help="results (default: sbc.jsonl)")
    running = actions.add_parser("run", parents=[common], help="do the replicates that are not stored yet")
    running.add_argument("--model", nargs="+", choices=_models(), default=_models())
    running.add_argument("--replicates", type=int, default=300, metavar="R", help="cohorts of each (%(default)s)")
    running.add_argument("--jobs", type=int, default=1, metavar="J", help="jobs at once; -1 for all cores")
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
