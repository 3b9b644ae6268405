"""Traces: the interface of tracers. `dyno.otel` makes those that send spans.

A trace covers one job, from its POST through the queue to its runs. Tracing is off by default. OpenTelemetry's own
settings say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …). Between processes a trace
travels as W3C Trace Context's `traceparent`. The job's record keeps it, so a worker continues the request's trace.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal

SpanKindName = Literal["internal", "server", "consumer"]  # OpenTelemetry's names
SpanAttributes = Mapping[str, str | bool | int | float | None]  # None values are left out
Carrier = Mapping[str, str]  # the HTTP headers `traceparent` and `tracestate`


class Span:
    """A unit of work in a trace. This base class records nothing."""

    def note(self, facts: SpanAttributes, *, name: str | None = None, failed: str | None = None) -> None:
        """Add attributes that became known during the span, rename it, or mark it as failed with a reason."""


class Tracer:
    """Makes spans. This base class records nothing; `on` says whether a tracer records."""

    on: ClassVar[bool] = False

    @contextmanager
    def span(
        self, name: str, facts: SpanAttributes, *, follows: Carrier | None = None, kind: SpanKindName = "internal"
    ) -> Iterator[Span]:
        """A span for the block. Its parent is the current span, or the span that `follows` carries."""
        yield Span()

    def past(self, name: str, facts: SpanAttributes, *, follows: Carrier, began_s: float, ended_s: float) -> None:
        """Record a span after the fact, between two Unix times."""

    def carried(self) -> str | None:
        """The current span's `traceparent`, for another process to continue the trace."""
        return None

    def flush(self) -> None:
        """Send all ended spans. Spans that can't be sent within 2 s are lost."""
