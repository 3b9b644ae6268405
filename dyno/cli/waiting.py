"""Waiting for a job that the command has begun: what Ctrl-C does, and what is said where the service goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from dyno import render
from dyno.cli.app import console, errors, say
from dyno.client import Client, Refused, ServerUnreachable
from dyno.job import Job
from dyno.result import Result

AskedFor = Callable[[Callable[[Job], None]], Result]


def patient(url: str) -> Client:
    """Says on stderr, once each time, that it waits for the service."""
    return Client(url, away=lambda error: say(errors, f"waiting for the service: {error.detail}"))


def result_of(client: Client, ask: AskedFor, as_json: bool, begun: Sequence[str] = ()) -> Result:
    """What `ask` comes to, which is given what to call with each version of the job; see `waiting` for the rest."""
    known = list(begun)
    with render.following(errors if as_json else console) as follow:

        def told(job: Job) -> None:
            known[:] = [job.id]
            follow(job)

        with waiting(client, known):
            return ask(told)


@contextmanager
def waiting(client: Client, begun: Sequence[str]) -> Iterator[None]:
    """`begun` has the job's id once there is one. Ctrl-C cancels it; the service's being away doesn't."""
    try:
        yield
    except KeyboardInterrupt:
        for job_id in begun:
            say(errors, _canceled(client, job_id))
        raise
    except ServerUnreachable as error:
        if not begun:
            raise
        left = f"{begun[0]} goes on without this command: `dyno result {begun[0]}`, once the service is back"
        raise ServerUnreachable(f"{error.detail}\n{left}") from error


def _canceled(client: Client, job_id: str) -> str:
    try:
        return f"{client.cancel(job_id).id}: cancel asked for"
    except Refused:
        return f"{job_id}: had ended before it could be canceled"
    except ServerUnreachable as error:
        return f"{job_id}: not canceled, it goes on: {error.detail}"
