"""Limit open connections, and choose which one to close for a new one."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class WaitsFor(Enum):
    """What the client of a connection has to do next."""

    FIRST = "send its first request"
    NEXT = "send another request, after a response"
    BODY = "send the rest of a request"
    READER = "read its response, or close the connection that the server has closed"


class LimitedConnection(Protocol):
    def leave(self, why: str) -> None:
        """Abort the connection at once."""

    def takes(self) -> bool:
        """For a READER: whether the client has read enough of its response since the last call."""

    @property
    def held_bytes(self) -> int:
        """Bytes of unread responses in the memory of this process."""


class ConnectionLimit:
    """All connections of one server. Among equals it closes the connection that has waited longest for its client.

    - At most `most` connections are open. A new one replaces one that hasn't sent a request, else one whose client
      doesn't read its response, else an idle one. If all connections are busy, the new one is refused.
    - At most `most_sending` connections have an incomplete request, as its bytes stay in memory.
    - Unread responses have at most `most_held_bytes` in total.
    """

    def __init__(self, most: int, most_sending: int, most_held_bytes: int) -> None:
        self.most, self._most_sending, self._most_held_bytes = most, most_sending, most_held_bytes
        self._waiting: dict[WaitsFor, dict[LimitedConnection, None]] = {each: {} for each in WaitsFor}
        self._inside: dict[LimitedConnection, WaitsFor | None] = {}
        self._held_bytes = 0  # an upper bound: counted when a READER registers, recounted in `_lighten`

    def enter(self, connection: LimitedConnection) -> bool:
        """Register the connection; False if there is no room for it."""
        if len(self._inside) >= self.most:
            gives_way = self._longest(WaitsFor.FIRST) or self._stuck() or self._longest(WaitsFor.NEXT)
            if gives_way is None:
                return False
            self._send_away(gives_way, "made_room")
        self._inside[connection] = None
        self.waits(connection, WaitsFor.FIRST)
        return True

    def waits(self, connection: LimitedConnection, what: WaitsFor | None) -> None:
        """The connection now waits for `what`, or for nothing; ignored for unregistered connections.

        If it already waits for `what`, its waiting time goes on. For BODY it starts again, as bytes have arrived.
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
        """Close readers until the others' responses fit."""
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
        """The first reader that doesn't read enough, checking the one that was checked longest ago first."""
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
