"""HTTP code shared by both clients: requests, responses, errors and retries.

Responses that don't come from Dyno raise `ServerUnreachable`.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, BinaryIO, Generic, NamedTuple, TypeVar

import httpx
from pydantic import BaseModel, ValidationError

from dyno.client.exceptions import ConnectionBroken, Refused, ServerUnreachable

M = TypeVar("M", bound=BaseModel)
T_co = TypeVar("T_co", covariant=True)
_PROBLEM_FIELDS = ("code", "title", "detail")


def read_model(kind: type[M], response: httpx.Response) -> M:
    """Parse the response. Raises Refused for a problem, ServerUnreachable if the response doesn't come from Dyno."""
    check_status(response)
    try:
        return kind.model_validate(_json(response))
    except ValidationError as error:
        raise _not_from_dyno(response, f"without a {kind.__name__}") from error


def read_text(response: httpx.Response) -> str:
    check_status(response)
    return response.text


def read_bytes(response: httpx.Response) -> bytes:
    check_status(response)
    return response.content


def check_status(response: httpx.Response) -> None:
    """Raises like `read_model` unless the response is a success."""
    if response.is_success:
        return
    problem = _json(response)
    if not (isinstance(problem, dict) and any(isinstance(problem.get(name), str) for name in _PROBLEM_FIELDS)):
        raise _not_from_dyno(response, "without a problem")
    raise Refused(problem, response.status_code, retry_after_s(response))


def check_stream(response: httpx.Response) -> None:
    """Raises like `read_model` unless the response is an event stream. An empty response (204) means no more events."""
    check_status(response)
    media_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
    if response.status_code != httpx.codes.NO_CONTENT and media_type != "text/event-stream":
        raise _not_from_dyno(response, "without events")


def retry_after_s(response: httpx.Response) -> float | None:
    """The Retry-After header in seconds, even if the header is a date. None without the header."""
    text = response.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except (ValueError, RecursionError) as error:  # ValueError: invalid JSON or UTF-8
        raise _not_from_dyno(response, "without JSON") from error


def _not_from_dyno(response: httpx.Response, how: str) -> ServerUnreachable:
    text = f"{response.url} answered {response.status_code} {how}: not Dyno, or too new for this client?"
    return ServerUnreachable(text, response.status_code, retry_after_s(response))


@contextmanager
def http_errors(url: str) -> Iterator[None]:
    """Raise ConnectionBroken in place of HTTPX's errors. The block sends requests to `url`."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionBroken(f"{url}: {error or type(error).__name__}") from error


SUBMIT_TRIES = 5  # 0.5, 1, 2 and 4 s apart: enough time for a restart of the service
PATIENCE_S = 60.0  # how long a call retries; jobs continue during a restart of the service
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
CONNECT_RETRIES = 1  # after the first attempt
UNAVAILABLE = (502, 503, 504)  # proxies also send these
OnRetry = Callable[[Refused | ServerUnreachable], None]


def is_unavailable(error: Refused | ServerUnreachable) -> bool:
    """Whether the service is away now."""
    return isinstance(error, ConnectionBroken) or error.status in UNAVAILABLE


def is_transient(error: Refused | ServerUnreachable) -> bool:
    """Whether a retry may succeed soon: the service is away, or the caller is over its rate limit."""
    return is_unavailable(error) or error.status == 429


class RetryPolicy(NamedTuple):
    """How often to send a request, and after which errors. Pauses double up to `longest_pause_s`."""

    tries: float
    is_retryable: Callable[[Refused | ServerUnreachable], bool]
    longest_pause_s: float = LONGEST_PAUSE_S


NO_RETRY = RetryPolicy(1, is_transient)
SUBMIT = RetryPolicy(SUBMIT_TRIES, is_unavailable)
PATIENT = RetryPolicy(math.inf, is_transient)


class Retries:
    """The retries of one call, for a minute at most. A retry never comes before the time in Retry-After.

    Calls `away` before the first pause.
    """

    def __init__(self, policy: RetryPolicy, away: OnRetry | None = None) -> None:
        self._tries, self._is_retryable, self._longest_pause_s = policy
        self._away = away
        self._next_pause_s = FIRST_PAUSE_S
        self._deadline_s = time.monotonic() + PATIENCE_S

    def pause_s(self, error: Refused | ServerUnreachable) -> float:
        """The pause before the next try. Raises the error after the last try."""
        self._tries -= 1
        pause_s = max(min(self._next_pause_s, self._longest_pause_s), error.retry_after_s or 0.0)
        if not self._is_retryable(error) or self._tries <= 0 or time.monotonic() + pause_s > self._deadline_s:
            raise error
        if self._away:
            self._away(error)
        self._away = None
        self._next_pause_s *= 2
        return pause_s


@dataclass(frozen=True)
class Request(Generic[T_co]):
    """A request with the function that reads its response, and its policy for retries."""

    method: str
    path: str
    read: Callable[[httpx.Response], T_co]  # raises for a problem
    params: Mapping[str, Any] | None = None
    json: Any = None
    content: BinaryIO | bytes | None = None
    headers: Mapping[str, str] | None = None
    timeout: Any = httpx.USE_CLIENT_DEFAULT
    retry: RetryPolicy = NO_RETRY
    authenticate: bool = True

    def build(self, http: httpx.Client | httpx.AsyncClient) -> httpx.Request:
        options = {name: getattr(self, name) for name in ("params", "json", "content", "headers", "timeout")}
        request = http.build_request(self.method, self.path, **options)
        if not self.authenticate:
            request.headers.pop("Authorization", None)
        return request
