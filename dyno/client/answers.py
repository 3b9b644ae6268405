"""What the service answers: what a model can read, or what went wrong as one of the client's errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Any, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from dyno.client.errors import ConnectionBroken, Refused, ServerUnreachable

M = TypeVar("M", bound=BaseModel)
_OF_PROBLEMS = ("code", "title", "detail")


def read(kind: type[M], answer: httpx.Response) -> M:
    """What is answered. Raises Refused for a problem, ServerUnreachable for what Dyno can't have sent."""
    check(answer)
    try:
        return kind.model_validate(_json(answer))
    except ValidationError as error:
        raise _foreign(answer, f"with no {kind.__name__}") from error


def check(answer: httpx.Response) -> None:
    """Raises as `read` does where the answer is no success."""
    if answer.is_success:
        return
    problem = _json(answer)
    if not (isinstance(problem, dict) and any(isinstance(problem.get(name), str) for name in _OF_PROBLEMS)):
        raise _foreign(answer, "without a problem")
    raise Refused(problem, answer.status_code, _retry_after_s(answer))


def check_stream(answer: httpx.Response) -> None:
    """Raises as `read` does where these are no events; an empty answer says that there won't be any more."""
    check(answer)
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if answer.status_code != httpx.codes.NO_CONTENT and media_type != "text/event-stream":
        raise _foreign(answer, "without events")


@contextmanager
def connected(url: str) -> Iterator[None]:
    """While the block talks to `url`. Raises ConnectionBroken in place of all that HTTPX raises."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionBroken(f"{url}: {error or type(error).__name__}") from error


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:  # ValueError: no JSON, or no UTF-8
        raise _foreign(answer, "without JSON") from error


def _foreign(answer: httpx.Response, how: str) -> ServerUnreachable:
    text = f"{answer.url} answered {answer.status_code} {how}: not Dyno, or too new for this client?"
    return ServerUnreachable(text, answer.status_code, _retry_after_s(answer))


def _retry_after_s(answer: httpx.Response) -> float | None:
    """Seconds, which the header has as such or as a date; null without it."""
    text = answer.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None
