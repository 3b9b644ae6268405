"""Answers that many requests ask for at once, each made once for all of them.

A request that ends must not end the answer of others, so all wait for a shielded future.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeVar

FRESH_S = 1.0
SHARED_S = 0.5  # a dashboard waits longer after an event, so its page isn't older than the event

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """A check whose outcome serves all requests of the next second. Requests during a check wait for its outcome."""

    def __init__(self, check: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check, self._clock = check, clock
        self._began_s = -math.inf
        self._latest: asyncio.Future[T] | None = None

    async def latest(self) -> T:
        """The outcome of the latest check, or its error."""
        if self._latest is None or (self._latest.done() and self._clock() - self._began_s >= FRESH_S):
            self._began_s = self._clock()
            self._latest = asyncio.ensure_future(self._check())
        return await asyncio.shield(self._latest)


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
        return await asyncio.shield(made.page)
