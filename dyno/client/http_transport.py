"""HTTP for both clients: requests, retries and pages, written once for blocking and asyncio.

A call is a generator of steps: requests to send, downloads, pauses. `Transport` runs each step and blocks,
`AsyncTransport` awaits it. Both send the outcome back into the generator, or throw one of the client's exceptions
into it. `call` turns such a generator into a method of both clients.

Responses that don't come from Dyno raise `ServerUnreachable`. Ids are quoted, so each stays one segment of a path.
"""

from __future__ import annotations

import asyncio
import hashlib
import math
import secrets
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial, wraps
from typing import Any, BinaryIO, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar, overload
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from dyno.client.exceptions import ConnectionBroken, Refused, ServerUnreachable
from dyno.errors import DynoError
from dyno.models.job import Stored
from dyno.models.result import ResultRow, ResultRows

M = TypeVar("M", bound=BaseModel)
_PROBLEM_FIELDS = ("code", "title", "detail")


def read_model(kind: type[M], answer: httpx.Response) -> M:
    """Parse the response. Raises Refused for a problem, ServerUnreachable if the response doesn't come from Dyno."""
    check_status(answer)
    try:
        return kind.model_validate(_json(answer))
    except ValidationError as error:
        raise _not_from_dyno(answer, f"without a {kind.__name__}") from error


def check_status(answer: httpx.Response) -> None:
    """Raises like `read_model` unless the response is a success."""
    if answer.is_success:
        return
    problem = _json(answer)
    if not (isinstance(problem, dict) and any(isinstance(problem.get(name), str) for name in _PROBLEM_FIELDS)):
        raise _not_from_dyno(answer, "without a problem")
    raise Refused(problem, answer.status_code, _retry_after_s(answer))


def check_stream(answer: httpx.Response) -> None:
    """Raises like `read_model` unless the response is an event stream. An empty response (204) means no more events."""
    check_status(answer)
    media_type = answer.headers.get("Content-Type", "").partition(";")[0].strip()
    if answer.status_code != httpx.codes.NO_CONTENT and media_type != "text/event-stream":
        raise _not_from_dyno(answer, "without events")


@contextmanager
def http_errors(url: str) -> Iterator[None]:
    """Raise ConnectionBroken in place of HTTPX's errors in the block, which talks to `url`."""
    try:
        yield
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise ConnectionBroken(f"{url}: {error or type(error).__name__}") from error


def _json(answer: httpx.Response) -> Any:
    try:
        return answer.json()
    except (ValueError, RecursionError) as error:  # ValueError: invalid JSON or UTF-8
        raise _not_from_dyno(answer, "without JSON") from error


def _not_from_dyno(answer: httpx.Response, how: str) -> ServerUnreachable:
    text = f"{answer.url} answered {answer.status_code} {how}: not Dyno, or too new for this client?"
    return ServerUnreachable(text, answer.status_code, _retry_after_s(answer))


def _retry_after_s(answer: httpx.Response) -> float | None:
    """The Retry-After header in seconds; it may also be a date. None without the header."""
    text = answer.headers.get("Retry-After", "")
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        return max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def path_segment(name: str) -> str:
    """Quote `name` as one path segment. HTTPX resolves `..`, so a name of dots only has its dots quoted too."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


SUBMIT_TRIES = 5  # 0.5, 1, 2 and 4 s apart, which is enough for a service that restarts
PATIENCE_S = 60.0  # how long `with_retries` retries; the job runs on while the service restarts
FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.5, 5.0
RATE_LIMITED = httpx.codes.TOO_MANY_REQUESTS
UNAVAILABLE = (
    httpx.codes.BAD_GATEWAY,
    httpx.codes.SERVICE_UNAVAILABLE,
    httpx.codes.GATEWAY_TIMEOUT,
)  # proxies send these too

T = TypeVar("T")


class ApiRequest(NamedTuple):
    """A request. Its outcome is the response, even a problem. `options` are those of `httpx.Client.build_request`.

    `to_strangers`: omit the API key, since another program may listen on the service's port.
    """

    method: str
    path: str
    options: Mapping[str, Any]
    to_strangers: bool = False


class Download(NamedTuple):
    """A download into `file`. Its outcome is the SHA-256."""

    path: str
    file: BinaryIO


class Pause(NamedTuple):
    """A pause before the next step."""

    time_s: float


class RetryNotice(NamedTuple):
    """Tells the client's `away` callback that the call pauses because of this error, and then retries."""

    error: Refused | ServerUnreachable


