"""The `dyno` command. Its exit codes are in `dyno/cli/app.py`."""

from dyno.cli import doctor, fleet_commands, job_commands, key_commands, sweep_commands, up  # noqa: F401 - each adds commands
from dyno.cli.app import app


def main() -> None:
    app()
