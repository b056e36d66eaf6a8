"""Run the jobs that are not in the store yet, in parallel, and store each as soon as it ends."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import Protocol, TypeVar

import joblib
from joblib.parallel import get_active_backend
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from neuralsurv_bench.store import Key, Record, Store

# Where nobody is watching a terminal, a line is written at most this often.
_SECONDS_BETWEEN_LINES = 30.0


class HasKey(Protocol):
    """Anything with the name under which its result is stored."""

    @property
    def key(self) -> Key:
        """The name."""
        ...


AnyJob = TypeVar("AnyJob", bound=HasKey)
Say = Callable[[str], None]


@dataclass(frozen=True)
class Summary:
    """What a run did.

    Attributes
    ----------
    finished, failed : int
        Jobs that ended in this run.
    before : int
        Jobs that were in the store already.
    left : int
        Jobs that were not started, because time was up.
    """

    finished: int
    failed: int
    before: int
    left: int


def run(
    jobs: Sequence[AnyJob],
    execute: Callable[[AnyJob], Record],
    store: Store,
    *,
    title: str = "jobs",
    alone: bool = False,
    retry_failed: bool = False,
    limit_seconds: float | None = None,
    saved: Callable[[Record], None] | None = None,
) -> Summary:
    """Run the jobs that the store does not hold.

    How many run at once, and where, is joblib's to decide: call this inside ``joblib.parallel_config(n_jobs=…)``, with
    the name of a backend (dask, ray, …) to leave this machine.

    Parameters
    ----------
    jobs : sequence
        The jobs, in the order in which they are to start; each has a `key`.
    execute : callable
        Does a job and returns its record, failed or not. It is called in the workers, so it must be importable there.
    store : Store
        Where the records go. Only this process writes to it.
    title : str
        Shown beside the progress.
    alone : bool
        Run the jobs in this process, one after the other.
    retry_failed : bool
        Whether jobs that are stored as failed are done again.
    limit_seconds : float, optional
        No job is started after this time; those that run are waited for.
    saved : callable, optional
        Called with every record once it is on the disk.
    """
    done = store.stored("finished") if retry_failed else store.stored()
    waiting = [job for job in jobs if job.key not in done]
    before = len(jobs) - len(waiting)
    deadline = None if limit_seconds is None else time.monotonic() + limit_seconds
    counts = {"finished": 0, "failed": 0}
    with _progress(title, len(jobs), before) as advance:
        for record in _results(_until(waiting, deadline), execute, alone):
            store.save(record)
            if saved is not None:
                saved(record)
            counts[record.status] += 1
            advance(f"{counts['failed']} failed" if counts["failed"] else "")
    left = len(waiting) - sum(counts.values())
    return Summary(counts["finished"], counts["failed"], before, left)


def _until(jobs: Iterable[AnyJob], deadline: float | None) -> Iterator[AnyJob]:
    for job in jobs:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield job


def _results(jobs: Iterator[AnyJob], execute: Callable[[AnyJob], Record], alone: bool) -> Iterator[Record]:
    """Yield the records as they come, in whatever order the jobs end."""
    if alone:
        yield from map(execute, jobs)
        return
    # One job a task, and no more of them handed out than there are workers: otherwise results would wait in a batch,
    # and a time limit would come too late.
    options = {"batch_size": 1, "pre_dispatch": "n_jobs"}
    task = joblib.delayed(execute)
    backend, wanted = get_active_backend()
    if backend.supports_return_generator:
        stream = joblib.Parallel(return_as="generator_unordered", **options)
        yield from stream(task(job) for job in jobs)
        return
    # A backend that can only return everything at once gets a few jobs at a time.
    parallel, workers = joblib.Parallel(**options), joblib.effective_n_jobs(wanted)
    while some := list(islice(jobs, workers)):
        yield from parallel(task(job) for job in some)


@contextmanager
def _progress(title: str, total: int, before: int) -> Iterator[Say]:
    """Show how far the work is and how long it will take: a bar on a terminal, now and then a line elsewhere."""
    if sys.stderr.isatty():
        columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
        times = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(), TextColumn("{task.fields[words]}"))
        with Progress(*columns, *times, console=Console(stderr=True), speed_estimate_period=600) as progress:
            task = progress.add_task(title, total=total, completed=before, words="")
            yield lambda words: progress.update(task, advance=1, words=words)
        return
    began, count, last = time.monotonic(), 0, float("-inf")

    def line(words: str) -> None:
        nonlocal count, last
        count += 1
        now = time.monotonic()
        if now - last < _SECONDS_BETWEEN_LINES and before + count < total:
            return
        last = now
        minutes = (now - began) / count * (total - before - count) / 60
        rest = f", {words}" if words else ""
        print(f"{title}: {before + count} of {total}, about {minutes:.0f} min left{rest}", file=sys.stderr, flush=True)

    yield line
