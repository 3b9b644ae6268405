"""One line for every change of who may do what and of which devices take jobs, and for what is lost to somebody.

Names keys by their ids. No secret is ever given to it.
"""

from __future__ import annotations

import logging

from dyno import logs

LOG = logging.getLogger("dyno.audit")
LOG.setLevel(logging.INFO)  # wherever other loggers are quiet


def audit(action: str, by: str, **facts: object) -> None:
    """`by`: the id of a key, `anyone` where none was needed, or `host` for the command on it."""
    logs.event(LOG, logging.INFO, action, {"by": by, **facts})
