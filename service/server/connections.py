"""The limit on open connections, and which of them are closed when another one comes."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class WaitsFor(Enum):
    """What a caller has yet to do on its connection."""

    FIRST = "send its first request"
    NEXT = "send another request, after an answer"
    BODY = "send the rest of a request"
    READER = "take its answer, or close as we have"


class LimitedConnection(Protocol):
    def leave(self, why: str) -> None:
        """Close the connection at once, whatever is under way on it."""

    def takes(self) -> bool:
        """Of a READER: whether it has taken enough of its answer since this was last asked."""

    @property
    def held_bytes(self) -> int:
        """Of answers that it has yet to take, in the memory of this process."""


class ConnectionLimit:
    """All connections of one server. Of those that wait for their callers, the one that has waited longest goes first.

    At most `most` are open. Where one more comes, it takes the place of one on which nothing is under way: one that has
    never asked for anything, else one that takes nothing of its answers, else one that has had them; only where each
    of them is at work there is no place. At most `most_sending` have a part of a request that isn't whole, as each
    holds in memory what it has sent, and all answers that are not taken have `most_held_bytes`.
    """

    def __init__(self, most: int, most_sending: int, most_held_bytes: int) -> None:
        self.most, self._most_sending, self._most_held_bytes = most, most_sending, most_held_bytes
        self._waiting: dict[WaitsFor, dict[LimitedConnection, None]] = {each: {} for each in WaitsFor}
        self._inside: dict[LimitedConnection, WaitsFor | None] = {}
        self._held_bytes = 0  # at most: counted when they came, less what was taken since

    def enter(self, connection: LimitedConnection) -> bool:
        """Whether there is a place."""
        if len(self._inside) >= self.most:
            gives_way = self._longest(WaitsFor.FIRST) or self._stuck() or self._longest(WaitsFor.NEXT)
            if gives_way is None:
                return False
            self._send_away(gives_way, "made_room")
        self._inside[connection] = None
        self.waits(connection, WaitsFor.FIRST)
        return True

    def waits(self, connection: LimitedConnection, what: WaitsFor | None) -> None:
        """From now on it waits for `what`, or for nothing; ignored for unregistered connections.

        One that goes on waiting for the same has waited since it began, but for the rest of a request since its last
        bytes.
        """
        if connection not in self._inside or (self._inside[connection] is what is not WaitsFor.BODY):
            return
        if (before := self._inside[connection]) is not None:
            del self._waiting[before][connection]
        self._inside[connection] = what
        if what is not None:
            self._waiting[what][connection] = None
        if len(self._waiting[WaitsFor.BODY]) > self._most_sending:
            self._send_away(next(iter(self._waiting[WaitsFor.BODY])), "made_room")
        if what is WaitsFor.READER:
            self._held_bytes += connection.held_bytes
            if self._held_bytes > self._most_held_bytes:
                self._lighten()

    def out(self, connection: LimitedConnection) -> None:
        self.waits(connection, None)
        self._inside.pop(connection, None)

    def _lighten(self) -> None:
        """Send readers away until the others' answers have room."""
        held = {connection: connection.held_bytes for connection in self._waiting[WaitsFor.READER]}
        self._held_bytes = sum(held.values())
        while self._held_bytes > self._most_held_bytes and (
            connection := self._stuck() or self._longest(WaitsFor.READER)
        ):
            self._held_bytes -= held[connection]
            self._send_away(connection, "stuck")

    def _longest(self, waits: WaitsFor) -> LimitedConnection | None:
        return next(iter(self._waiting[waits]), None)

    def _stuck(self) -> LimitedConnection | None:
        """The reader that has taken nothing for longest, as far as anybody has looked; none where all of them do."""
        readers = self._waiting[WaitsFor.READER]
        for connection in list(readers):
            if not connection.takes():
                return connection
            del readers[connection]
            readers[connection] = None
        return None

    def _send_away(self, connection: LimitedConnection, why: str) -> None:
        self.out(connection)
        connection.leave(why)