IoStep = ApiRequest | Download | Pause | RetryNotice
Steps = Generator[IoStep, Any, T]


def send_request(method: str, path: str, **options: Any) -> Steps[httpx.Response]:
    """Send a request. Returns the response, even a problem."""
    answer: httpx.Response = yield ApiRequest(method, path, options)
    return answer


def request_model(kind: type[M], method: str, path: str, **options: Any) -> Steps[M]:
    """Send a request and parse the response."""
    return read_model(kind, (yield from send_request(method, path, **options)))


def request_text(path: str) -> Steps[str]:
    """GET a resource that is text, not JSON."""
    answer = yield from send_request("GET", path)
    check_status(answer)
    return answer.text


def post_once(kind: type[M], path: str, document: Any = None, key: str | None = None) -> Steps[M]:
    """POST the document under one idempotency key, with a few retries while the service is away."""
    headers = {"Idempotency-Key": secrets.token_hex(16) if key is None else key}
    ask = partial(request_model, kind, "POST", path, json=document, headers=headers)
    return with_retries(ask, is_unavailable, SUBMIT_TRIES)


def is_unavailable(error: Refused | ServerUnreachable) -> bool:
    """Whether the service is away now."""
    return isinstance(error, ConnectionBroken) or error.status in UNAVAILABLE


def is_transient(error: Refused | ServerUnreachable) -> bool:
    """Whether a retry may succeed soon: the service is away, or the caller is over its rate limit."""
    return is_unavailable(error) or error.status == RATE_LIMITED


def with_retries(
    ask: Callable[[], Steps[T]],
    is_retryable: Callable[[Refused | ServerUnreachable], bool] = is_transient,
    tries: float = math.inf,
) -> Steps[T]:
    """Retry while errors are `is_retryable`, for a minute at most, and never before the time that Retry-After asks for.

    Sends a RetryNotice before the first pause.
    """
    deadline_s = time.monotonic() + PATIENCE_S
    pause_s, has_noticed = FIRST_PAUSE_S, False
    while True:
        tries -= 1
        try:
            return (yield from ask())
        except (Refused, ServerUnreachable) as error:
            wait_s = max(pause_s, error.retry_after_s or 0.0)
            if not is_retryable(error) or tries <= 0 or time.monotonic() + wait_s > deadline_s:
                raise
            if not has_noticed:
                yield RetryNotice(error)
        has_noticed = True
        yield Pause(wait_s)
        pause_s = min(2 * pause_s, LONGEST_PAUSE_S)


_TRIES_TO_CONNECT = 1  # retries after the first attempt
OnRetry = Callable[[Refused | ServerUnreachable], None]


class Transport:
    """One connection pool to one service. Raises ConnectionBroken, ServerUnreachable or Refused."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str], away: OnRetry | None = None) -> None:
        """`headers` are sent with each request to `url`. Redirects aren't followed. Raises ConnectionBroken."""
        self._url, self._away = url, away
        transport = httpx.HTTPTransport(retries=_TRIES_TO_CONNECT)
        with http_errors(url):
            self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    def close(self) -> None:
        self._http.close()

    def through(self, steps: Steps[T]) -> T:
        """Run the steps and return their result."""
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        outcome = self._run_step(step)
                    except DynoError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found

    @contextmanager
    def open(self, path: str, **options: Any) -> Iterator[httpx.Response]:
        """GET a response to read as a stream."""
        with http_errors(self._url), self._http.stream("GET", path, **options) as answer:
            if not answer.is_success:
                answer.read()
                check_status(answer)
            yield answer

    def _run_step(self, step: IoStep) -> Any:
        match step:
            case ApiRequest():
                with http_errors(self._url):
                    return self._http.send(_build_request(self._http, step))
            case Download(path, file):
                digest = hashlib.sha256()
                with self.open(path) as answer:
                    for piece in answer.iter_bytes():
                        file.write(piece)
                        digest.update(piece)
                return digest.hexdigest()
            case Pause(time_s):
                return time.sleep(time_s)
            case RetryNotice(error):
                return self._away(error) if self._away else None


