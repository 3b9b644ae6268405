"""Whether requests need a key: always where the settings say so, else from the first key on."""

from __future__ import annotations

import asyncio
import math
import time

from dyno.errors import StoreUnavailable
from dyno.store.api_keys import ApiKeys

FRESH_S = 1.0  # so many seconds after the first key was made, all processes ask for one
PATIENCE_S = 0.5  # with a store that says nothing, while what it said last is known


class Gate:
    """Looks once a second at most, however many ask, and not at all while nobody does."""

    def __init__(self, keys: ApiKeys, *, always_closed: bool) -> None:
        self._keys, self._always = keys, always_closed
        self._closed: bool | None = None
        self._looked_s = -math.inf
        self._look: asyncio.Task[None] | None = None

    async def closed(self) -> bool:
        """As it was a second ago at most. While Redis is away: as it was before. Raises StoreUnavailable where that
        isn't known."""
        if self._always:
            return True
        if time.monotonic() - self._looked_s >= FRESH_S:
            await self._have_looked()
        if self._closed is None:
            raise StoreUnavailable("whether a key is needed isn't known: Redis can't be used now")
        return self._closed

    async def _have_looked(self) -> None:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._do_look())
        look = self._look
        await asyncio.wait((look,), timeout=None if self._closed is None else PATIENCE_S)
        if look.done():
            look.result()

    async def _do_look(self) -> None:
        begun_s = time.monotonic()
        try:
            self._closed = await self._keys.any()
        except StoreUnavailable:
            return  # whoever asked needs the store, too, and is told, or needs none
        self._looked_s = begun_s
