"""Callers that are gone without a word, or take nothing any more: the kernel gives their connections up."""

from __future__ import annotations

import socket
from collections.abc import Iterable

GONE_AFTER_S = 90.0  # longer than a long poll is held, so that no proxy in between hits it with its own patience


def let_go_of_who_is_gone(listening: Iterable[socket.socket], after_s: float) -> None:
    """Connections accepted from now on end once nothing that was sent has been taken for `after_s`.

    Without it the kernel tries a caller whose host vanished for a quarter of an hour, and one whose window stays shut
    for as long as it lives; until then both keep their buffers, and a stream its place.
    """
    for each in listening:
        with socket.fromfd(each.fileno(), each.family, each.type) as own:  # uvloop's objects take no options
            own.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(after_s * 1000))
