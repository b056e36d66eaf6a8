"""The store of a study: one line of JSON for each job that is done, so that a run that was stopped goes on."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any


def read_store(store: Path) -> list[dict[str, Any]]:
    """Return the stored records; a last line that was cut off while it was written counts as not done."""
    if not store.exists():
        return []
    records = []
    for line in store.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            records.append(json.loads(line))
    return records


def append(store: Path, record: dict[str, Any]) -> None:
    """Add a line to the store and see it onto the disk; what a killed run left of a line is cut off first."""
    store.parent.mkdir(parents=True, exist_ok=True)
    with store.open("a+b") as lines:
        if lines.tell():
            lines.seek(0)
            whole = lines.read().rfind(b"\n") + 1
            lines.truncate(whole)
        lines.write(json.dumps(record).encode() + b"\n")
        lines.flush()
        os.fsync(lines.fileno())


def run_jobs(
    title: str,
    store: Path,
    jobs: Sequence[Any],
    work: Callable[[Any], dict[str, Any]],
    *,
    key: Callable[[dict[str, Any]], Hashable],
    key_of_job: Callable[[Any], Hashable],
    at_once: int = 1,
    retry_failed: bool = False,
) -> int:
    """Do the jobs that are not stored yet, store each as soon as it is done, and return how many were done.

    Parameters
    ----------
    title, store, jobs, work
        What is said in the progress bar, the file, the jobs, and what makes a job's record.
    key, key_of_job
        What tells whether a record is that of a job.
    at_once
        Processes; -1 for all cores.
    retry_failed
        Do jobs again whose record has an ``error``.
    """
    from joblib import Parallel, delayed

    from neuralsurv.progress import bar

    done = {key(record) for record in read_store(store) if not (retry_failed and "error" in record)}
    left = [job for job in jobs if key_of_job(job) not in done]
    print(f"{len(jobs)} jobs, {len(jobs) - len(left)} of them stored, {len(left)} to do", flush=True)
    began = time.monotonic()
    finished = Parallel(n_jobs=at_once, return_as="generator_unordered")(delayed(work)(job) for job in left)
    with bar(title, len(left), "auto") as advance:
        for count, record in enumerate(finished, 1):
            append(store, record)
            minutes = (time.monotonic() - began) / 60
            words = f"{count} of {len(left)}, about {minutes / count * (len(left) - count):.0f} min left"
            advance(count, words)
            if not sys.stderr.isatty():
                print(f"{title}: {words}", file=sys.stderr, flush=True)
    return len(left)
