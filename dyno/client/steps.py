"""What a call does, written once: steps that a client takes one after the other, and what they come to in the end.

A step says what is to be done over the network. Whoever takes it sends the outcome back into the generator, or throws
one of the client's errors: `dyno.client.transport` blocks at it or awaits it, and nothing else of a call differs.
"""

from __future__ import annotations

import math
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from functools import partial
from typing import Any, BinaryIO, NamedTuple, TypeVar

import httpx
from pydantic import BaseModel

from dyno.client.answers import check, read
from dyno.client.errors import ConnectionBroken, Refused, ServerUnreachable

SUBMIT_TRIES = 5  # half a second, one, two and four apart: a service that starts again has come back
PATIENCE_S = 60.0  # how long `patiently` goes on without an answer: the service comes back, and the job runs meanwhile
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
LIMITED = httpx.codes.TOO_MANY_REQUESTS
AWAY = (httpx.codes.BAD_GATEWAY, httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.GATEWAY_TIMEOUT)  # so say proxies, too

M = TypeVar("M", bound=BaseModel)
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


class Away(NamedTuple):
    """Nothing to do, only to know: over this the call pauses now, and asks again."""

    error: Refused | ServerUnreachable


Step = Ask | Receive | Pause | Away
Steps = Generator[Step, Any, T]


def sent(method: str, path: str, **options: Any) -> Steps[httpx.Response]:
    """The answer as it comes, problems too."""
    answer: httpx.Response = yield Ask(method, path, options)
    return answer


def asked(kind: type[M], method: str, path: str, **options: Any) -> Steps[M]:
    """What is answered."""
    return read(kind, (yield from sent(method, path, **options)))


def text_of(path: str) -> Steps[str]:
    """What is there, where it is no JSON."""
    answer = yield from sent("GET", path)
    check(answer)
    return answer.text


def once(kind: type[M], path: str, document: Any = None, key: str | None = None) -> Steps[M]:
    """POST it, a few times while the service is away, under one idempotency key."""
    headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
    ask = partial(asked, kind, "POST", path, json=document, headers=headers)
    return patiently(ask, is_away, SUBMIT_TRIES)


def is_away(error: Refused | ServerUnreachable) -> bool:
    """Whether nobody is there to answer now."""
    return isinstance(error, ConnectionBroken) or error.status in AWAY


def passes(error: Refused | ServerUnreachable) -> bool:
    """Whether it may be otherwise soon: the service is away, or the caller has asked too often."""
    return is_away(error) or error.status == LIMITED


def patiently(
    ask: Callable[[], Steps[T]],
    passing: Callable[[Refused | ServerUnreachable], bool] = passes,
    tries: float = math.inf,
) -> Steps[T]:
    """Ask again while what goes wrong is `passing`: a minute at most, and not before the service says.

    Before the first pause it says over what.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    pause_s, is_told = FIRST_PAUSE_S, False
    while True:
        tries -= 1
        try:
            return (yield from ask())
        except (Refused, ServerUnreachable) as error:
            wait_s = max(pause_s, error.retry_after_s or 0.0)
            if not passing(error) or tries <= 0 or time.monotonic() + wait_s > deadline_s:
                raise
            if not is_told:
                yield Away(error)
        is_told = True
        yield Pause(wait_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
