"""Metrics of the service, in the text format of Prometheus. None of them reveals anything about a person."""

from __future__ import annotations

from functools import partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")


class PrometheusMetrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        self._requests = Counter(
            "neuralsurv_requests", "Answered requests.", ("path", "method", "status"), registry=registry
        )
        arrival_to_end = "From the arrival of a request to the end of its answer."
        self._seconds = Histogram(
            "neuralsurv_request_seconds", arrival_to_end, ("path",), buckets=_BUCKETS, registry=registry
        )
        self._people = Counter("neuralsurv_predicted_people", "People predicted for.", registry=registry)
        gauge = partial(Gauge, registry=registry)
        self.working = gauge("neuralsurv_predictions_in_progress", "Predictions that wait or run.")
        self._loads = gauge("neuralsurv_model_loads", "How often a model file was opened.")
        self._failures = gauge("neuralsurv_model_load_failures", "How often a new model file could not be used.")
        self._stale = gauge("neuralsurv_model_stale", "1 while the model file cannot be used.")
        self._since = gauge("neuralsurv_model_loaded_timestamp_seconds", "When the model was opened.")
        # Memory and processor time of the process, where the system reports them.
        ProcessCollector(registry=registry)

    def answered(self, path: str, method: str, status: int, seconds: float) -> None:
        """Count an answer; `path` is a route and never what a client made up, so that there are few of them."""
        known = method if method in _METHODS else "other"
        self._requests.labels(path, known, str(status)).inc()
        self._seconds.labels(path).observe(seconds)

    def predicted(self, people: int) -> None:
        """Count people."""
        self._people.inc(people)

    def model(self, loads: int, failures: int, stale: bool, since: float) -> None:
        """Record the state of the model file."""
        self._loads.set(loads)
        self._failures.set(failures)
        self._stale.set(int(stale))
        self._since.set(since)

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)
