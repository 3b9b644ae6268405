"""Who is connected: how many there may be, and who has to go where there are more."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Waits(Enum):
    """What a caller has yet to do on its connection."""

    FIRST = "send its first request"
    NEXT = "send another request, after an answer"
    BODY = "send the rest of a request"
    READER = "take its answer, or close as we have"


class Guest(Protocol):
    def leave(self, why: str) -> None:
        """Close the connection at once, whatever is under way on it."""

    def takes(self) -> bool:
        """Of a READER: whether it has taken enough of its answer since this was last asked."""

    @property
    def held_bytes(self) -> int:
        """Of answers that it has yet to take, in the memory of this process."""


class Crowd:
    """All connections of one server, and those of them that wait for their callers: who has waited longest goes first.

    At most `most` are open. Where one more comes, it takes the place of one on which nothing is under way: one that has
    never asked for anything, else one that takes nothing of its answers, else one that has had them; only where each
    of them is at work there is no place. At most `most_sending` have a part of a request that isn't whole, as each
    holds in memory what it has sent, and all answers that are not taken have `most_held_bytes`.
    """

    def __init__(self, most: int, most_sending: int, most_held_bytes: int) -> None:
        self.most, self._most_sending, self._most_held_bytes = most, most_sending, most_held_bytes
        self._waiting: dict[Waits, dict[Guest, None]] = {each: {} for each in Waits}
        self._inside: dict[Guest, Waits | None] = {}
        self._held_bytes = 0  # at most: counted when they came, less what was taken since

    def enter(self, guest: Guest) -> bool:
        """Whether there is a place."""
        if len(self._inside) >= self.most:
            gives_way = self._longest(Waits.FIRST) or self._stuck() or self._longest(Waits.NEXT)
            if gives_way is None:
                return False
            self._send_away(gives_way, "made_room")
        self._inside[guest] = None
        self.waits(guest, Waits.FIRST)
        return True

    def waits(self, guest: Guest, what: Waits | None) -> None:
        """From now on for `what`, or for nothing; nobody is held to what is said of one who isn't inside.

        Who goes on waiting for the same has waited since it began, but for the rest of a request since its last bytes.
        """
        if guest not in self._inside or (self._inside[guest] is what is not Waits.BODY):
            return
        if (before := self._inside[guest]) is not None:
            del self._waiting[before][guest]
        self._inside[guest] = what
        if what is not None:
            self._waiting[what][guest] = None
        if len(self._waiting[Waits.BODY]) > self._most_sending:
            self._send_away(next(iter(self._waiting[Waits.BODY])), "made_room")
        if what is Waits.READER:
            self._held_bytes += guest.held_bytes
            if self._held_bytes > self._most_held_bytes:
                self._lighten()

    def out(self, guest: Guest) -> None:
        self.waits(guest, None)
        self._inside.pop(guest, None)

    def _lighten(self) -> None:
        """Send readers away until the others' answers have room."""
        held = {guest: guest.held_bytes for guest in self._waiting[Waits.READER]}
        self._held_bytes = sum(held.values())
        while self._held_bytes > self._most_held_bytes and (guest := self._stuck() or self._longest(Waits.READER)):
            self._held_bytes -= held[guest]
            self._send_away(guest, "stuck")

    def _longest(self, waits: Waits) -> Guest | None:
        return next(iter(self._waiting[waits]), None)

    def _stuck(self) -> Guest | None:
        """The reader that has taken nothing for longest, as far as anybody has looked; none where all of them do."""
        readers = self._waiting[Waits.READER]
        for guest in list(readers):
            if not guest.takes():
                return guest
            del readers[guest]
            readers[guest] = None
        return None

    def _send_away(self, guest: Guest, why: str) -> None:
        self.out(guest)
        guest.leave(why)
