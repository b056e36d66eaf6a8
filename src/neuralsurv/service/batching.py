"""Requests for a few people, answered together by one thread: as many as have come in while it was busy.

No request waits for others: one that arrives alone is answered at once.
"""

from __future__ import annotations

import queue
from collections.abc import Callable
from threading import Thread
from typing import Generic, TypeVar

from neuralsurv.inference.threads import threads_for

Item = TypeVar("Item")


class BatchingThread(Generic[Item]):
    """Hands jobs to `work`, at most `most` at a time; an error that it raises ends the thread."""

    def __init__(self, work: Callable[[list[Item]], None], most: int) -> None:
        self._work, self._most = work, most
        self._waiting: queue.SimpleQueue[Item | None] = queue.SimpleQueue()
        self._thread: Thread | None = None

    def add(self, job: Item) -> None:
        """Queue a job; only one thread may call this."""
        if self._thread is None:
            self._thread = Thread(target=self._run, name="predict_batches", daemon=True)
            self._thread.start()
        self._waiting.put(job)

    def close(self) -> None:
        """End the thread after the queued jobs."""
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
