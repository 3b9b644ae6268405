"""`dyno demo`, `up`, `serve`, `worker`: Dyno's own processes, started."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from dyno import demo as demo_run
from dyno.cli.app import app, console, exit_codes
from dyno.cli.folders import expanded
from dyno.client import Client
from dyno.up import together, wait_ready

DEFAULT_DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dyno"


@app.command()
@exit_codes
def demo(device: Annotated[str, typer.Option(help="The CPU device to use.")] = "cpu") -> None:
    """Start a Dyno, run a matmul and a short training over HTTP, print the results, end everything."""
    demo_run.run(console, device=device)


@app.command()
@exit_codes
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, envvar="DYNO_PORT", help="Port of the API, on loopback.")
    ] = 8000,
    data_dir: Annotated[
        Path,
        typer.Option(
            callback=expanded, help="Where jobs and results are kept; `dyno keys` and `dyno doctor` then need the same."
        ),
    ] = DEFAULT_DATA_DIR,
    device: Annotated[list[str] | None, typer.Option(help="A device to serve; may be repeated.")] = None,
    emulate: Annotated[list[str] | None, typer.Option(help="A device to emulate on the CPU: tpu:8, gpu:1.")] = None,
) -> None:
    """Run embedded server, API and workers in the foreground, until Ctrl-C. A part that dies is started again."""
    devices = list(dict.fromkeys(device or ([] if emulate else ["cpu"])))
    emulated = emulate or []
    with together(port=port, data_dir=data_dir, devices=devices, emulated=emulated, say=console.print) as (stack, url):
        with Client(url) as client:
            wait_ready(stack, client, want_devices=len(devices) + len(emulated))
        console.print(f"Dyno is up: {url}/v1/devices    (Ctrl-C ends it)")
        stack.watch()


@app.command()
def serve(
    host: Annotated[str | None, typer.Option(help="Address to bind; loopback unless told otherwise.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to bind.")] = None,
) -> None:
    """Run the API alone. Needs DYNO_REDIS_URL."""
    env = {"DYNO_HOST": host, "DYNO_PORT": None if port is None else str(port)}
    _become("service", [], {name: value for name, value in env.items() if value is not None})


@app.command()
def worker(
    device: Annotated[str | None, typer.Option(help='"cpu", "cpu:0-1", "gpu:0", …')] = None,
    emulate: Annotated[str | None, typer.Option(help='"tpu:8": a TPU made of 8 virtual CPU devices.')] = None,
    name: Annotated[str | None, typer.Option(help="Its id in the fleet; made up by default.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Log a line for each event, not only warnings.")] = False,
) -> None:
    """Run one worker, pinned to one device, the CPU by default. Needs DYNO_REDIS_URL."""
    given = {"--device": device, "--emulate": emulate, "--name": name}
    words = [word for option, value in given.items() if value for word in (option, value)]
    _become("workers", [*words, *["--verbose"] * verbose], {})


def _become(module: str, args: list[str], env: dict[str, str]) -> NoReturn:
    """Turn this process into a part of Dyno, so that signals reach it directly."""
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *args], {**os.environ, **env})
