"""Metrics of the service, in the text format of Prometheus. None of them reveals anything about a person."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from prometheus_client.metrics_core import Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_SECONDS = "From the arrival of a request to the end of its answer."


# Name, text, kind and samples of a metric; of a sample its name, labels and value.
_Plain = list[tuple[str, str, str, list[tuple[str, dict[str, str], float]]]]


@dataclass(frozen=True)
class SharedMetrics:
    """Metrics of several workers, each of which writes its own into a file of a folder from time to time."""

    folder: Path
    worker: int

    def write(self, own: Iterable[Metric]) -> None:
        """Write the metrics of this worker for the others; one thread at a time."""
        partial = self.folder / f"{self.worker}.partial"
        partial.write_text(json.dumps(_plain(own)), encoding="ascii")
        os.replace(partial, self.folder / f"{self.worker}.json")

    def all(self, own: Iterable[Metric]) -> list[Metric]:
        """Return the metrics of all workers, labelled by their numbers; those of others as they were written last."""
        workers = {file.stem: json.loads(file.read_text(encoding="ascii")) for file in self.folder.glob("*.json")}
        workers[str(self.worker)] = _plain(own)
        found: dict[str, Metric] = {}
        for worker in sorted(workers, key=int):
            for name, text, kind, samples in workers[worker]:
                family = found.setdefault(name, Metric(name, text, kind))
                for sample, labels, value in samples:
                    family.add_sample(sample, {**labels, "worker": worker}, value)
        return list(found.values())


def _plain(found: Iterable[Metric]) -> _Plain:
    return [
        (one.name, one.documentation, one.type, [(each.name, each.labels, each.value) for each in one.samples])
        for one in found
    ]


class _Collected:
    """Metrics as prometheus_client takes them."""

    def __init__(self, found: list[Metric]) -> None:
        self._found = found

    def collect(self) -> list[Metric]:
        return self._found


class PrometheusMetrics:
    """The metrics of one service, or of one of its workers."""

    def __init__(self, shared: SharedMetrics | None = None) -> None:
        self._registry = registry = CollectorRegistry()
        self._shared = shared
        labels = ("path", "method", "status")
        self._requests = Counter("neuralsurv_requests", "Answered requests.", labels, registry=registry)
        self._seconds = Histogram(
            "neuralsurv_request_seconds", _SECONDS, ("path",), buckets=_BUCKETS, registry=registry
        )
        self.people = Counter("neuralsurv_predicted_people", "People predicted for.", registry=registry)
        # Memory and processor time of the process, where the system reports them.
        ProcessCollector(registry=registry)

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Add a number that is looked up whenever the metrics are read."""
        Gauge(f"neuralsurv_{name}", text, registry=self._registry).set_function(value)

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is a route and never what a client made up, so that there are few of them."""
        self._requests.labels(path, method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def share(self) -> None:
        """Share the metrics of this worker with the others."""
        if self._shared is not None:
            self._shared.write(self._registry.collect())

    def text(self) -> bytes:
        """Return all metrics, with several workers those of all of them."""
        if self._shared is None:
            return generate_latest(self._registry)
        return generate_latest(_Collected(self._shared.all(self._registry.collect())))
