"""Spans sent over OTLP/HTTP by OpenTelemetry's SDK. Imported only if tracing is on."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span as Otel
from opentelemetry.trace import SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from dyno.tracing import Carrier, Span, SpanAttributes, SpanKindName, Tracer

_SENT_WITHIN_S = 2.0  # a worker takes no job while it sends
_NEVER_MS = 24 * 3600 * 1000
_KINDS: Mapping[SpanKindName, SpanKind] = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "consumer": SpanKind.CONSUMER,
}
_PROPAGATOR = TraceContextTextMapPropagator()


class OtelTracer(Tracer):
    """Uses a provider of its own, not the process-wide one, so that other libraries' spans aren't sent."""

    on = True

    def __init__(self, service: str, *, sends_by_itself: bool) -> None:
        name = os.environ.get("OTEL_SERVICE_NAME", service)
        exporter = OTLPSpanExporter(timeout=_SENT_WITHIN_S)
        self._provider = TracerProvider(resource=Resource.create({SERVICE_NAME: name}))
        self._provider.add_span_processor(
            BatchSpanProcessor(exporter, schedule_delay_millis=None if sends_by_itself else _NEVER_MS)
        )
        self._tracer = self._provider.get_tracer("dyno")

    @contextmanager
    def span(
        self, name: str, facts: SpanAttributes, *, follows: Carrier | None = None, kind: SpanKindName = "internal"
    ) -> Iterator[Span]:
        with self._tracer.start_as_current_span(
            name, _context(follows), kind=_KINDS[kind], attributes=_known_attributes(facts)
        ) as span:
            yield _OtelSpan(span)

    def past(self, name: str, facts: SpanAttributes, *, follows: Carrier, began_s: float, ended_s: float) -> None:
        attributes = _known_attributes(facts)
        span = self._tracer.start_span(name, _context(follows), start_time=_ns(began_s), attributes=attributes)
        span.end(_ns(ended_s))

    def carried(self) -> str | None:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier)
        return carrier.get("traceparent")

    def flush(self) -> None:
        self._provider.force_flush()


class _OtelSpan(Span):
    def __init__(self, span: Otel) -> None:
        self._span = span

    def note(self, facts: SpanAttributes, *, name: str | None = None, failed: str | None = None) -> None:
        self._span.set_attributes(_known_attributes(facts))
        if name is not None:
            self._span.update_name(name)
        if failed is not None:
            self._span.set_status(Status(StatusCode.ERROR, failed))


def _context(follows: Carrier | None) -> context.Context | None:
    """None stands for the current context. An empty or invalid carrier starts a new trace."""
    return None if follows is None else _PROPAGATOR.extract(follows, context.Context())


def _known_attributes(facts: SpanAttributes) -> dict[str, AttributeValue]:
    return {name: value for name, value in facts.items() if value is not None}


def _ns(at_s: float) -> int:
    return round(at_s * 1e9)
