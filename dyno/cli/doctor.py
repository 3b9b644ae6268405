"""`dyno doctor`: what is amiss, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dyno import columns
from dyno.cli.app import AsJson, Url, app, console, exit_codes, show
from dyno.cli.folders import expanded
from dyno.cli.processes import DEFAULT_DATA_DIR
from dyno.client import DEFAULT_URL, Client
from dyno.doctor import Check, examine
from dyno.exits import OfCommand
from dyno.settings import configured

_KEPT = "Where `dyno up` keeps jobs and results."


@app.command()
@exit_codes
def doctor(
    data_dir: Annotated[Path, typer.Option(callback=expanded, help=_KEPT)] = DEFAULT_DATA_DIR,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Look at Redis, API, workers, devices, folders and the clock. Exit code 1 where anything is amiss."""
    with Client(url) as client:
        checks = list(examine(client, configured(), data_dir))
    show([each.model_dump(mode="json") for each in checks], as_json, lambda: _print(checks))
    if not all(each.is_well for each in checks):
        raise typer.Exit(OfCommand.FAILED)


def _print(checks: list[Check]) -> None:
    cells = ((each.name, "well" if each.is_well else "amiss", each.found, each.to_do) for each in checks)
    columns.show(console, ("part", "state", "found", "to do"), cells)
