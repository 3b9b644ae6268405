"""The worker's log on stderr, one line per event: `time level event key=value …`, or JSON. The default is warnings and
errors only.
"""

import logging

from dyno.logging import log_event, set_up_logging
from dyno.settings import LogFormat

LOG = logging.getLogger("dyno.worker")


def event(name: str, level: int = logging.INFO, **facts: object) -> None:
    """Log the event `name` with its facts."""
    log_event(LOG, level, name, facts)


def set_up(log_format: LogFormat, *, verbose: bool) -> None:
    """Log the worker's events to stderr, from INFO if `verbose`, else from WARNING; other libraries' from WARNING."""
    set_up_logging(log_format, plain="%(asctime)s %(levelname)s %(message)s")
    LOG.setLevel(logging.INFO if verbose else logging.WARNING)
