"""`dyno devices`: what there is to run on."""

from __future__ import annotations

from dyno import render
from dyno.cli.app import DEFAULT_URL, AsJson, Url, app, console, exit_codes, show
from dyno.client import Client


@app.command()
@exit_codes
def devices(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the devices that live workers offer."""
    with Client(url) as client:
        rows = client.devices()
    show(rows, as_json, lambda: render.devices(console, rows))
