"""How the clients carry out their calls: each call is the request that it sends, or a flow of several.

A client sends each request that a flow yields, and pauses where it yields a number.
"""

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterator
from datetime import datetime
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, get_args, get_origin, overload

from dyno.client import endpoints
from dyno.client.endpoints import Listing, ListPage
from dyno.client.exceptions import JobNotSucceeded
from dyno.client.http_transport import PATIENT, M, Request
from dyno.models.job import Job, Status
from dyno.models.result import Result
from dyno.models.sweep import Sweep

P = ParamSpec("P")
T = TypeVar("T")
OnProgress = Callable[[Job], None]
OnSweep = Callable[[Sweep], None]
Time = datetime | str | None
Flow = Generator[Request[Any] | float, Any, T]  # yields requests, whose answers it gets, and pauses in seconds
Pages = Generator[Request[Any] | float | list[T], Any, None]  # yields lists of items as well


class call(Generic[P, T]):
    """A method that returns a request or a flow. Clients that block return its answer, the others an awaitable."""

    def __init__(self, method: Callable[Concatenate[Any, P], Request[T] | Flow[T]]) -> None:
        self.method = method

    @overload
    def __get__(self, client: "Blocking", kind: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: "Awaited", kind: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        return self.method  # of the class that declares it: clients have functions


class stream(Generic[P, T]):
    """A method that yields requests and lists of items. Clients return an iterator over the items."""

    def __init__(self, method: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self.method = method

    @overload
    def __get__(self, client: "Blocking", kind: type) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: "Awaited", kind: type) -> Callable[P, AsyncIterator[T]]: ...
    @overload
    def __get__(self, client: None, kind: type) -> Callable[..., Any]: ...
    def __get__(self, client: Any, kind: type) -> Any:
        return self.method


def _as(function: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """`function` with the name, the docstring and the params of `method`, and with the type of what it answers."""
    returned = method.__annotations__["return"]
    origin: Any = get_origin(returned)
    kinds = get_args(returned)
    if origin is Request:
        answer = kinds[0]
    elif kinds[2] in (None, type(None)):  # pages
        answer = Iterator[next(get_args(kind)[0] for kind in get_args(kinds[0]) if get_origin(kind) is list)]  # type: ignore[misc]
    else:
        answer = kinds[2]
    function = wraps(method)(function)
    function.__annotations__ = {**method.__annotations__, "return": answer}
    function.__signature__ = inspect.signature(method).replace(return_annotation=answer)  # type: ignore[attr-defined]
    return function


def _blocking(declared: "call[Any, Any] | stream[Any, Any]") -> Callable[..., Any]:
    method, how = declared.method, "_stream" if isinstance(declared, stream) else "_carry_out"

    def called(self: Any, *args: Any, **options: Any) -> Any:
        return getattr(self, how)(method(self, *args, **options))

    return _as(called, method)


def _awaited(declared: "call[Any, Any] | stream[Any, Any]") -> Callable[..., Any]:
    method = declared.method

    async def called(self: Any, *args: Any, **options: Any) -> Any:
        return await getattr(self, "_carry_out")(method(self, *args, **options))  # noqa: B009

    async def streamed(self: Any, *args: Any, **options: Any) -> Any:
        async for item in getattr(self, "_stream")(method(self, *args, **options)):  # noqa: B009
            yield item

    return _as(streamed if isinstance(declared, stream) else called, method)


def sent(request: Request[T]) -> Flow[T]:
    """The answer to a request, within a flow."""
    answer: T = yield request
    return answer


def listed(request: Request[ListPage[M]], limit: int | None) -> Flow[list[M]]:
    listing = Listing(request, limit)
    while listing.request:
        listing.add((yield from sent(listing.request)))
    return listing.items


def until_done(job: Job, progress: OnProgress | None) -> Flow[Job]:
    while True:
        if progress:
            progress(job)
        if job.done:
            return job
        polled = yield from sent(endpoints.next_version(job))
        job = polled.job or (yield from sent(endpoints.job(job.id, retry=PATIENT)))
        if polled.pause_s:
            yield polled.pause_s


def result_of(job: Job, progress: OnProgress | None) -> Flow[Result]:
    job = yield from until_done(job, progress)
    if job.status is not Status.SUCCEEDED:
        raise JobNotSucceeded(job)
    return (yield from sent(endpoints.result(job.id, retry=PATIENT)))


class Blocking:
    """Makes a class that inherits calls a client that blocks."""

    def __init_subclass__(cls) -> None:
        if Blocking in cls.__bases__:
            _define(cls, _blocking)


class Awaited:
    """Makes a class that inherits calls a client for asyncio."""

    def __init_subclass__(cls) -> None:
        if Awaited in cls.__bases__:
            _define(cls, _awaited)


def _define(client: type, make: Callable[..., Callable[..., Any]]) -> None:
    """Give the class a function for each call that it inherits, which `help`, mocks and `inspect` can read."""
    declared = {name: item for base in reversed(client.__mro__) for name, item in vars(base).items()}
    for name, item in declared.items():
        if isinstance(item, call | stream):
            setattr(client, name, make(item))
