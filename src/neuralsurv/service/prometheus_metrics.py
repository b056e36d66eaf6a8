"""Metrics of the service, in the text format of Prometheus. None of them reveals anything about a person."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_BUCKETS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_METHODS = ("GET", "HEAD", "POST", "OPTIONS")
_SECONDS = "From the arrival of a request to the end of its answer."


class PrometheusMetrics:
    """The metrics of one service."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
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

    def text(self) -> bytes:
        """Return all metrics."""
        return generate_latest(self._registry)
