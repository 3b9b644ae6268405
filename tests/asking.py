"""A call made by one client or the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dyno.client import AsyncClient, Client

Ask = Callable[[Any], Any]
Through = Callable[..., Any]


def asked(kind: type[Client] | type[AsyncClient], ask: Ask, url: str, key: str | None = None) -> Any:
    """What the call that `ask` makes comes to."""

    async def awaited() -> Any:
        async with AsyncClient(url, key) as client:
            return await ask(client)

    if kind is AsyncClient:
        return asyncio.run(awaited())
    with Client(url, key) as client:
        return ask(client)
