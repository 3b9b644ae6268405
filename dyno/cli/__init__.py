"""The `dyno` command. `dyno/cli/app.py` has its exit codes."""

from __future__ import annotations

from dyno.cli import compare, doctor, fleet, jobs, keys, named, processes, webhooks
from dyno.cli.app import app

__all__ = ["app", "compare", "doctor", "fleet", "jobs", "keys", "main", "named", "processes", "webhooks"]


def main() -> None:
    app()
