"""`dyno run`, `rerun`, `jobs`, `result`, `artifacts`."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from pydantic import JsonValue

from dyno import render, tables
from dyno.artifacts.names import is_name
from dyno.cli.app import AsJson, Url, app, console, exit_codes, show
from dyno.cli.folders import expanded
from dyno.cli.params import OfWorkload, assignments, own_params, pairs_of
from dyno.cli.waiting import patient, queued, result_of
from dyno.client import DEFAULT_URL, Client
from dyno.errors import DynoError
from dyno.job import Status
from dyno.measure.warnings import MIN_PROCESSES
from dyno.result import Artifact, Result, Verdict
from dyno.spec import Measure

_DEVICE = '"cpu", "gpu", "tpu", "any", an id, or JSON such as {"model": "NVIDIA L4"}.'
_ABSENT = "Wait where no live worker has such a device, too."
_MEASURED = ", ".join(name for name in Measure.model_fields if name != "processes")
_TIME = "ISO 8601 with its zone: 2026-11-22T04:05:06Z."
JobId = Annotated[str, typer.Argument(help="As `dyno jobs` lists it.")]
Require = Annotated[Verdict | None, typer.Option(help="Exit with 1 where the verdict is less than this.")]


@app.command(cls=OfWorkload, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
@exit_codes
def run(
    context: typer.Context,
    workload: Annotated[str, typer.Argument(help="As `dyno workloads` lists them.")],
    param: Annotated[list[str] | None, typer.Option(help="name=value; the value is JSON or a word.")] = None,
    device: Annotated[str, typer.Option(help=_DEVICE)] = "any",
    framework: Annotated[str, typer.Option(help="tensorflow, jax or torch.")] = "tensorflow",
    replicas: Annotated[int, typer.Option(help="Copies of the model, the batch split evenly.")] = 1,
    processes: Annotated[int, typer.Option(help="Fresh processes the result rests on.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of data and weights.")] = 0,
    measure: Annotated[list[str] | None, typer.Option(help=f"name=value; one of {_MEASURED}.")] = None,
    label: Annotated[list[str] | None, typer.Option(help="name=value, to find it by; may be repeated.")] = None,
    queue_if_absent: Annotated[bool, typer.Option("--queue-if-absent", help=_ABSENT)] = False,
    require: Require = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """Submit a job, wait for it, print its result. Ctrl-C cancels the job.

    The workload's own params are options, too: --n 4096, --batch-size 32. `dyno run NAME --help` lists them.
    """
    if workload.startswith("-"):
        raise typer.BadParameter(f"name the workload first, {workload} and other options behind it")
    with patient(url) as client:
        given = assignments(param)
        if context.args:
            given |= own_params(client.workload(workload), context.args)
        spec: dict[str, JsonValue] = {
            "workload": workload,
            "params": given,
            "device": _selector(device),
            "framework": framework,
            "replicas": replicas,
            "seed": seed,
            "labels": {**pairs_of(label)},
            "queue_if_absent": queue_if_absent,
            "measure": {"processes": processes, **assignments(measure)},
        }
        job = queued(client, partial(client.submit, spec), lambda job: job.id)
        result = result_of(client, job.id, as_json)
    _print(result, as_json, require)


@app.command()
@exit_codes
def rerun(job_id: JobId, require: Require = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Submit what a job was asked for as a new job, wait for it, print its result. Ctrl-C cancels the new one."""
    with patient(url) as client:
        again = queued(client, partial(client.rerun, job_id), lambda job: job.id)
        found = result_of(client, again.id, as_json)
    _print(found, as_json, require)


def _print(found: Result, as_json: bool, require: Verdict | None) -> None:
    """Exit code 1 where the verdict is less than what is required."""
    show(found.model_dump(mode="json"), as_json, lambda: render.result(console, found))
    if require is not None and found.verdict.rank < require.rank:
        raise DynoError(f"{require} is required; the result of {found.job} is {found.verdict}: {_reasons(found)}")


def _reasons(found: Result) -> str:
    """What keeps the verdict from being better."""
    codes = [raised.code for raised in found.warnings if raised.severity in "AB"]
    few = ["fewer than five runs"] if len(found.runs) < MIN_PROCESSES else []
    return ", ".join(codes + [f"{code} unchecked" for code in found.unchecked] + few)


def _selector(text: str) -> JsonValue:
    """A shorthand, or the selector itself."""
    try:
        found: JsonValue = json.loads(text)
    except json.JSONDecodeError:
        return text
    return found


@app.command()
@exit_codes
def jobs(
    status: Annotated[Status | None, typer.Option(help="Only jobs of this status.")] = None,
    workload: Annotated[str | None, typer.Option(help="Only those of this workload.")] = None,
    device: Annotated[str | None, typer.Option(help="A kind, or an id with or without its host.")] = None,
    framework: Annotated[str | None, typer.Option(help="tensorflow, jax or torch.")] = None,
    label: Annotated[str | None, typer.Option(help="name, or name=value.")] = None,
    created_after: Annotated[str | None, typer.Option(help=_TIME)] = None,
    created_before: Annotated[str | None, typer.Option(help=_TIME)] = None,
    limit: Annotated[int, typer.Option(min=1, help="The newest so many.")] = 50,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the newest jobs that fit all filters."""
    with Client(url) as client:
        rows = client.jobs(
            status=status,
            workload=workload,
            device=device,
            framework=framework,
            label=label,
            created_after=created_after,
            created_before=created_before,
            limit=limit,
        )
    show([row.model_dump(mode="json") for row in rows], as_json, lambda: tables.jobs(console, rows))


@app.command()
@exit_codes
def result(job_id: JobId, require: Require = None, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Print the result of a finished job."""
    with Client(url) as client:
        found = client.result(job_id)
    _print(found, as_json, require)


@app.command()
@exit_codes
def artifacts(
    job_id: JobId,
    save: Annotated[
        Path | None,
        typer.Option(file_okay=False, writable=True, callback=expanded, help="Folder to download them to."),
    ] = None,
    url: Url = DEFAULT_URL,
    as_json: AsJson = False,
) -> None:
    """List the files that a job has left behind; with --save, download them."""
    with Client(url) as client:
        rows = client.artifacts(job_id)
        if save is not None:
            _save(client, job_id, rows, save)
    show([row.model_dump(mode="json") for row in rows], as_json, lambda: tables.artifacts(console, rows))


def _save(client: Client, job_id: str, rows: list[Artifact], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for row in rows:
        if not is_name(row.name):  # it names a file here, and the service may be anybody's
            raise DynoError(f"{client.url} lists a file with a name that no artifact has: {row.name!r}")
        client.download(job_id, row, folder / row.name)
