"""Make calls with `Client` or `AsyncClient`."""

import asyncio
from collections.abc import Callable
from typing import Any

from dyno.client import AsyncClient, Client
from dyno.errors import DynoError

Ask = Callable[[Any], Any]
Through = Callable[..., Any]


def asked(kind, ask, url, key=None, **options):
    """The result of the call that `ask` makes. `options` are passed to the client."""

    async def awaited():
        async with AsyncClient(url, key, **options) as client:
            return await ask(client)

    if kind is AsyncClient:
        return asyncio.run(awaited())
    with Client(url, key, **options) as client:
        return ask(client)


def all_asked(kind, asks, url):
    """The result or the error of each call. One client makes all calls."""

    async def awaited():
        async with AsyncClient(url) as client:
            return [await ended(ask(client)) for ask in asks]

    async def ended(call):
        try:
            return await call
        except DynoError as error:
            return error

    def or_error(ask, client):
        try:
            return ask(client)
        except DynoError as error:
            return error

    if kind is AsyncClient:
        return asyncio.run(awaited())
    with Client(url) as client:
        return [or_error(ask, client) for ask in asks]
