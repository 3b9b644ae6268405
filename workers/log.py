"""One line an event on stderr: `time level event key=value …`. Quiet by default: warnings and errors only."""

from __future__ import annotations

import json
import logging
import sys

LOG = logging.getLogger("dyno.worker")


def event(name: str, level: int = logging.INFO, **facts: object) -> None:
    """Say that `name` happened. Values are JSON, so that a line splits by spaces outside of quotes."""
    if LOG.isEnabledFor(level):
        pairs = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in facts.items())
        LOG.log(level, "%s %s", name, pairs)


def set_up(*, verbose: bool) -> None:
    """Send the worker's events to stderr, from INFO on if `verbose`; other libraries' from WARNING on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger().handlers[:] = [handler]
    LOG.setLevel(logging.INFO if verbose else logging.WARNING)
