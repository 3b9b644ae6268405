"""How every process of Dyno logs: plain lines, or JSON, one object a line. What a caller sent can't begin one."""

from __future__ import annotations

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
