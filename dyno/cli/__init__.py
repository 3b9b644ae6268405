"""The `dyno` command.

Exit codes: 0 fine, 1 failed, 2 usage, 3 refused by the service, 4 unreachable, 5 slower
than what it was compared with.
"""

from __future__ import annotations

from dyno.cli import compare, doctor, fleet, jobs, keys, processes, webhooks
from dyno.cli.app import app

__all__ = ["app", "compare", "doctor", "fleet", "jobs", "keys", "main", "processes", "webhooks"]


def main() -> None:
    app()
