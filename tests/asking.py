"""Make calls with `Client` or `AsyncClient`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from dyno.client import AsyncClient, Client
from dyno.errors import DynoError

Ask = Callable[[Any], Any]
Through = Callable[..., Any]


def asked(kind: type[Client] | type[AsyncClient], ask: Ask, url: str, key: str | None = None, **options: Any) -> Any:
    """The result of the call that `ask` makes. `options` are passed to the client."""

    async def awaited() -> Any:
        async with AsyncClient(url, key, **options) as client:
            return await ask(client)

    if kind is AsyncClient:
        return asyncio.run(awaited())
    with Client(url, key, **options) as client:
        return ask(client)


def all_asked(kind: type[Client] | type[AsyncClient], asks: Iterable[Ask], url: str) -> list[Any]:
    """The result or the error of each call. One client makes all calls."""

    async def awaited() -> list[Any]:
        async with AsyncClient(url) as client:
            return [await ended(ask(client)) for ask in asks]

    async def ended(call: Awaitable[Any]) -> Any:
        try:
            return await call
        except DynoError as error:
            return error

    def or_error(ask: Ask, client: Client) -> Any:
        try:
            return ask(client)
        except DynoError as error:
            return error

    if kind is AsyncClient:
        return asyncio.run(awaited())
    with Client(url) as client:
        return [or_error(ask, client) for ask in asks]
