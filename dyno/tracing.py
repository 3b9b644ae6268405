"""One trace of a job, from its POST through the queue to its runs, for a collector of OpenTelemetry's. Off by default.

What is traced is said here; where it goes is OpenTelemetry's own settings (`OTEL_EXPORTER_OTLP_ENDPOINT`,
`OTEL_TRACES_SAMPLER`, …). Between processes a trace travels as W3C Trace Context's `traceparent`, which is kept in the
job's record: whoever runs it later goes on with the trace of whoever asked for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar, Literal

from dyno.errors import TracingMissing
from dyno.settings import Settings

Kind = Literal["internal", "server", "consumer"]  # OpenTelemetry's words
Facts = Mapping[str, str | bool | int | float | None]  # null ones are left out
Carrier = Mapping[str, str]  # `traceparent` and `tracestate`, as HTTP headers have them


class Span:
    """Something that is being done. Of this one nothing is recorded."""

    def note(self, facts: Facts, *, name: str | None = None, failed: str | None = None) -> None:
        """What is known only now: facts, a better name, and why it failed."""


class Traces:
    """Where spans are made. Nothing is recorded by these, as `on` says."""

    on: ClassVar[bool] = False

    @contextmanager
    def span(
        self, name: str, facts: Facts, *, follows: Carrier | None = None, kind: Kind = "internal"
    ) -> Iterator[Span]:
        """What is done in the block: a part of the span around it, or of the one that `follows` carries."""
        yield Span()

    def past(self, name: str, facts: Facts, *, follows: Carrier, began_s: float, ended_s: float) -> None:
        """What no process saw, between two Unix times."""

    def carried(self) -> str | None:
        """The `traceparent` of the span around this, for whoever goes on elsewhere."""
        return None

    def flush(self) -> None:
        """Send what there is; what can't be sent within 2 s is lost."""


def traces_of(settings: Settings, service: str, *, sends_by_itself: bool) -> Traces:
    """What `settings` ask for. Without `sends_by_itself` only `flush` sends, and nothing wakes up in between.

    Raises TracingMissing where OpenTelemetry isn't installed.
    """
    if not settings.traces:
        return Traces()
    try:
        from dyno.recording import Recorded
    except ImportError as error:
        message = f'DYNO_TRACES is set, but {error.name} is missing: pip install "tensordyno[otel]"'
        raise TracingMissing(message) from error
    return Recorded(service, sends_by_itself=sends_by_itself)
