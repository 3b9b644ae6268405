"""Looking names up. The system does that in a thread that nobody can stop, for as long as a name server likes.

So there are so many of them and no more, few for one API key, and each counts until it is really over. They are
daemons: none keeps the process from its end.
"""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from threading import Thread

MOST_AT_ONCE = 64  # twice as many as attempts: a thread that hangs outlives its attempt
MOST_FOR_OWNER = 16

Addresses = Sequence[str]
LookUp = Callable[[str, int], Addresses]


def addresses_of(host: str, port: int) -> Addresses:
    """The system's addresses of the host, in its order. Raises OSError or UnicodeError where there are none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


class Lookups:
    """Those of one event loop. `look_up` may block."""

    def __init__(
        self, look_up: LookUp = addresses_of, most: int = MOST_AT_ONCE, most_for_owner: int = MOST_FOR_OWNER
    ) -> None:
        self._look_up, self._most, self._most_for_owner = look_up, most, most_for_owner
        self._running: Counter[str] = Counter()
        self._over = asyncio.Event()

    async def find(self, host: str, port: int, owner: str) -> Addresses:
        """What `look_up` finds or raises, once there is a thread for it. `owner`: an API key; "" is nobody, who may
        have all of them."""
        while not self._has_room(owner):
            await self._over.wait()
        loop = asyncio.get_running_loop()
        found: asyncio.Future[Addresses] = loop.create_future()

        def tell(outcome: Addresses | Exception) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._end, owner, found, outcome)

        self._running[owner] += 1
        try:
            Thread(target=_run, args=(partial(self._look_up, host, port), tell), name="lookup", daemon=True).start()
        except RuntimeError as error:  # the process has all the threads that it may have
            self._end(owner, found, OSError(str(error)))
        return await found

    def _has_room(self, owner: str) -> bool:
        of_owner = self._running[owner] if owner else 0
        return self._running.total() < self._most and of_owner < self._most_for_owner

    def _end(self, owner: str, found: asyncio.Future[Addresses], outcome: Addresses | Exception) -> None:
        self._running -= Counter((owner,))
        self._over.set()
        self._over.clear()
        if found.done():  # nobody waits any more
            return
        if isinstance(outcome, Exception):
            found.set_exception(outcome)
        else:
            found.set_result(outcome)


def _run(look_up: Callable[[], Addresses], tell: Callable[[Addresses | Exception], None]) -> None:
    outcome: Addresses | Exception
    try:
        outcome = look_up()
    except Exception as error:  # noqa: BLE001 - raised again where it is waited for
        outcome = error
    tell(outcome)
