"""Run calls, which are coroutines, in both clients: `AsyncClient` returns the coroutine, `Client` its result.

The coroutines of a blocking client never suspend, since it sends, reads and pauses by blocking. So it needs no event
loop, and works even in a thread with a running event loop, such as a notebook's.
"""

import inspect
import os
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, overload

import httpx

from dyno.client import endpoints
from dyno.client.endpoints import ListPage, request
from dyno.client.exceptions import JobNotSucceeded, Refused, ServerUnreachable
from dyno.client.http_transport import (
    PATIENT,
    M,
    OnRetry,
    Request,
    Retries,
    check_status,
    http_errors,
    read_model,
    read_text,
)
from dyno.models.job import Job, Status
from dyno.models.result import Result
from dyno.settings import WrongSettings

DEFAULT_URL = "http://127.0.0.1:8000"

P = ParamSpec("P")
T = TypeVar("T")
OnProgress = Callable[[Job], None]


def run(awaitable: Awaitable[T]) -> T:
    """Run a coroutine that never suspends, and return its result."""
    try:
        awaitable.__await__().send(None)
    except StopIteration as ended:
        result: T = ended.value
        return result
    raise RuntimeError("a coroutine of a blocking client has suspended")


def iterate(items: Any) -> Iterator[Any]:
    """The items of an async generator that never suspends. The generator is closed when the iteration ends."""
    try:
        while True:
            try:
                item = run(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run(items.aclose())


class call(Generic[P, T]):
    """A coroutine method. In a blocking client, the method returns the coroutine's result."""

    def __init__(self, method: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> None:
        self.method = method

    @overload
    def __get__(self, client: "Blocking", kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "Awaited", kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        return self.method  # on the class that declares the method; clients have plain functions

    def blocking(self) -> Callable[..., T]:
        @wraps(self.method)
        def called(client: Any, *args: P.args, **options: P.kwargs) -> T:
            return run(self.method(client, *args, **options))

        return called


class stream(Generic[P, T]):
    """An async generator method. In a blocking client, the method returns an iterator."""

    def __init__(self, method: Callable[Concatenate[Any, P], AsyncIterator[T]]) -> None:
        self.method = method

    @overload
    def __get__(self, client: "Blocking", kind: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "Awaited", kind: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        return self.method

    def blocking(self) -> Callable[..., Iterator[T]]:
        @wraps(self.method)
        def streamed(client: Any, *args: P.args, **options: P.kwargs) -> Iterator[T]:
            yield from iterate(self.method(client, *args, **options))

        iterator: Any = Iterator
        items = iterator[get_args(self.method.__annotations__["return"])]
        streamed.__annotations__ = self.method.__annotations__ | {"return": items}
        streamed.__signature__ = inspect.signature(self.method).replace(return_annotation=items)  # type: ignore[attr-defined]
        return streamed


class Blocking:
    """Base of a blocking client. Turns the calls that the class inherits into blocking functions."""

    def __init_subclass__(cls) -> None:
        _define(cls, lambda declared: declared.blocking())


class Awaited:
    """Base of a client for asyncio. Turns the calls that the class inherits into coroutine functions."""

    def __init_subclass__(cls) -> None:
        _define(cls, lambda declared: declared.method)


def _define(client: type, make: Callable[[Any], Callable[..., Any]]) -> None:
    """Define a plain function for each inherited call, so that `help`, mocks and `inspect` work."""
    declared = {name: item for base in reversed(client.__mro__) for name, item in vars(base).items()}
    for name, item in declared.items():
        if isinstance(item, call | stream):
            setattr(client, name, make(item))


class Exchange(ABC):
    """Sends requests, retries them by their policies, reads all pages of lists, and waits for jobs.

    Subclasses implement connecting, sending, reading and pausing, either by blocking or for asyncio.
    """

    def __init__(
        self, url: str | None = None, key: str | None = None, *, timeout_s: float = 10.0, away: OnRetry | None = None
    ) -> None:
        self.url, self._away = url or os.environ.get("DYNO_URL") or DEFAULT_URL, away
        with http_errors(self.url):
            self._http: Any = self._connected(base_url=self.url, headers=_headers(key), timeout=timeout_s)

    @abstractmethod
    def _connected(self, **options: Any) -> httpx.Client | httpx.AsyncClient:
        """Create the HTTPX client with these options."""

    @abstractmethod
    async def _exchange(self, request: httpx.Request, *, stream: bool = False) -> httpx.Response:
        """Send a request. With `stream`, the caller reads the body later."""

    @abstractmethod
    async def _read(self, response: httpx.Response) -> None:
        """Read the body of a streamed response."""

    @abstractmethod
    def _pieces(self, response: httpx.Response) -> AsyncIterator[bytes]:
        """The body of a streamed response as it arrives."""

    @abstractmethod
    async def _close(self, response: httpx.Response) -> None:
        """Close a streamed response."""

    @abstractmethod
    async def _pause(self, time_s: float) -> None:
        """Wait between two tries."""

    async def _send(self, request: Request[T]) -> T:
        """Send the request, with retries by its policy, and read the response."""
        retries = Retries(request.retry, self._away)
        while True:
            try:
                with http_errors(self.url):
                    response = await self._exchange(request.build(self._http))
                return request.read(response)
            except (Refused, ServerUnreachable) as error:
                pause_s = retries.pause_s(error)
            await self._pause(pause_s)

    @asynccontextmanager
    async def _open(self, request: Request[None]) -> AsyncIterator[httpx.Response]:
        """Send the request once, and check the response. The caller reads its body."""
        with http_errors(self.url):
            response = await self._exchange(request.build(self._http), stream=True)
            try:
                if not response.is_success:
                    await self._read(response)
                request.read(response)
                yield response
            finally:
                await self._close(response)

    async def _get(self, model: type[M], path: str, *ids: str, **options: Any) -> M:
        return await self._send(request("GET", partial(read_model, model), path, *ids, **options))

    async def _post(self, model: type[M], path: str, *ids: str, **options: Any) -> M:
        return await self._send(request("POST", partial(read_model, model), path, *ids, **options))

    async def _put(self, model: type[M], path: str, *ids: str, **options: Any) -> M:
        return await self._send(request("PUT", partial(read_model, model), path, *ids, **options))

    async def _delete(self, path: str, *ids: str) -> None:
        await self._send(request("DELETE", check_status, path, *ids))

    async def _text(self, path: str, *ids: str, **options: Any) -> str:
        return await self._send(request("GET", read_text, path, *ids, **options))

    async def _list(self, page: type[ListPage[T]], path: str, *ids: str) -> list[T]:
        """All items of a list that has no pages."""
        return (await self._get(page, path, *ids)).data

    async def _listed(self, first: Request[ListPage[T]], limit: int | None) -> list[T]:
        return [item async for page in self._pages(first, limit) for item in page]

    async def _pages(
        self, first: Request[ListPage[T]], limit: int | None = None, page_size: int | None = None
    ) -> AsyncIterator[list[T]]:
        """The first `limit` items (None: all), page by page. Any page may have fewer items than requested."""
        most, cursor = page_size or endpoints.MAX_PAGE_SIZE, dict[str, str]()
        while True:
            size = most if limit is None else min(most, limit)
            page = await self._send(replace(first, params={**(first.params or {}), **cursor, "limit": size}))
            yield page.data
            limit = None if limit is None else limit - page.size
            if page.next_cursor is None or (limit is not None and limit <= 0):
                return
            cursor = {"cursor": page.next_cursor}

    async def _current(self, job_id: str) -> Job:
        return await self._get(Job, "/v1/jobs/{}", job_id, retry=PATIENT)

    async def _done(self, job: Job, progress: OnProgress | None) -> Job:
        while True:
            if progress:
                progress(job)
            if job.done:
                return job
            polled = await self._send(endpoints.next_version(job))
            job = polled.job or await self._current(job.id)
            if polled.pause_s:
                await self._pause(polled.pause_s)

    async def _outcome(self, job: Job, progress: OnProgress | None) -> Result:
        job = await self._done(job, progress)
        if job.status is not Status.SUCCEEDED:
            raise JobNotSucceeded(job)
        return await self._get(Result, "/v1/jobs/{}/result", job.id, retry=PATIENT)


def _headers(key: str | None) -> dict[str, str]:
    """The headers of every request. Raises WrongSettings for an invalid key, without showing the key."""
    key = (key or os.environ.get("DYNO_API_KEY") or "").strip()
    if not (key.isascii() and key.isprintable()):
        raise WrongSettings("invalid API key (DYNO_API_KEY or the argument): use printable ASCII characters only")
    return {"Authorization": f"Bearer {key}"} if key else {}
