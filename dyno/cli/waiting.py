"""Queueing a job and waiting for it: what Ctrl-C does, and what is said where the service goes away."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from dyno import render
from dyno.cli.app import console, errors, say
from dyno.client import Client, Refused, ServerUnreachable
from dyno.result import Result
from dyno.ulid import new_ulid

T = TypeVar("T")


def patient(url: str) -> Client:
    """Says on stderr, once each time, that it waits for the service."""
    return Client(url, away=lambda error: say(errors, f"waiting for the service: {error.detail}"))


def queued(client: Client, ask: Callable[..., T], job_of: Callable[[T], str]) -> T:
    """What `ask` comes to, a call that queues a job under an `idempotency_key`.

    Ctrl-C amid that may come behind the queueing: it is asked once more, which makes no second job, and that canceled.
    """
    under_one_key = partial(ask, idempotency_key=new_ulid())
    try:
        return under_one_key()
    except KeyboardInterrupt:
        try:
            say(errors, _canceled(client, job_of(under_one_key())))
        except Refused:
            pass  # so there is no job
        except ServerUnreachable as error:
            say(errors, f"it isn't known whether a job was queued: {error.detail}")
        raise


def result_of(client: Client, job_id: str, as_json: bool) -> Result:
    """Once it is there; see `waiting` for the rest."""
    with render.following(errors if as_json else console) as follow, waiting(client, job_id):
        return client.outcome(job_id, follow)


@contextmanager
def waiting(client: Client, job_id: str) -> Iterator[None]:
    """Ctrl-C cancels the job; the service's being away doesn't."""
    try:
        yield
    except KeyboardInterrupt:
        say(errors, _canceled(client, job_id))
        raise
    except ServerUnreachable as error:
        left = f"{job_id} goes on without this command: `dyno result {job_id}`, once the service is back"
        raise ServerUnreachable(f"{error.detail}\n{left}") from error


def _canceled(client: Client, job_id: str) -> str:
    try:
        return f"{client.cancel(job_id).id}: cancel asked for"
    except Refused:
        return f"{job_id}: had ended before it could be canceled"
    except ServerUnreachable as error:
        return f"{job_id}: not canceled, it goes on: {error.detail}"
