"""`dyno run`, `jobs`, `result`, `artifacts`."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from dyno import render
from dyno.artifacts.names import is_name
from dyno.cli.app import DEFAULT_URL, AsJson, Url, app, console, errors, exit_codes, show
from dyno.client import Client, JobNotSucceeded, Refused
from dyno.errors import DynoError
from dyno.result import Artifact, Result, Verdict

_DEVICE = '"cpu", "gpu", "tpu", "any", an id, or JSON such as {"model": "NVIDIA L4"}.'
Require = Annotated[Verdict | None, typer.Option(help="Exit with 1 where the verdict is less than this.")]


@app.command()
@exit_codes
def run(
    workload: str,
    param: Annotated[list[str] | None, typer.Option(help="name=value; the value is JSON or a word.")] = None,
    device: Annotated[str, typer.Option(help=_DEVICE)] = "any",
    framework: Annotated[str, typer.Option(help="tensorflow, jax or torch.")] = "tensorflow",
    replicas: Annotated[int, typer.Option(help="Copies of the model, the batch split evenly.")] = 1,
    processes: Annotated[int, typer.Option(help="Fresh processes the result rests on.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    measure: Annotated[list[str] | None, typer.Option(help="name=value of the spec's `measure`.")] = None,
    require: Require = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Submit a job, wait for it, print its result. Ctrl-C cancels the job."""
    spec: dict[str, JsonValue] = {
        "workload": workload,
        "params": _assignments(param),
        "device": _selector(device),
        "framework": framework,
        "replicas": replicas,
        "seed": seed,
        "measure": {"processes": processes, **_assignments(measure)},
    }
    with Client(url) as client:
        job = client.submit(spec)
        try:
            with render.following(errors if as_json else console) as follow:
                job = client.wait(job.id, follow)
        except KeyboardInterrupt:
            with contextlib.suppress(Refused):  # it ended first
                errors.print(f"{client.cancel(job.id).id}: cancel asked for")
            raise
        if job.failure or job.status != "succeeded":
            raise JobNotSucceeded(job)
        result = client.result(job.id)
    _print(result, as_json, require)


def _print(found: Result, as_json: bool, require: Verdict | None) -> None:
    """Exit code 1 where the verdict is less than what is required."""
    show(found.model_dump(mode="json"), as_json, lambda: render.result(console, found))
    if require is not None and found.verdict.rank < require.rank:
        raise DynoError(f"{require} is required; the result of {found.job} is {found.verdict}: {_reasons(found)}")


def _reasons(found: Result) -> str:
    """What keeps the verdict from being better."""
    codes = [raised.code for raised in found.warnings if raised.severity in "AB"]
    return ", ".join(codes + [f"{code} unchecked" for code in found.unchecked]) or "fewer than five runs"


def _selector(text: str) -> JsonValue:
    """A shorthand, or the selector itself."""
    try:
        found: JsonValue = json.loads(text)
    except json.JSONDecodeError:
        return text
    return found


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
@exit_codes
def jobs(
    status: Annotated[str | None, typer.Option(help="Only jobs of this status.")] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs."""
    with Client(url) as client:
        rows = client.jobs(**({"status": status} if status else {}))
    show([row.model_dump(mode="json") for row in rows], as_json, lambda: render.jobs(console, rows))


@app.command()
@exit_codes
def result(job_id: str, require: Require = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Print the result of a finished job."""
    with Client(url) as client:
        found = client.result(job_id)
    _print(found, as_json, require)


@app.command()
@exit_codes
def artifacts(
    job_id: str,
    save: Annotated[
        Path | None, typer.Option(file_okay=False, writable=True, help="Folder to download them to.")
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the files that a job has left behind; with --save, download them."""
    with Client(url) as client:
        rows = client.artifacts(job_id)
        if save is not None:
            _save(client, job_id, rows, save)
    show([row.model_dump(mode="json") for row in rows], as_json, lambda: render.artifacts(console, rows))


def _save(client: Client, job_id: str, rows: list[Artifact], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if not is_name(row.name):  # it names a file here, and the service may be anybody's
            raise DynoError(f"{client.url} lists a file with a name that no artifact has: {row.name!r}")
        client.download(job_id, row, folder / row.name)
