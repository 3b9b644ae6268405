"""One line an event on stderr: `time level event key=value …`, or JSON. Quiet by default: warnings and errors only."""

from __future__ import annotations

import logging

from dyno.logging import log_event, set_up_logging
from dyno.settings import LogFormat

LOG = logging.getLogger("dyno.worker")


def event(name: str, level: int = logging.INFO, **facts: object) -> None:
    """Say that `name` happened."""
    log_event(LOG, level, name, facts)


def set_up(log_format: LogFormat, *, verbose: bool) -> None:
    """Send the worker's events to stderr, from INFO on if `verbose`; other libraries' from WARNING on."""
    set_up_logging(log_format, plain="%(asctime)s %(levelname)s %(message)s")
    LOG.setLevel(logging.INFO if verbose else logging.WARNING)
