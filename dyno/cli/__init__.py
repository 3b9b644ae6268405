"""The `dyno` command. Its exit codes are in `dyno/cli/app.py`."""

from dyno.cli import (  # noqa: F401 - each adds commands
    advice_command,
    doctor,
    export_commands,
    fleet_commands,
    history_commands,
    job_commands,
    key_commands,
    schedule_commands,
    sweep_commands,
    up,
)
from dyno.cli.app import app


def main() -> None:
    app()
