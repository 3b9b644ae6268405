"""`dyno webhooks`: what was sent of done jobs, and one of it sent again."""

from __future__ import annotations

from typing import Annotated

import typer

from dyno import tables
from dyno.cli.app import AsJson, Url, app, console, exit_codes, show
from dyno.client import DEFAULT_URL, Client
from dyno.delivery import DeliveryStatus

webhooks = typer.Typer(no_args_is_help=True, help="What the webhooks of done jobs were sent.")
app.add_typer(webhooks, name="webhooks")


@webhooks.command()
@exit_codes
def deliveries(
    status: Annotated[DeliveryStatus | None, typer.Option(help="Only deliveries of this status.")] = None,
    job: Annotated[str | None, typer.Option(help="Only that of this job.")] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the newest deliveries that fit all filters."""
    with Client(url) as client:
        rows = client.deliveries(status=status, job=job, limit=limit)
    show([row.model_dump(mode="json") for row in rows], as_json, lambda: tables.deliveries(console, rows))


@webhooks.command()
@exit_codes
def redeliver(
    delivery_id: Annotated[str, typer.Argument(help="As `dyno webhooks deliveries` lists it: msg_…")],
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Send one again at once, whatever became of it."""
    with Client(url) as client:
        row = client.redeliver(delivery_id)
    show(row.model_dump(mode="json"), as_json, lambda: tables.deliveries(console, [row]))
