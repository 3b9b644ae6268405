"""Server-Sent Events, read from a connection that may be cut at any byte."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic_core import from_json

from dyno.events import EVENT, AnyEvent

_KINDS = frozenset({"status", "progress", "metric", "log", "gap"})


class Message(NamedTuple):
    """`id` is where to go on; null where it is where it was."""

    id: str | None
    kind: str
    data: str


def messages(pieces: Iterable[bytes]) -> Iterator[Message]:
    """Only what has come whole: what a cut has left half is sent again to whoever asks for it by the last id."""
    found: dict[str, list[str]] = {}
    for line in _lines(pieces):
        if not line:
            if found:
                ids, kinds = found.get("id"), found.get("event")
                yield Message(ids[-1] if ids else None, kinds[-1] if kinds else "", "\n".join(found.get("data", ())))
            found = {}
            continue
        name, _, value = line.partition(":")
        if name:  # else a comment: the connection lives
            found.setdefault(name, []).append(value.removeprefix(" "))


def event_of(message: Message) -> AnyEvent | None:
    """None where there is none, or of a kind that this version doesn't know."""
    if message.kind not in _KINDS or not message.data:
        return None
    return EVENT.validate_python({**from_json(message.data), "kind": message.kind, "id": message.id})


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    """Split at line feeds only: other separators may stand in what a runner printed."""
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.removesuffix(b"\r").decode() for line in lines)
