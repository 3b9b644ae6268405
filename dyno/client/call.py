"""A method of both clients, written once as steps."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from dyno.client.steps import Steps
from dyno.client.transport import AsyncTransport, Transport

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """A client whose calls return what they come to."""

    _http: Transport


class Awaiting:
    """A client whose calls are awaited."""

    _http: AsyncTransport


class call(Generic[P, T]):
    """Of a method that returns Steps, one that returns what they come to, or in an Awaiting client awaits it."""

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
