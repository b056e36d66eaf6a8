"""Requests for a few people, answered together by one thread: as many as have come in while it was busy.

Nobody waits for others to come: a request that arrives alone is answered at once.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from neuralsurv.inference.threads import threads_for

Job = TypeVar("Job")


class BatchingThread(Generic[Job]):
    """Hands jobs to `work`, at most `most` at a time; an error that it raises ends the thread."""

    def __init__(self, work: Callable[[list[Job]], None], most: int) -> None:
        self._work, self._most = work, most
        self._waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._thread: Thread | None = None

    def add(self, job: Job) -> None:
        """Let a job be done soon; for one thread to call."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="predict_batches", daemon=True)
            self._thread.start()
        self._waiting.put(job)

    def close(self) -> None:
        """End the thread after the jobs that wait."""
        self._waiting.put(None)

    def _run(self) -> None:
        # Once for all: changing the number of torch's threads around every small prediction takes as long as these do.
        with threads_for(0):
            while (job := self._waiting.get()) is not None:
                jobs = [job]
                while len(jobs) < self._most and not self._waiting.empty():
                    another = self._waiting.get()
                    if another is None:
                        self.close()
                        break
                    jobs.append(another)
                self._work(jobs)
