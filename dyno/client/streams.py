"""Streams of both clients: Server-Sent Events, resumed over new connections, and live logs.

A connection may break at any byte. `SseParser` yields complete messages only. After a reconnect, the service sends all
messages after the last id again.
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
    """One SSE message. `id` is the position to resume from; None leaves the position unchanged."""

    id: str | None
    kind: str
    data: str


class SseParser:
    """Parses one connection's bytes, piece by piece, and yields complete messages only.

    If the connection breaks amid a message, the service sends the message again after a reconnect with the last id.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._found: dict[str, list[str]] = {}

    def of(self, piece: bytes) -> Iterator[SseMessage]:
        """The messages that this piece completes."""
        for line in self._lines(piece):
            if not line:
                if found := self._found:
                    ids, kinds = found.get("id"), found.get("event")
                    data = "\n".join(found.get("data", ()))
                    yield SseMessage(ids[-1] if ids else None, kinds[-1] if kinds else "", data)
                self._found = {}
                continue
            name, _, value = line.partition(":")
            if name:  # a line without a name is a comment, which keeps the connection alive
                self._found.setdefault(name, []).append(value.removeprefix(" "))

    def _lines(self, piece: bytes) -> Iterator[str]:
        """Split at line feeds only, since a runner's output may contain other line separators."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)


def parse_event(message: SseMessage) -> AnyEvent | None:
    """The event of a message, or None for an empty message or a kind that this version doesn't know.

    Raises ServerUnreachable if the data can't be parsed.
    """
    if message.kind not in _EVENT_KINDS or not message.data:
        return None
    try:
        return EVENT.validate_python({**from_json(message.data), "kind": message.kind, "id": message.id})
    except (TypeError, ValueError) as error:  # from the JSON parser or the models
        raise ServerUnreachable(f"can't parse an event: not Dyno, or too new for this client? {error}") from error


SILENT_S = 45.0  # the service sends a comment every 15 s
PATIENCE_S = 60.0  # without any message
RETRY_S = 0.5


class EventFollower:
    """A reader's position in a stream. It yields each event after `after` once. `ends`: stop when the job is done."""

    def __init__(self, path: str, after: str | None, *, ends: bool) -> None:
        self.path, self._after, self._ends = path, after, ends
        self._failing_since_s: float | None = None
        self._messages = SseParser()
        self.ended, self.pause_s = False, RETRY_S

    def options(self) -> dict[str, Any]:
        """The request options for the next connection, which resumes after the last event."""
        return {"headers": {"Last-Event-ID": self._after} if self._after else {}, "timeout": SILENT_S}

    def connected(self, answer: httpx.Response) -> None:
        """Check the response of a new connection. Raises ServerUnreachable if it isn't an event stream."""
        check_stream(answer)
        self._messages = SseParser()
        self.ended = answer.status_code == httpx.codes.NO_CONTENT

    def events(self, piece: bytes) -> Iterator[AnyEvent]:
        """The events that this piece completes, up to the end of the stream."""
        for message in self._messages.of(piece):
            self._failing_since_s, self._after, self.pause_s = None, message.id or self._after, RETRY_S
            if not self.ended and (event := parse_event(message)) is not None:
                self.ended = self._ends and isinstance(event, StatusEvent) and event.done
                yield event

    def broke(self, error: Refused | ServerUnreachable) -> None:
        """Raises the error unless it is transient and a retry is possible within a minute of the first failure."""
        now_s = time.monotonic()
        self._failing_since_s = self._failing_since_s or now_s
        self.pause_s = max(RETRY_S, error.retry_after_s or 0.0)
        if not is_transient(error) or now_s + self.pause_s - self._failing_since_s > PATIENCE_S:
            raise error


def follow_events(http: Transport, following: EventFollower) -> Iterator[AnyEvent]:
    """Yield events over as many connections as necessary. Raises Refused and ServerUnreachable, as `broke` does."""
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
    """As follow_events, but asynchronous."""
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
    """Yield the log over one connection.

    Raises Refused and ServerUnreachable, the latter also if the stream ends before the job is done.
    """
    with http.open(_log_path(job_id), **_LOG_OPTIONS) as answer:
        yield from answer.iter_text()
    _check_done(http.through(request_model(Job, "GET", f"/v1/jobs/{path_segment(job_id)}")))


async def follow_log_async(http: AsyncTransport, job_id: str) -> AsyncIterator[str]:
    """As follow_log, but asynchronous."""
    async with http.open(_log_path(job_id), **_LOG_OPTIONS) as answer:
        async for text in answer.aiter_text():
            yield text
    _check_done(await http.through(request_model(Job, "GET", f"/v1/jobs/{path_segment(job_id)}")))


def _log_path(job_id: str) -> str:
    return f"/v1/jobs/{path_segment(job_id)}/logs"


def _check_done(job: Job) -> None:
    """Raises ServerUnreachable if the job isn't done: the service also ends a stream when it stops itself."""
    if not job.done:
        raise ServerUnreachable(
            f"the service ended the log stream of {job.id} before the job was done; follow it again"
        )
