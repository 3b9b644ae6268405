"""One line for every change of who may do what, and of which devices take jobs: `action key=value …`.

Names keys by their ids. No secret is ever given to it.
"""

from __future__ import annotations

import json
import logging

LOG = logging.getLogger("dyno.audit")
LOG.setLevel(logging.INFO)  # wherever other loggers are quiet


def audit(action: str, by: str, **facts: object) -> None:
    """`by`: the id of a key, `anyone` where none was needed, or `host` for the command on it. Values are JSON, so that
    no name can begin a line of its own."""
    pairs = " ".join(f"{key}={json.dumps(value, default=str)}" for key, value in {"by": by, **facts}.items())
    LOG.info("%s %s", action, pairs)
