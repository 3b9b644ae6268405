"""The `dyno` command. Its exit codes are in `dyno/cli/app.py`."""

from dyno.cli import job_commands  # noqa: F401 - each adds commands; the help lists these first

# isort: split
from dyno.cli import (  # noqa: F401
    doctor,
    key_commands,
    resource_commands,
    result_commands,
    sweep_commands,
    up,
)
from dyno.cli.app import app


def main() -> None:
    app()
