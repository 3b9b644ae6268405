"""What this process knows of its own requests, for Prometheus; gone when it ends."""

from __future__ import annotations

import platform
from collections.abc import Iterable

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.metrics_core import Metric

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
METHODS = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})  # any other word is "other"
# Why connections were ended before their callers ended them; docs/operations.md says what each means.
ENDINGS = ("full", "large_head", "made_room", "malformed", "silent", "slow_head", "stuck")

disable_created_metrics()  # type: ignore[no-untyped-call]


class Meter:
    """One per app: the registry of prometheus_client is the whole process'."""

    def __init__(self, version: str) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        build = Info("dyno_build", "The version of this API process", registry=self._registry)
        build.info({"version": version, "python": platform.python_version()})
        self.connections = Gauge("dyno_connections", "Connections that callers have open", registry=self._registry)
        self._endings = Counter(
            "dyno_connections_ended", "Connections that this API process ended", ["why"], registry=self._registry
        )
        for why in ENDINGS:
            self._endings.labels(why)
        self._requests = Histogram(
            "dyno_http_request_duration_seconds",
            "From a request to the beginning of its answer, by this API process; held: a long poll",
            ["method", "route", "status", "held"],
            buckets=BOUNDS_S,
            registry=self._registry,
        )

    def answered(self, method: str, route: str, status: int, seconds: float, *, held: bool) -> None:
        """`route` is a template, never a path: it becomes a label."""
        known = method if method in METHODS else "other"
        self._requests.labels(known, route, str(status), "yes" if held else "no").observe(seconds)

    def left(self, why: str) -> None:
        """A connection is ended, for one of the known reasons."""
        self._endings.labels(why).inc()

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()
