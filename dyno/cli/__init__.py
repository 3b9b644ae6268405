"""The `dyno` command. `dyno/cli/app.py` has its exit codes."""

from __future__ import annotations

from dyno.cli import compare, doctor, fleet, jobs, keys, named, processes, webhooks  # noqa: F401 - each adds commands
from dyno.cli.app import app


def main() -> None:
    app()
