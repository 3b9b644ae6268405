"""What the service answers: JSON, or what went wrong as one of the client's errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from dyno.client.errors import ConnectionBroken, Refused, ServerUnreachable


def body(answer: httpx.Response) -> Any:
    """The JSON of an answer. Raises Refused for a problem, ServerUnreachable for what Dyno can't have sent."""
    try:
        found = answer.json()
    except json.JSONDecodeError as error:
        raise ServerUnreachable(f"{answer.url} answered {answer.status_code} without JSON: not Dyno?") from error
    if answer.is_error:
        raise Refused(found if isinstance(found, dict) else {"title": str(found), "status": answer.status_code})
    return found


@contextmanager
def connected(url: str) -> Iterator[None]:
    """While the block talks to `url`. Raises ConnectionBroken in place of all that HTTPX raises."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionBroken(f"{url}: {error or type(error).__name__}") from error
