"""Logs and the audit log of every Dyno process.

Log records are plain lines or JSON, one object a line. Text from a caller can't forge a record: unprintable
characters are escaped, and the lines of a traceback are indented. The audit log (logger `dyno.audit`) names keys by id.
"""

import json
import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import TracebackType
from typing import Any

from dyno.settings import LogFormat

_encode = json.JSONEncoder(default=str).encode  # `json.dumps` would make an encoder at each call
PLAIN_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

# The request or the job that log records belong to.
current_request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
current_job_id: ContextVar[str | None] = ContextVar("job_id", default=None)

AUDIT_LOG = logging.getLogger("dyno.audit")
AUDIT_LOG.setLevel(logging.INFO)  # the other loggers start at WARNING
WORKER_LOG = logging.getLogger("dyno.worker")


def set_up_logging(log_format: LogFormat, *, plain: str = PLAIN_FORMAT) -> None:
    """Send the records of all loggers to stderr, from WARNING up. `plain`: the format of plain lines."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else PlainFormatter(plain))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(log_format == "json")


@contextmanager
def log_context_of_job(job: str) -> Iterator[None]:
    """Attach the job's id to all records that this thread logs in the block."""
    token = current_job_id.set(job)
    try:
        yield
    finally:
        current_job_id.reset(token)


def log_event(log: logging.Logger, level: int, name: str, facts: Mapping[str, object]) -> None:
    """Log the event `name`. Values in a plain line are JSON, so programs can split the line at unquoted spaces."""
    if log.isEnabledFor(level):
        pairs = " ".join(f"{key}={_encode(value)}" for key, value in facts.items())
        log.log(level, "%s %s", name, pairs, extra={"event": name, "facts": facts})


def event(name: str, level: int = logging.INFO, **facts: object) -> None:
    """Log the event `name` of a worker, or of runs without a worker."""
    log_event(WORKER_LOG, level, name, facts)


def audit(action: str, by: str, **facts: object) -> None:
    """Log one line for each change of permissions or cordons, and for each canceled or deleted job.

    `by`: the id of a key, `anyone` if the service needs none, or `host` for a command on the host. Never pass a secret.
    """
    log_event(AUDIT_LOG, logging.INFO, action, {"by": by, **facts})


def escaped(text: str) -> str:
    """Escape unprintable characters as Python does: line ends, terminal sequences, and bidirectional controls."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() else ascii(character)[1:-1] for character in text)


class PlainFormatter(logging.Formatter):
    """Plain lines for people. The lines of a traceback are indented, so that they don't look like log records."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class JsonFormatter(logging.Formatter):
    """Writes time, level, logger, message, request_id and job_id if known, an event's facts, and the exception."""

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        record_fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            "request_id": current_request_id.get(),
            "job_id": facts.get("job") or current_job_id.get(),
        }
        record_fields = {key: value for key, value in record_fields.items() if value is not None}
        record_fields |= {key: value for key, value in facts.items() if key not in {*record_fields, "job"}}
        if record.exc_info:
            record_fields["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            record_fields["stack"] = record.stack_info
        return json.dumps(record_fields, default=str)


def _indented(text: str) -> str:
    return "\n".join("  " + escaped(line) for line in text.split("\n"))
