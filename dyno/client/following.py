"""Following what happens, over as many connections as it takes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx

from dyno.client.answers import check_stream
from dyno.client.errors import Refused, ServerUnreachable
from dyno.client.events import Messages, event_of
from dyno.client.steps import passes
from dyno.client.transport import AsyncTransport, Transport
from dyno.events import AnyEvent, StatusEvent

SILENT_S = 45.0  # the service says every 15 s that the connection lives
PATIENCE_S = 60.0  # without any answer
RETRY_S = 0.5


class Following:
    """Where a reader stands: each event behind `after` once; `ends`: with the job that is done."""

    def __init__(self, path: str, after: str | None, *, ends: bool) -> None:
        self.path, self._after, self._ends = path, after, ends
        self._failing_since_s: float | None = None
        self._messages = Messages()
        self.ended, self.pause_s = False, RETRY_S

    def options(self) -> dict[str, Any]:
        """Of the next connection, which goes on behind the last event."""
        return {"headers": {"Last-Event-ID": self._after} if self._after else {}, "timeout": SILENT_S}

    def connected(self, answer: httpx.Response) -> None:
        """Raises ServerUnreachable where this is no stream of events."""
        check_stream(answer)
        self._messages = Messages()
        self.ended = answer.status_code == httpx.codes.NO_CONTENT

    def events(self, piece: bytes) -> Iterator[AnyEvent]:
        """Those that have come whole with this piece, up to the end of what is followed."""
        for message in self._messages.of(piece):
            self._failing_since_s, self._after, self.pause_s = None, message.id or self._after, RETRY_S
            if not self.ended and (event := event_of(message)) is not None:
                self.ended = self._ends and isinstance(event, StatusEvent) and event.done
                yield event

    def broke(self, error: Refused | ServerUnreachable) -> None:
        """Raises it where it won't pass, or won't have a minute after it began."""
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        self.pause_s = max(RETRY_S, error.retry_after_s or 0.0)
        if not passes(error) or now_s + self.pause_s - self._failing_since_s > PATIENCE_S:
            raise error


def follow(http: Transport, following: Following) -> Iterator[AnyEvent]:
    """Raises Refused, and ServerUnreachable, where nobody answers after a minute."""
    while not following.ended:
        try:
            with http.open(following.path, **following.options()) as answer:
                following.connected(answer)
                for piece in answer.iter_bytes():
                    yield from following.events(piece)
                    if following.ended:
                        return
        except (Refused, ServerUnreachable) as error:
            following.broke(error)
        if not following.ended:
            time.sleep(following.pause_s)


async def follow_awaiting(http: AsyncTransport, following: Following) -> AsyncIterator[AnyEvent]:
    """The same."""
    while not following.ended:
        try:
            async with http.open(following.path, **following.options()) as answer:
                following.connected(answer)
                async for piece in answer.aiter_bytes():
                    for event in following.events(piece):
                        yield event
                    if following.ended:
                        return
        except (Refused, ServerUnreachable) as error:
            following.broke(error)
        if not following.ended:
            await asyncio.sleep(following.pause_s)
