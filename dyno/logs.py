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

PLAIN = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]

# What the records of a request, or of an attempt at a job, belong to.
request_id: ContextVar[str | None] = ContextVar("request_id", default=None)
job_id: ContextVar[str | None] = ContextVar("job_id", default=None)


def set_up(log_format: LogFormat, *, plain: str = PLAIN) -> None:
    """Send the records of all loggers to stderr, from WARNING on. `plain`: the line where it isn't JSON."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if log_format == "json" else Plain(plain))
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)
    logging.captureWarnings(log_format == "json")


@contextmanager
def about_job(job: str) -> Iterator[None]:
    """What is logged inside, on this thread, is about the job."""
    token = job_id.set(job)
    try:
        yield
    finally:
        job_id.reset(token)


def event(log: logging.Logger, level: int, name: str, facts: Mapping[str, object]) -> None:
    """Say that `name` happened. In a plain line values are JSON, so that it splits by spaces outside of quotes."""
    if log.isEnabledFor(level):
        pairs = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in facts.items())
        log.log(level, "%s %s", name, pairs, extra={"event": name, "facts": facts})


def escaped(text: str) -> str:
    """With what can't be printed written as Python does: line ends, escape sequences, and what turns text around."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


class Plain(logging.Formatter):
    """Lines for people. Those of a traceback are indented, so that none looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        return escaped(super().formatMessage(record))

    def formatException(self, ei: _ExcInfo) -> str:
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:
        return _indented(super().formatStack(stack_info))


class Json(logging.Formatter):
    """time, level, logger, message; request_id and job_id where there is one; the facts of an event; exception."""

    def format(self, record: logging.LogRecord) -> str:
        facts: Mapping[str, Any] = getattr(record, "facts", {})
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="microseconds")[:-6] + "Z",
            "level": record.levelname,
            "logger": record.name,
            "message": getattr(record, "event", None) or record.getMessage(),
            "request_id": request_id.get(),
            "job_id": facts.get("job") or job_id.get(),
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
