"""Logs, the audit log and traces of every process of Dyno.

Log records are plain lines or JSON, one object a line. Text from a caller can't begin a record: unprintable
characters are escaped, and lines of a traceback are indented. The audit log (logger `dyno.audit`) names keys by id.

A trace covers one job, from its POST through the queue to its runs. Tracing is off by default. OpenTelemetry's own
settings say where spans go (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_TRACES_SAMPLER`, …). Between processes a trace
travels as W3C Trace Context's `traceparent`, which the job's record keeps, so a worker continues the request's trace.
`dyno.otel`, which sends spans, is imported only where tracing is on.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, ClassVar, Literal

from dyno.errors import TracingMissing
from dyno.settings import LogFormat, Settings

PLAIN_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

# What the records of a request, or of an attempt at a job, belong to.
current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
current_job_id: ContextVar[str | None] = ContextVar("job_id", default=None)

AUDIT_LOG = logging.getLogger("dyno.audit")
AUDIT_LOG.setLevel(logging.INFO)  # wherever other loggers are quiet


def set_up_logging(log_format: LogFormat, *, plain: str = PLAIN_FORMAT) -> None:
    """Send the records of all loggers to stderr, from WARNING on. `plain`: the line where it isn't JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter(plain))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(log_format == "json")


@contextmanager
def log_context_of_job(job: str) -> Iterator[None]:
    """What is logged inside, on this thread, is about the job."""
    token = current_job_id.set(job)
    try:
        yield
    finally:
        current_job_id.reset(token)


def log_event(log: logging.Logger, level: int, name: str, facts: Mapping[str, object]) -> None:
    """Say that `name` happened. In a plain line values are JSON, so that it splits by spaces outside of quotes."""
    if log.isEnabledFor(level):
        pairs = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in facts.items())
        log.log(level, "%s %s", name, pairs, extra={"event": name, "facts": facts})


def audit(action: str, by: str, **facts: object) -> None:
    """One line for a change of who may do what, of which devices take jobs, or for what is lost to somebody.

    `by`: the id of a key, `anyone` where none was needed, or `host` for the command on it. Never pass a secret.
    """
    log_event(AUDIT_LOG, logging.INFO, action, {"by": by, **facts})


def escaped(text: str) -> str:
    """With what can't be printed written as Python does: line ends, escape sequences, and what turns text around."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class PlainFormatter(logging.Formatter):
    """Lines for people. Those of a traceback are indented, so that none looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """time, level, logger, message; request_id and job_id where there is one; the facts of an event; exception."""

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            "request_id": current_request_id.get(),
            "job_id": facts.get("job") or current_job_id.get(),
        }
        said = {key: value for key, value in said.items() if value is not None}
        said |= {key: value for key, value in facts.items() if key not in {*said, "job"}}
        if record.exc_info:
            said["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            said["stack"] = record.stack_info
        return json.dumps(said, default=str)


def _indented(text: str) -> str:
    return "\n".join("  " + escaped(line) for line in text.split("\n"))


SpanKindName = Literal["internal", "server", "consumer"]  # OpenTelemetry's words
SpanAttributes = Mapping[str, str | bool | int | float | None]  # null ones are left out
Carrier = Mapping[str, str]  # `traceparent` and `tracestate`, as HTTP headers have them


class Span:
    """Something that is being done. Of this one nothing is recorded."""

    def note(self, facts: SpanAttributes, *, name: str | None = None, failed: str | None = None) -> None:
        """What is known only now: facts, a better name, and why it failed."""


class Tracer:
    """Where spans are made. Nothing is recorded by these, as `on` says."""

    on: ClassVar[bool] = False

    @contextmanager
    def span(
        self, name: str, facts: SpanAttributes, *, follows: Carrier | None = None, kind: SpanKindName = "internal"
    ) -> Iterator[Span]:
        """What is done in the block: a part of the span around it, or of the one that `follows` carries."""
        yield Span()

    def past(self, name: str, facts: SpanAttributes, *, follows: Carrier, began_s: float, ended_s: float) -> None:
        """What no process saw, between two Unix times."""

    def carried(self) -> str | None:
        """The `traceparent` of the span around this, for whoever goes on elsewhere."""
        return None

    def flush(self) -> None:
        """Send what there is; what can't be sent within 2 s is lost."""


def tracer_for(settings: Settings, service: str, *, sends_by_itself: bool) -> Tracer:
    """What `settings` ask for. Without `sends_by_itself` only `flush` sends, and nothing wakes up in between.

    Raises TracingMissing where OpenTelemetry isn't installed.
    """
    if not settings.traces:
        return Tracer()
    try:
        from dyno.otel import OtelTracer
    except ImportError as error:
        message = f'DYNO_TRACES is set, but {error.name} is missing: pip install "tensordyno[otel]"'
        raise TracingMissing(message) from error
    return OtelTracer(service, sends_by_itself=sends_by_itself)
