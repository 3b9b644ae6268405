"""The `dyno` command. Seconds and FLOP/s become ms and TFLOP/s here and in `render`, nowhere else.

Exit codes: 0 fine, 1 failed, 2 usage, 3 refused by the service, 4 unreachable.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, NoReturn, ParamSpec

import typer
from pydantic import JsonValue
from rich.console import Console

from dyno import demo as demo_run
from dyno import render
from dyno.artifacts.names import is_name
from dyno.client import Client, JobNotSucceeded, Refused, ServerUnreachable
from dyno.errors import DynoError
from dyno.result import Artifact
from dyno.up import together, wait_ready

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help=__doc__.split("\n")[0] if __doc__ else None,
)
console = Console()
errors = Console(stderr=True)
P = ParamSpec("P")

EXIT_FAILED, EXIT_REFUSED, EXIT_UNREACHABLE = 1, 3, 4
DEFAULT_DATA_DIR = Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "dyno"

Url = Annotated[str, typer.Option("--url", envvar="DYNO_URL", help="Where the API is.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]


def _exit_codes(command: Callable[P, None]) -> Callable[P, None]:
    """Dyno's errors become one line on stderr and the exit code that scripts can rely on."""

    @wraps(command)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            command(*args, **kwargs)
        except Refused as error:
            _fail(error, EXIT_REFUSED)
        except ServerUnreachable as error:
            _fail(error, EXIT_UNREACHABLE)
        except DynoError as error:
            _fail(error, EXIT_FAILED)
        except KeyboardInterrupt:
            raise typer.Exit(130) from None

    return wrapped


def _fail(error: DynoError, code: int) -> NoReturn:
    errors.print(f"dyno: {error.detail}", style="red", markup=False, highlight=False)
    raise typer.Exit(code)


@app.command()
@_exit_codes
def demo(device: Annotated[str, typer.Option(help="The CPU device to use.")] = "cpu") -> None:
    """Start a Dyno, run a matmul and a short training over HTTP, print the results, end everything."""
    demo_run.run(console, device=device)


@app.command()
@_exit_codes
def up(
    port: Annotated[int, typer.Option(help="Port of the API, on loopback.")] = 8000,
    data_dir: Annotated[Path, typer.Option(help="Where jobs and results are kept.")] = DEFAULT_DATA_DIR,
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
) -> None:
    """Run one worker, pinned to one device, the CPU by default. Needs DYNO_REDIS_URL."""
    given = {"--device": device, "--emulate": emulate}
    _become("workers", [word for name, value in given.items() if value for word in (name, value)], {})


def _become(module: str, args: list[str], env: dict[str, str]) -> NoReturn:
    """Turn this process into a part of Dyno, so that signals reach it directly."""
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *args], {**os.environ, **env})


@app.command()
@_exit_codes
def run(
    workload: str,
    param: Annotated[list[str] | None, typer.Option(help="name=value; the value is JSON or a word.")] = None,
    device: Annotated[str, typer.Option(help='"cpu", "gpu", "tpu", "any" or an id.')] = "any",
    framework: Annotated[str, typer.Option(help="tensorflow, jax or torch.")] = "tensorflow",
    replicas: Annotated[int, typer.Option(help="Copies of the model, the batch split evenly.")] = 1,
    processes: Annotated[int, typer.Option(help="Fresh processes the result rests on.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    measure: Annotated[list[str] | None, typer.Option(help="name=value of the spec's `measure`.")] = None,
    url: Url = "http://127.0.0.1:8000",
    as_json: AsJson = False,
) -> None:
    """Submit a job, wait for it, print its result. Ctrl-C cancels the job."""
    spec: dict[str, JsonValue] = {
        "workload": workload,
        "params": _assignments(param),
        "device": device,
        "framework": framework,
        "replicas": replicas,
        "seed": seed,
        "measure": {"processes": processes, **_assignments(measure)},
    }
    with Client(url) as client:
        job = client.submit(spec)
        try:
            with render.following(errors if as_json else console) as show:
                job = client.wait(job.id, show)
        except KeyboardInterrupt:
            with contextlib.suppress(Refused):  # it ended first
                errors.print(f"{client.cancel(job.id).id}: cancel asked for")
            raise
        if job.failure or job.status != "succeeded":
            raise JobNotSucceeded(job)
        result = client.result(job.id)
    _show(result.model_dump(mode="json"), as_json, lambda: render.result(console, result))


def _assignments(pairs: list[str] | None) -> dict[str, JsonValue]:
    values: dict[str, JsonValue] = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not (name and equals):
            raise typer.BadParameter(f"{pair!r} is not name=value")
        try:
            values[name] = json.loads(text)
        except json.JSONDecodeError:
            values[name] = text
    return values


@app.command()
@_exit_codes
def jobs(
    status: Annotated[str | None, typer.Option(help="Only jobs of this status.")] = None,
    url: Url = "http://127.0.0.1:8000",
    as_json: AsJson = False,
) -> None:
    """List the newest jobs."""
    with Client(url) as client:
        rows = client.jobs(**({"status": status} if status else {}))
    _show([row.model_dump(mode="json") for row in rows], as_json, lambda: render.jobs(console, rows))


@app.command()
@_exit_codes
def result(job_id: str, url: Url = "http://127.0.0.1:8000", as_json: AsJson = False) -> None:
    """Print the result of a finished job."""
    with Client(url) as client:
        found = client.result(job_id)
    _show(found.model_dump(mode="json"), as_json, lambda: render.result(console, found))


@app.command()
@_exit_codes
def artifacts(
    job_id: str,
    save: Annotated[
        Path | None, typer.Option(file_okay=False, writable=True, help="Folder to download them to.")
    ] = None,
    url: Url = "http://127.0.0.1:8000",
    as_json: AsJson = False,
) -> None:
    """List the files that a job has left behind; with --save, download them."""
    with Client(url) as client:
        rows = client.artifacts(job_id)
        if save is not None:
            _save(client, job_id, rows, save)
    _show([row.model_dump(mode="json") for row in rows], as_json, lambda: render.artifacts(console, rows))


def _save(client: Client, job_id: str, rows: list[Artifact], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if not is_name(row.name):  # it names a file here, and the service may be anybody's
            raise DynoError(f"{client.url} lists a file with a name that no artifact has: {row.name!r}")
        client.download(job_id, row, folder / row.name)


@app.command()
@_exit_codes
def devices(url: Url = "http://127.0.0.1:8000", as_json: AsJson = False) -> None:
    """List the devices that live workers offer."""
    with Client(url) as client:
        rows = client.devices()
    _show(rows, as_json, lambda: render.devices(console, rows))


def _show(data: Any, as_json: bool, human: Callable[[], None]) -> None:
    if as_json:
        typer.echo(json.dumps(data, indent=2))
    else:
        human()


def main() -> None:
    app()
