"""Who is connected: how many there may be, and who has to go where there are more."""

from __future__ import annotations

from enum import Enum
from typing import Protocol


class Waits(Enum):
    """What a caller has yet to send on its connection."""

    FIRST = "its first request"
    NEXT = "another request, after an answer"
    BODY = "the rest of a request"


class Guest(Protocol):
    def leave(self, why: str) -> None:
        """Close the connection at once, whatever is under way on it."""


class Crowd:
    """All connections of one server, and those of them that wait for their callers: who has waited longest goes first.

    At most `most` are open. Where one more comes, it takes the place of one on which nothing is under way, and such
    that have never asked for anything go before those that have; only where each of them is at work there is no place.
    At most `most_sending` have a part of a request that isn't whole, as each holds in memory what it has sent.
    """

    def __init__(self, most: int, most_sending: int) -> None:
        self.most, self._most_sending = most, most_sending
        self._waiting: dict[Waits, dict[Guest, None]] = {each: {} for each in Waits}
        self._inside: dict[Guest, Waits | None] = {}

    def enter(self, guest: Guest) -> bool:
        """Whether there is a place."""
        if len(self._inside) >= self.most and not (
            self._send_away(Waits.FIRST, "made_room") or self._send_away(Waits.NEXT, "made_room")
        ):
            return False
        self._inside[guest] = None
        self.waits(guest, Waits.FIRST)
        return True

    def waits(self, guest: Guest, what: Waits | None) -> None:
        """From now on for `what`, or for nothing; nobody is held to what is said of one who isn't inside."""
        if guest not in self._inside:
            return
        if (before := self._inside[guest]) is not None:
            del self._waiting[before][guest]
        self._inside[guest] = what
        if what is not None:
            self._waiting[what][guest] = None
        if len(self._waiting[Waits.BODY]) > self._most_sending:
            self._send_away(Waits.BODY, "made_room")

    def out(self, guest: Guest) -> None:
        self.waits(guest, None)
        self._inside.pop(guest, None)

    def _send_away(self, waits: Waits, why: str) -> bool:
        guest = next(iter(self._waiting[waits]), None)
        if guest is None:
            return False
        self.out(guest)
        guest.leave(why)
        return True
