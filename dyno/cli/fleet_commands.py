"""`dyno workloads`, `devices`, `workers`, `cordon`, `uncordon`: list the inventory, and cordon devices."""

from typing import Annotated

import typer

from dyno.cli import completion, render
from dyno.cli.app import AsJson, Url, app, console, exit_codes, print_line, print_result
from dyno.client import DEFAULT_URL, Client
from dyno.formatting import format_duration
from dyno.models.inventory import AwayDevice, DeviceStatus

DeviceName = Annotated[str, typer.Argument(help="Device id from `dyno devices`, with @host if several hosts have it.")]


@app.command()
@exit_codes
def devices(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the devices of live workers, and cordoned devices without a live worker."""
    with Client(url) as client:
        rows: list[DeviceStatus | AwayDevice] = [*client.devices(), *client.cordoned_away()]
    print_result(rows, as_json, render.devices)


@app.command()
@exit_codes
def workers(url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """List the live workers and their jobs."""
    with Client(url) as client:
        print_result(client.workers(), as_json, render.workers)


@app.command()
@exit_codes
def workloads(
    name: Annotated[
        str | None, typer.Argument(help="Show one workload, with its params.", autocompletion=completion.workloads)
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List workloads, or the params of one, which are options of `dyno run`."""
    with Client(url) as client:
        if name is None:
            print_result(client.workloads(), as_json, render.workloads)
        else:
            print_result(
                client.workload(name),
                as_json,
                lambda console, row: render.params(console, row.name, row.description, row.params),
            )
            if not as_json and (estimate := client.validate({"workload": name}).estimate):
                print_line(console, f"takes about {format_duration(estimate.time_s)} on {estimate.device} by default")


@app.command()
@exit_codes
def cordon(device: DeviceName, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Cordon a device: it finishes its current job and takes no new ones until you uncordon it."""
    with Client(url) as client:
        answer = client.cordon(device)
    print_result(answer, as_json, f"{answer.device} takes no more jobs")


@app.command()
@exit_codes
def uncordon(device: DeviceName, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Let a cordoned device take jobs again."""
    with Client(url) as client:
        answer = client.uncordon(device)
    print_result(answer, as_json, f"{answer.device} takes jobs again")
