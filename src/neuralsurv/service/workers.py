"""A service in one process, or in several that share a port.

Every worker opens the model, watches its file and has limits of its own. The process that starts them opens no model:
it restarts a worker that has ended, and stops all of them when it receives a signal.
"""

from __future__ import annotations

import gc
import logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from threading import Thread
from types import FrameType
from typing import Any

from neuralsurv.errors import InputError, NeuralSurvError
from neuralsurv.service.middleware import Access
from neuralsurv.service.prometheus_metrics import SharedMetrics
from neuralsurv.service.request_parsing import Limits
from neuralsurv.service.server import GRACE, Server

log = logging.getLogger("neuralsurv.service")

# Seconds between two looks at the workers, before one that has ended is restarted, and for it to exit after its grace.
_POLL_EVERY = 0.2
_RESTART_DELAY = 1.0
_EXIT_GRACE = 5.0


@dataclass(frozen=True)
class ServiceSettings:
    """What is served, and how."""

    path: Path
    access: Access
    limits: Limits
    threads: int
    page: Callable[[Any], tuple[str, ...]] | None  # what adds a page to the service
    quiet: bool


def serve(
    settings: ServiceSettings,
    place: socket.socket,
    ready: Callable[[tuple[str, ...]], None],
    metrics: SharedMetrics | None = None,
    server: Callable[[Server], None] = lambda _: None,
) -> None:
    """Serve a model in this process until it is stopped; `ready` is called with the warnings of the fit before that."""
    # Imported late: with several workers only these need torch.
    from neuralsurv.service.application import create_app
    from neuralsurv.service.model_watch import ModelWatch

    log_to_stderr(quiet=settings.quiet)
    watch = ModelWatch(settings.path)
    app = create_app(
        watch,
        access=settings.access,
        limits=settings.limits,
        threads=settings.threads,
        page=settings.page,
        shared_metrics=metrics,
    )
    ready(watch.current.model.diagnostics_.messages)
    # Otherwise every garbage collection during a large request would search the objects of all libraries.
    gc.collect()
    gc.freeze()
    found = Server(app)
    server(found)
    found.run(sockets=[place])


class Workers:
    """Several processes that serve one model at one port."""

    def __init__(self, settings: ServiceSettings, count: int, place: socket.socket, folder: Path) -> None:
        self._settings, self._place, self._folder = settings, place, folder
        self._context = multiprocessing.get_context("spawn")
        self._count = count
        self._running: list[tuple[SpawnProcess, Connection]] = []
        self._signal: int | None = None

    def run(self, ready: Callable[[tuple[str, ...]], None]) -> int:
        """Start the workers, keep them running until a signal comes, and return its number."""
        log_to_stderr(quiet=self._settings.quiet)
        before = {number: signal.signal(number, self._receive) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self._running = [self._start(number) for number in range(self._count)]
            said = [self._wait_until_ready(number) for number in range(self._count)]
            if self._signal is None:
                ready(said[0])
            while self._signal is None:
                self._restart_ended()
        finally:
            self._stop()
            for number, handler in before.items():
                signal.signal(number, handler)
        return self._signal

    def _receive(self, number: int, frame: FrameType | None) -> None:
        self._signal = number

    def _start(self, number: int) -> tuple[SpawnProcess, Connection]:
        ours, theirs = self._context.Pipe()
        metrics = SharedMetrics(self._folder, number)
        threads = max(1, (os.cpu_count() or 1) // self._count)
        process = self._context.Process(
            target=work, args=(self._settings, self._place, theirs, metrics, threads), name=f"worker {number}"
        )
        process.start()
        # So that the pipe ends when the worker does.
        theirs.close()
        return process, ours

    def _wait_until_ready(self, number: int) -> tuple[str, ...]:
        """Wait until a worker is ready and return the warnings of its model; raise what it could not do."""
        process, pipe = self._running[number]
        while self._signal is None:
            if not pipe.poll(_POLL_EVERY):
                continue
            try:
                found = pipe.recv()
            except EOFError:
                raise InputError(f"a worker ended with code {process.exitcode} before it could answer.") from None
            if isinstance(found, NeuralSurvError):
                raise found
            return tuple(found)
        return ()

    def _restart_ended(self) -> None:
        """Wait a moment, and restart workers that have ended."""
        multiprocessing.connection.wait([process.sentinel for process, _ in self._running], _POLL_EVERY)
        for number, (process, pipe) in enumerate(self._running):
            if process.is_alive() or self._signal is not None:
                continue
            log.warning("worker %d has ended with code %s and is restarted", number, process.exitcode)
            pipe.close()
            time.sleep(_RESTART_DELAY)
            self._running[number] = self._start(number)

    def _stop(self) -> None:
        for _, pipe in self._running:
            pipe.close()
        end = time.monotonic() + GRACE + _EXIT_GRACE
        for process, _ in self._running:
            process.join(max(0.0, end - time.monotonic()))
            if process.is_alive():
                process.kill()
                process.join()


def work(
    settings: ServiceSettings, place: socket.socket, pipe: Connection, metrics: SharedMetrics, threads: int
) -> None:
    """Serve as one of several workers, until the pipe to its parent process is closed."""
    # A terminal interrupts all processes; the parent stops its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    import torch

    torch.set_num_threads(threads)

    def until_the_pipe_ends(server: Server) -> None:
        def listen() -> None:
            try:
                pipe.recv()
            except (EOFError, OSError):
                server.should_exit = True

        Thread(target=listen, daemon=True).start()

    # A pipe that has ended meanwhile says the same.
    with suppress(BrokenPipeError):
        try:
            serve(settings, place, pipe.send, metrics, until_the_pipe_ends)
        except NeuralSurvError as error:
            pipe.send(error)
            sys.exit(1)


def log_to_stderr(*, quiet: bool) -> None:
    """Write what the service and uvicorn report to standard error; without lines for each request if quiet."""
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", "%Y-%m-%dT%H:%M:%S"))
    for name, level in (("neuralsurv.service", "WARNING" if quiet else "INFO"), ("uvicorn", "WARNING")):
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler]
        logger.setLevel(level)
        logger.propagate = False
