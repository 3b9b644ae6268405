"""Server-Sent Events, read from a connection that may be cut at any byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pydantic_core import from_json

from dyno.client.errors import ServerUnreachable
from dyno.events import EVENT, AnyEvent

_KINDS = frozenset({"status", "progress", "metric", "log", "gap"})


class Message(NamedTuple):
    """`id` is where to go on; null where it is where it was."""

    id: str | None
    kind: str
    data: str


class Messages:
    """Of one connection, given piece by piece.

    Only what has come whole: what a cut has left half is sent again to whoever asks for it by the last id.
    """

    def __init__(self) -> None:
        self._rest = b""
        self._found: dict[str, list[str]] = {}

    def of(self, piece: bytes) -> Iterator[Message]:
        """Those that end with this piece."""
        for line in self._lines(piece):
            if not line:
                if found := self._found:
                    ids, kinds = found.get("id"), found.get("event")
                    data = "\n".join(found.get("data", ()))
                    yield Message(ids[-1] if ids else None, kinds[-1] if kinds else "", data)
                self._found = {}
                continue
            name, _, value = line.partition(":")
            if name:  # else a comment: the connection lives
                self._found.setdefault(name, []).append(value.removeprefix(" "))

    def _lines(self, piece: bytes) -> Iterator[str]:
        """Split at line feeds only: other separators may stand in what a runner printed."""
        *lines, self._rest = (self._rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode(errors="replace") for line in lines)


def event_of(message: Message) -> AnyEvent | None:
    """None where there is none, or of a kind that this version doesn't know. Raises ServerUnreachable for no event."""
    if message.kind not in _KINDS or not message.data:
        return None
    try:
        return EVENT.validate_python({**from_json(message.data), "kind": message.kind, "id": message.id})
    except (TypeError, ValueError) as error:  # of JSON, or of the models
        raise ServerUnreachable(f"no event can be read: not Dyno, or too new for this client? {error}") from error
