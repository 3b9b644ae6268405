"""Streams of both clients: Server-Sent Events that resume after a reconnect, live logs, and downloads.

A connection may break at any byte. `SseParser` yields only complete messages. After a reconnect, the service sends all
messages that follow the last complete message.
"""

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from pydantic_core import from_json

from dyno.client import endpoints
from dyno.client.exceptions import DownloadDamaged, Refused, ServerUnreachable
from dyno.client.http_transport import PATIENT, Request, Retries
from dyno.models.event import EVENT, AnyEvent, StatusEvent
from dyno.models.job import Job
from dyno.models.result import Artifact

_EVENT_KINDS = frozenset({"status", "progress", "partial_metric", "metric", "log", "gap"})


class SseMessage(NamedTuple):
    """One SSE message. `id` is the position to resume from; None leaves the position unchanged."""

    id: str | None
    kind: str
    data: str


class SseParser:
    """Parses one connection's bytes, piece by piece, and yields only complete messages.

    If the connection breaks within a message, the service sends this message again after the reconnect.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._found: dict[str, list[str]] = {}

    def of(self, piece: bytes) -> Iterator[SseMessage]:
        """The messages that this piece completes."""
        for line in self._lines(piece):
            if not line:
                if fields := self._found:
                    ids, kinds = fields.get("id"), fields.get("event")
                    data = "\n".join(fields.get("data", ()))
                    yield SseMessage(ids[-1] if ids else None, kinds[-1] if kinds else "", data)
                self._found = {}
                continue
            name, _, value = line.partition(":")
            if name:  # a line without a name is a comment, which keeps the connection alive
                self._found.setdefault(name, []).append(value.removeprefix(" "))

    def _lines(self, piece: bytes) -> Iterator[str]:
        """The complete lines. Splits at line feeds only, since a runner's output may contain other line separators."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)


def parse_event(message: SseMessage) -> AnyEvent | None:
    """The event in a message; None for an empty message, or for a kind of event that this version doesn't know.

    Raises ServerUnreachable if the data can't be parsed.
    """
    if message.kind not in _EVENT_KINDS or not message.data:
        return None
    try:
        return EVENT.validate_python({**from_json(message.data), "kind": message.kind, "id": message.id})
    except (TypeError, ValueError) as error:  # from the JSON parser or the models
        raise ServerUnreachable(f"can't parse an event: not Dyno, or too new for this client? {error}") from error


RETRY_S = 0.5


class EventFollower:
    """A position in the stream of one job's events or all jobs' events. Yields each event after `after` once."""

    def __init__(self, job_id: str | None, after: str | None) -> None:
        self._job_id, self._after = job_id, after
        self._retries: Retries | None = None  # retries since the last message
        self._messages = SseParser()
        self.ended, self.pause_s = False, RETRY_S

    def request(self) -> Request[None]:
        """The request for the next connection, which resumes after the last event."""
        return endpoints.events(self._job_id, self._after)

    def connected(self, response: httpx.Response) -> None:
        self._messages = SseParser()
        self.ended = response.status_code == httpx.codes.NO_CONTENT

    def events(self, piece: bytes) -> Iterator[AnyEvent]:
        """The events that this piece completes, up to the end of the stream."""
        for message in self._messages.of(piece):
            self._retries, self._after, self.pause_s = None, message.id or self._after, RETRY_S
            if not self.ended and (event := parse_event(message)) is not None:
                self.ended = self._job_id is not None and isinstance(event, StatusEvent) and event.done
                yield event

    def broke(self, error: Refused | ServerUnreachable) -> None:
        """Call this after a failure. Raises the error if no retry is possible within a minute of the first failure."""
        self._retries = self._retries or Retries(PATIENT._replace(longest_pause_s=RETRY_S))
        self.pause_s = self._retries.pause_s(error)


def check_done(job: Job) -> None:
    """Raises ServerUnreachable if the job isn't done: the service also ends streams when it shuts down."""
    if not job.done:
        raise ServerUnreachable(
            f"the service ended the log stream of {job.id} before the job was done; follow it again"
        )


@contextmanager
def checked_file(job_id: str, artifact: Artifact, to: Path) -> Iterator[Callable[[bytes], None]]:
    """Yield a function that writes the pieces of the artifact. After the block, the file `to` exists if the SHA-256 of
    all bytes equals the SHA-256 in the list of artifacts. Otherwise raises DownloadDamaged.
    """
    unchecked, digest = to.with_name(f"{to.name}.part"), hashlib.sha256()
    try:
        with unchecked.open("wb") as file:

            def write(piece: bytes) -> None:
                file.write(piece)
                digest.update(piece)

            yield write
        if digest.hexdigest() != artifact.sha256:
            raise DownloadDamaged(
                f"the download of {artifact.name} of {job_id} has another SHA-256 than the result lists; try again"
            )
        unchecked.replace(to)
    finally:
        unchecked.unlink(missing_ok=True)
