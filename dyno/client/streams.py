"""Streams of both clients: Server-Sent Events, resumed over new connections, and logs that are followed.

A connection may be cut at any byte. `SseParser` yields complete messages only; the service sends the rest again after
the last id.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any, NamedTuple

import httpx
from pydantic_core import from_json

from dyno.client.exceptions import Refused, ServerUnreachable
from dyno.client.http_transport import (
    AsyncTransport,
    Transport,
    check_stream,
    is_transient,
    path_segment,
    request_model,
)
from dyno.models.event import EVENT, AnyEvent, StatusEvent
from dyno.models.job import Job

_EVENT_KINDS = frozenset({"status", "progress", "metric", "log", "gap"})


class SseMessage(NamedTuple):
    """`id` is where to go on; null where it is where it was."""

    id: str | None
    kind: str
    data: str


class SseParser:
    """Of one connection, given piece by piece.

    Only what has come whole: what a cut has left half is sent again to whoever asks for it by the last id.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._found: dict[str, list[str]] = {}

    def of(self, piece: bytes) -> Iterator[SseMessage]:
        """Those that end with this piece."""
        for line in self._lines(piece):
            if not line:
                if found := self._found:
                    ids, kinds = found.get("id"), found.get("event")
                    data = "\n".join(found.get("data", ()))
                    yield SseMessage(ids[-1] if ids else None, kinds[-1] if kinds else "", data)
                self._found = {}
                continue
            name, _, value = line.partition(":")
            if name:  # else a comment: the connection lives
                self._found.setdefault(name, []).append(value.removeprefix(" "))

    def _lines(self, piece: bytes) -> Iterator[str]:
        """Split at line feeds only: other separators may stand in what a runner printed."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)


def parse_event(message: SseMessage) -> AnyEvent | None:
    """None where there is none, or of a kind that this version doesn't know. Raises ServerUnreachable for no event."""
    if message.kind not in _EVENT_KINDS or not message.data:
        return None
    try:
        return EVENT.validate_python({**from_json(message.data), "kind": message.kind, "id": message.id})
    except (TypeError, ValueError) as error:  # of JSON, or of the models
        raise ServerUnreachable(f"no event can be read: not Dyno, or too new for this client? {error}") from error


SILENT_S = 45.0  # the service says every 15 s that the connection lives
PATIENCE_S = 60.0  # without any answer
RETRY_S = 0.5


class EventFollower:
    """Where a reader stands: each event behind `after` once; `ends`: with the job that is done."""

    def __init__(self, path: str, after: str | None, *, ends: bool) -> None:
        self.path, self._after, self._ends = path, after, ends
        self._failing_since_s: float | None = None
        self._messages = SseParser()
        self.ended, self.pause_s = False, RETRY_S

    def options(self) -> dict[str, Any]:
        """Of the next connection, which goes on behind the last event."""
        return {"headers": {"Last-Event-ID": self._after} if self._after else {}, "timeout": SILENT_S}

    def connected(self, answer: httpx.Response) -> None:
        """Raises ServerUnreachable where this is no stream of events."""
        check_stream(answer)
        self._messages = SseParser()
        self.ended = answer.status_code == httpx.codes.NO_CONTENT

    def events(self, piece: bytes) -> Iterator[AnyEvent]:
        """Those that have come whole with this piece, up to the end of what is followed."""
        for message in self._messages.of(piece):
            self._failing_since_s, self._after, self.pause_s = None, message.id or self._after, RETRY_S
            if not self.ended and (event := parse_event(message)) is not None:
                self.ended = self._ends and isinstance(event, StatusEvent) and event.done
                yield event

    def broke(self, error: Refused | ServerUnreachable) -> None:
        """Raises it where it won't pass, or won't have a minute after it began."""
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        self.pause_s = max(RETRY_S, error.retry_after_s or 0.0)
        if not is_transient(error) or now_s + self.pause_s - self._failing_since_s > PATIENCE_S:
            raise error


def follow_events(http: Transport, following: EventFollower) -> Iterator[AnyEvent]:
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


async def follow_events_async(http: AsyncTransport, following: EventFollower) -> AsyncIterator[AnyEvent]:
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


_LOG_OPTIONS = {"params": {"follow": "true"}, "timeout": httpx.Timeout(10.0, read=None)}  # a runner may print nothing


def follow_log(http: Transport, job_id: str) -> Iterator[str]:
    """Over one connection. Raises Refused and ServerUnreachable, also where it ends before the job is done."""
    with http.open(_log_path(job_id), **_LOG_OPTIONS) as answer:
        yield from answer.iter_text()
    _check_done(http.through(request_model(Job, "GET", f"/v1/jobs/{path_segment(job_id)}")))


async def follow_log_async(http: AsyncTransport, job_id: str) -> AsyncIterator[str]:
    """The same."""
    async with http.open(_log_path(job_id), **_LOG_OPTIONS) as answer:
        async for text in answer.aiter_text():
            yield text
    _check_done(await http.through(request_model(Job, "GET", f"/v1/jobs/{path_segment(job_id)}")))


def _log_path(job_id: str) -> str:
    return f"/v1/jobs/{path_segment(job_id)}/logs"


def _check_done(job: Job) -> None:
    """The service ends an answer when it stops itself, too."""
    if not job.done:
        raise ServerUnreachable(f"the service has let go of the log of {job.id}, which goes on")
