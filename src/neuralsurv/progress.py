"""Progress of long computations: bars on a terminal, and log records."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

LOGGER = logging.getLogger("neuralsurv")

Advance = Callable[[int, str], None]


def wanted(verbose: bool | str | int) -> bool:
    """Return whether bars are shown: always, never, or (``"auto"``) where standard error is a terminal."""
    return sys.stderr.isatty() if verbose == "auto" else bool(verbose)


@contextmanager
def bar(title: str, total: int | None, verbose: bool | str | int) -> Iterator[Advance]:
    """Show a progress bar while the block runs.

    It is shown if `verbose`, with ``"auto"`` on a terminal. Yields what is to be called with the number of finished
    steps and a status.
    """

    def log(done: int, words: str) -> None:
        LOGGER.debug("%s: %s", title, words)

    if not wanted(verbose):
        yield log
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), TextColumn("{task.fields[words]}"))
    # Where the number of steps is known, also the time that is left.
    clocks = (
        (TimeElapsedColumn(),) if total is None else (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    )
    with Progress(*columns, *clocks, console=Console(stderr=True)) as progress:
        task = progress.add_task(title, total=total, words="")

        def advance(done: int, words: str) -> None:
            log(done, words)
            progress.update(task, completed=done, words=words)

        yield advance
        progress.update(task, total=progress.tasks[0].completed)
