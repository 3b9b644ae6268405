"""Pages that many open dashboards load again at once, each made once for all of them."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

SHARED_S = 0.5  # a dashboard waits longer after an event, so its page isn't older than the event


class _Made(NamedTuple):
    began_s: float
    page: asyncio.Future[bytes]


class SharedPages:
    """The pages of the last half second, by name and caller. Requests while a page is made wait for it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[tuple[str, str], _Made] = {}

    async def latest(self, name: str, caller: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The page, or the error of making it."""
        now_s = self._clock()
        self._made = {key: made for key, made in self._made.items() if now_s - made.began_s < SHARED_S}
        made = self._made.get((name, caller))
        if made is None:
            made = self._made[name, caller] = _Made(now_s, asyncio.ensure_future(make()))
        return await asyncio.shield(made.page)  # a request that ends must not end the page of others
