"""`dyno devices`, `cordon`, `uncordon`: what there is to run on, and what takes no jobs for now."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from dyno import render
from dyno.cli.app import DEFAULT_URL, AsJson, Url, app, console, exit_codes, show
from dyno.client import Client

DeviceName = Annotated[str, typer.Argument(help="As `dyno devices` lists it; with @host where several hosts have one.")]


@app.command()
@exit_codes
def devices(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the devices that live workers offer, and those that are cordoned while their workers are away."""
    with Client(url) as client:
        rows = [*client.devices(), *map(_away, client.cordoned_away())]
    show(rows, as_json, lambda: render.devices(console, rows))


@app.command()
@exit_codes
def cordon(device: DeviceName, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a device finish what it runs and take no other job, until it is uncordoned."""
    with Client(url) as client:
        answer = client.cordon(device)
    show(answer, as_json, lambda: _say(f"{answer['device']} takes no more jobs"))


@app.command()
@exit_codes
def uncordon(device: DeviceName, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a cordoned device take jobs again."""
    with Client(url) as client:
        answer = client.uncordon(device)
    show(answer, as_json, lambda: _say(f"{answer['device']} takes jobs again"))


def _away(full_id: str) -> dict[str, Any]:
    name, _, host = full_id.partition("@")
    return {"id": name, "host": host, "state": "away", "cordoned": True}


def _say(sentence: str) -> None:
    console.print(sentence, markup=False, highlight=False, soft_wrap=True)
