"""Traces: spans of a request, of a job's time in the queue, and of its attempts and runs.

A trace covers one job, from its POST through the queue to its runs. Tracing is off by default. OpenTelemetry's own
settings say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …). Processes pass a trace on as
the `traceparent` of W3C Trace Context. The job's record keeps it, so that a worker continues the request's trace.

OpenTelemetry is an optional dependency, so only a tracer that records spans imports it.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, ClassVar, Literal

from dyno.errors import TracingMissing
from dyno.settings import Settings

if TYPE_CHECKING:
    from opentelemetry.context import Context
    from opentelemetry.trace import Span as Otel
    from opentelemetry.util.types import AttributeValue

SpanKindName = Literal["internal", "server", "consumer"]  # OpenTelemetry's names
SpanAttributes = Mapping[str, str | bool | int | float | None]  # None values are left out
Carrier = Mapping[str, str]  # the HTTP headers `traceparent` and `tracestate`
_SENT_WITHIN_S = 2.0  # short, because a worker takes no job while it sends spans
_NEVER_MS = 24 * 3600 * 1000


class Span:
    """A unit of work in a trace. This base class records nothing."""

    def note(self, facts: SpanAttributes, *, name: str | None = None, failed: str | None = None) -> None:
        """Add attributes that became known during the span, rename the span, or mark it as failed with a reason."""


class Tracer:
    """Makes spans. This base class records nothing. `on`: whether a tracer records spans."""

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


def tracer_for(settings: Settings, service: str, *, sends_by_itself: bool) -> Tracer:
    """The tracer for these settings. Without `sends_by_itself`, spans are sent by `flush` only, never in between.

    Raises TracingMissing if OpenTelemetry isn't installed.
    """
    if not settings.traces:
        return Tracer()
    try:
        return _OtelTracer(service, sends_by_itself=sends_by_itself)
    except ImportError as error:
        message = f'DYNO_TRACES is set, but {error.name} is missing; run pip install ".[otel]" in a checkout'
        raise TracingMissing(message) from error


class _OtelTracer(Tracer):
    """Sends spans over OTLP/HTTP with OpenTelemetry's SDK.

    It has its own provider instead of the process-wide provider, so that other libraries' spans aren't sent.
    """

    on = True

    def __init__(self, service: str, *, sends_by_itself: bool) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        name = os.environ.get("OTEL_SERVICE_NAME", service)
        exporter = OTLPSpanExporter(timeout=_SENT_WITHIN_S)
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=None if sends_by_itself else _NEVER_MS)
        )
        self._tracer = self._provider.get_tracer("dyno")
        self._propagator = TraceContextTextMapPropagator()

    @contextmanager
    def span(
        self, name: str, facts: SpanAttributes, *, follows: Carrier | None = None, kind: SpanKindName = "internal"
    ) -> Iterator[Span]:
        from opentelemetry.trace import SpanKind

        with self._tracer.start_as_current_span(
            name, self._context(follows), kind=SpanKind[kind.upper()], attributes=_known_attributes(facts)
        ) as span:
            yield _OtelSpan(span)

    def past(self, name: str, facts: SpanAttributes, *, follows: Carrier, began_s: float, ended_s: float) -> None:
        attributes = _known_attributes(facts)
        span = self._tracer.start_span(name, self._context(follows), start_time=_ns(began_s), attributes=attributes)
        span.end(_ns(ended_s))

    def carried(self) -> str | None:
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return carrier.get("traceparent")

    def flush(self) -> None:
        self._provider.force_flush()

    def _context(self, follows: Carrier | None) -> "Context | None":
        """None stands for the current context. An empty or invalid carrier starts a new trace."""
        from opentelemetry.context import Context

        return None if follows is None else self._propagator.extract(follows, Context())


class _OtelSpan(Span):
    def __init__(self, span: "Otel") -> None:
        self._span = span

    def note(self, facts: SpanAttributes, *, name: str | None = None, failed: str | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attributes(_known_attributes(facts))
        if name is not None:
            self._span.update_name(name)
        if failed is not None:
            self._span.set_status(Status(StatusCode.ERROR, failed))


def _known_attributes(facts: SpanAttributes) -> "dict[str, AttributeValue]":
    return {name: value for name, value in facts.items() if value is not None}


def _ns(at_s: float) -> int:
    return round(at_s * 1e9)
