"""Answers that stay open: how they wait for news, and how long for a reader that is stuck."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, TypeVar

from fastapi import Depends
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from dyno.asyncio_tasks import cancel_and_wait
from service.access import Caller, CallerDep, may_go_on
from service.dependencies import StateDep
from service.state import State

LOOK_EVERY_S = 15.0  # and then say that the connection lives: proxies cut one that is silent for 30 s or longer
TAKEN_WITHIN_S = 60.0  # one piece, by a reader that may be slow, but not stuck
RETRY_S = 1.0
HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # for nginx, which would hold back what comes in small pieces
    "X-Content-Type-Options": "nosniff",
}
_Piece = TypeVar("_Piece", str, bytes)


class Held(StreamingResponse):
    """Lets go of a reader that takes nothing any more: it holds one of few places."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until all is told or the reader leaves. Starlette's own ends a group of tasks then, of which each error holds
        what raised it, so that everything lies there until garbage is looked for."""
        told = asyncio.create_task(self.stream_response(send))
        left = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((told, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await cancel_and_wait(left)
            await cancel_and_wait(told)
        if not told.cancelled():
            told.result()
        if self.background is not None:
            await self.background()

    async def stream_response(self, send: Send) -> None:
        async def sent_in_time(message: Message) -> None:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await send(message)

        with contextlib.suppress(TimeoutError):
            await super().stream_response(sent_in_time)


async def _stream(state: StateDep, caller: CallerDep) -> AsyncIterator[None]:
    with state.streams.one(caller.key):
        yield


OneStream = Annotated[None, Depends(_stream)]


async def allowed(state: State, caller: Caller, pieces: AsyncGenerator[_Piece, None]) -> AsyncGenerator[_Piece, None]:
    """They end where the caller may read no more: no piece is sent LOOK_EVERY_S after its key was revoked, say.

    An empty piece isn't sent; who has none for LOOK_EVERY_S gives one, so that silence ends, too.
    """
    look_s = time.monotonic() + LOOK_EVERY_S
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if time.monotonic() >= look_s:
                if not await asyncio.shield(may_go_on(state, caller)):  # as dyno/store/events.py does
                    return
                look_s = time.monotonic() + LOOK_EVERY_S
            if piece:
                yield piece


async def pause(state: State, told: asyncio.Event, timeout_s: float) -> None:
    """Until `told` is set, the time is up or the service stops."""
    waits = [asyncio.ensure_future(event.wait()) for event in (told, state.stopping)]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
