"""`dyno cancel`, `delete`, `logs`: what is done with jobs that are there."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated

import typer
from pydantic import JsonValue

from dyno.cli.app import AsJson, Url, app, complain, console, exit_codes, say
from dyno.cli.jobs import JobId
from dyno.client import DEFAULT_URL, Client, Refused
from dyno.exits import OfCommand

JobIds = Annotated[list[str], typer.Argument(help="As `dyno jobs` lists them.")]
Came = tuple[JsonValue, str]  # what came of it, as JSON and as a sentence


@app.command()
@exit_codes
def cancel(job_ids: JobIds, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Cancel jobs: those that wait at once, those that run within 5 s. Exit code 3 where any had ended otherwise."""
    with Client(url) as client:

        def one(job_id: str) -> Came:
            job = client.cancel(job_id)
            return job.model_dump(mode="json"), f"{job.id}: {'canceled' if job.done else 'cancel asked for'}"

        _each(job_ids, one, as_json)


@app.command()
@exit_codes
def delete(job_ids: JobIds, url: Url = DEFAULT_URL, as_json: AsJson = False) -> None:
    """Delete jobs that are done, with their results, files and all. Exit code 3 where any isn't done."""
    with Client(url) as client:

        def one(job_id: str) -> Came:
            client.delete(job_id)
            return {"job": job_id, "deleted": True}, f"{job_id}: deleted"

        _each(job_ids, one, as_json)


@app.command()
@exit_codes
def logs(
    job_id: JobId,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with what comes, until the job is done.")] = False,
    url: Url = DEFAULT_URL,
) -> None:
    """Print what a job's runners have printed, the last 256 KiB at most. Ctrl-C ends the reading, not the job.

    Exit code 0 where all was read that there is, however the job has ended.
    """
    with Client(url) as client:
        for text in client.follow_logs(job_id) if follow else [client.logs(job_id)]:
            typer.echo(text, nl=False)


def _each(job_ids: list[str], ask: Callable[[str], Came], as_json: bool) -> None:
    """Ask it of each, also behind one that is refused, and tell what came of all that were asked."""
    came, refused = list[JsonValue](), False
    try:
        for job_id in dict.fromkeys(job_ids):
            try:
                document, sentence = ask(job_id)
            except Refused as error:
                refused = True
                complain(f"{job_id}: {error.detail}")
                continue
            came.append(document)
            if not as_json:
                say(console, sentence)
    finally:
        if as_json:
            typer.echo(json.dumps(came, indent=2))
    if refused:
        raise typer.Exit(OfCommand.REFUSED)
