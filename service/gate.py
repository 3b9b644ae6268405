"""Whether requests need a key: always where the settings say so, else from the first key on."""

from __future__ import annotations

import asyncio
import math
import time

from dyno.errors import StoreUnavailable
from dyno.store.api_keys import ApiKeys

FRESH_S = 1.0  # so many seconds after the first key was made, all processes ask for one
PATIENCE_S = 0.5  # with a store that says nothing, while what it said last may be believed
BELIEVED_S = 2.0  # that no key is needed: meanwhile the first one may have been made


class Gate:
    """Looks once a second at most, however many ask, and not at all while nobody does.

    Once it has seen keys it opens only where the store says so in words (`ApiKeys.opened`), not where it knows of none:
    one that was restarted without its data doesn't.
    """

    def __init__(self, keys: ApiKeys, *, always_closed: bool) -> None:
        self._keys, self._always = keys, always_closed
        self._closed: bool | None = None
        self._looked_s = -math.inf
        self._look: asyncio.Task[None] | None = None

    async def closed(self, *, while_away: bool = False) -> bool:
        """As it was a second ago at most. While the store is away: closed, if it was before.

        Raises StoreUnavailable where it isn't known, nor was within two seconds that it is open; `while_away`: however
        long ago that was.
        """
        if self._always:
            return True
        if time.monotonic() - self._looked_s >= FRESH_S:
            look = self._looking()
            await asyncio.wait((look,), timeout=PATIENCE_S)
            if not self._is_known(while_away):
                await asyncio.wait((look,))
            if look.done():
                look.result()
        if self._closed is None or not self._is_known(while_away):
            raise StoreUnavailable("whether a key is needed isn't known: Redis can't be used now")
        return self._closed

    def _is_known(self, while_away: bool) -> bool:
        if self._closed is False and not while_away:
            return time.monotonic() - self._looked_s < BELIEVED_S
        return self._closed is not None

    def _looking(self) -> asyncio.Task[None]:
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._do_look())
        return self._look

    async def _do_look(self) -> None:
        begun_s = time.monotonic()
        try:
            closed = await self._keys.any()
            if self._closed and not closed:
                closed = not await self._keys.opened()
        except StoreUnavailable:
            return  # whoever asked needs the store, too, and is told, or needs none
        self._closed, self._looked_s = closed, begun_s
