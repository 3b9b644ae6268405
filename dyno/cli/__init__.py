"""The `dyno` command. `dyno/cli/app.py` lists its exit codes."""

from dyno.cli import job_commands  # noqa: F401 - each module adds commands; the help lists these first

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
