"""What a call does, written once: steps that a client takes one after the other, and what they come to in the end.

A step says what is to be done over the network. Whoever takes it sends the outcome back into the generator, or throws
one of the client's errors: `dyno.client.transport` blocks at it or awaits it, and nothing else of a call differs.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, BinaryIO, NamedTuple, TypeVar

import httpx

from dyno.client.answers import body
from dyno.client.errors import ConnectionBroken, Refused

SUBMIT_TRIES = 3
PATIENCE_S = 60.0  # how long `patiently` goes on without an answer: the service comes back, and the job runs meanwhile
RETRY_S = 0.5
PASSING = (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS)

T = TypeVar("T")


class Ask(NamedTuple):
    """A request; its outcome is the answer, problems too. `options` as of `httpx.Client.build_request`.

    `to_strangers`: the key isn't told, since another program may have the service's port.
    """

    method: str
    path: str
    options: Mapping[str, Any]
    to_strangers: bool = False


class Receive(NamedTuple):
    """What is there, written to `file` as it comes; the outcome is its SHA-256."""

    path: str
    file: BinaryIO


class Pause(NamedTuple):
    """Doing nothing for a while."""

    time_s: float


Step = Ask | Receive | Pause
Steps = Generator[Step, Any, T]


def sent(method: str, path: str, **options: Any) -> Steps[httpx.Response]:
    """The answer as it comes, problems too."""
    answer: httpx.Response = yield Ask(method, path, options)
    return answer


def asked(method: str, path: str, **options: Any) -> Steps[Any]:
    """The JSON that is answered."""
    return body((yield from sent(method, path, **options)))


def text_of(path: str) -> Steps[str]:
    """What is there, where it is no JSON."""
    answer = yield from sent("GET", path)
    if answer.is_error:
        body(answer)
    return answer.text


def once(path: str, document: Any = None) -> Steps[Any]:
    """POST it, again where the connection breaks, under one idempotency key."""
    headers = {"Idempotency-Key": secrets.token_hex(16)}
    for tries_left in reversed(range(SUBMIT_TRIES)):
        try:
            return (yield from asked("POST", path, json=document, headers=headers))
        except ConnectionBroken:
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


def passes(error: ConnectionBroken | Refused) -> bool:
    """Whether it may be otherwise soon: the service is away, or says 503 or 429."""
    return isinstance(error, ConnectionBroken) or error.status in PASSING


def patiently(ask: Callable[[], Steps[T]]) -> Steps[T]:
    """Ask again while what goes wrong may pass, a minute at most."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return (yield from ask())
        except (ConnectionBroken, Refused) as error:
            if not passes(error) or time.monotonic() >= deadline_s:
                raise
        yield Pause(RETRY_S)