class AsyncTransport:
    """As Transport, but awaited."""

    def __init__(self, url: str, timeout_s: float, headers: Mapping[str, str], away: OnRetry | None = None) -> None:
        self._url, self._away = url, away
        transport = httpx.AsyncHTTPTransport(retries=_TRIES_TO_CONNECT)
        with http_errors(url):
            self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    async def close(self) -> None:
        await self._http.aclose()

    async def through(self, steps: Steps[T]) -> T:
        with closing(steps):
            try:
                step = next(steps)
                while True:
                    try:
                        outcome = await self._run_step(step)
                    except DynoError as error:
                        step = steps.throw(error)
                    else:
                        step = steps.send(outcome)
            except StopIteration as end:
                found: T = end.value
                return found

    @asynccontextmanager
    async def open(self, path: str, **options: Any) -> AsyncIterator[httpx.Response]:
        with http_errors(self._url):
            async with self._http.stream("GET", path, **options) as answer:
                if not answer.is_success:
                    await answer.aread()
                    check_status(answer)
                yield answer

    async def _run_step(self, step: IoStep) -> Any:
        match step:
            case ApiRequest():
                with http_errors(self._url):
                    return await self._http.send(_build_request(self._http, step))
            case Download(path, file):
                digest = hashlib.sha256()
                async with self.open(path) as answer:
                    async for piece in answer.aiter_bytes():
                        file.write(piece)
                        digest.update(piece)
                return digest.hexdigest()
            case Pause(time_s):
                return await asyncio.sleep(time_s)
            case RetryNotice(error):
                return self._away(error) if self._away else None


def _build_request(http: httpx.Client | httpx.AsyncClient, ask: ApiRequest) -> httpx.Request:
    request = http.build_request(ask.method, ask.path, **ask.options)
    if ask.to_strangers:
        request.headers.pop("Authorization", None)
    return request


P = ParamSpec("P")


class Blocking:
    """A client whose calls block."""

    _http: Transport


class Awaiting:
    """A client whose calls are awaited."""

    _http: AsyncTransport


class call(Generic[P, T]):
    """Turn a method that returns Steps into one that runs them: blocking, or awaited in an Awaiting client."""

    def __init__(self, steps: Callable[Concatenate[Any, P], Steps[T]]) -> None:
        self._steps = steps

    @overload
    def __get__(self, client: Blocking, owner: Any = None) -> Callable[P, T]: ...

    @overload
    def __get__(self, client: Awaiting, owner: Any = None) -> Callable[P, Coroutine[Any, Any, T]]: ...

    @overload
    def __get__(self, client: None, owner: Any) -> Callable[Concatenate[Any, P], Steps[T]]: ...

    def __get__(self, client: Blocking | Awaiting | None, owner: Any = None) -> Callable[..., Any]:
        if client is None:
            return self._steps
        steps: Callable[P, Steps[T]] = self._steps.__get__(client)

        @wraps(steps)
        def called(*args: P.args, **kwargs: P.kwargs) -> T | Coroutine[Any, Any, T]:
            return client._http.through(steps(*args, **kwargs))

        return called


DEFAULT_LIMIT = 50
_MAX_PAGE_SIZE = 200  # the API's limit for a page

Filters = Mapping[str, str | datetime | None]


class ListPage(Stored, Generic[M]):
    """One page of a list. `next_cursor` is null on the last page."""

    data: list[M]
    next_cursor: str | None = None


def list_pages(kind: type[ListPage[M]], path: str, filters: Filters, limit: int | None) -> Steps[list[M]]:
    """The first `limit` items (None: all), over as many pages as necessary. Any page may be short."""
    found: list[M] = []
    wanted = _parameters(filters)
    while True:
        page = yield from request_model(kind, "GET", path, params=wanted | {"limit": _page_size(limit, len(found))})
        found += page.data
        if page.next_cursor is None or (limit is not None and len(found) >= limit):
            return found
        wanted["cursor"] = page.next_cursor


def list_rows(filters: Filters, limit: int | None) -> Steps[list[ResultRow]]:
    """The rows of `/v1/results` for the first `limit` jobs that have a row. Its pages count jobs, not rows."""
    found: list[ResultRow] = []
    wanted = _parameters(filters)
    while True:
        jobs = len({row.job for row in found})
        answer = yield from send_request("GET", "/v1/results", params=wanted | {"limit": _page_size(limit, jobs)})
        page = read_model(ResultRows, answer).root
        found += page
        cursor = httpx.URL(answer.links.get("next", {}).get("url", "")).params.get("cursor")
        if cursor is None or (limit is not None and len({row.job for row in found}) >= limit):
            return found
        wanted["cursor"] = cursor


def _page_size(limit: int | None, found: int) -> int:
    return _MAX_PAGE_SIZE if limit is None else min(_MAX_PAGE_SIZE, limit - found)


def _parameters(filters: Filters) -> dict[str, str | int]:
    given = {name: value for name, value in filters.items() if value is not None}
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in given.items()}
