"""What the runners of one attempt print, on its way to the store: in pieces that go with the heartbeats."""

from __future__ import annotations

import codecs

from dyno.store.leases import LogPiece

PIECE_BYTES = 16 * 1024  # in one heartbeat; of a flood only the end is kept


class JobLog:
    """Bounded: one piece that is on its way, and what has come since."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._begins = b""  # said before the first word of a run
        self._waiting = b""
        self._left_out_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._piece: LogPiece | None = None
        self._number = 0

    def begin(self, run: int) -> None:
        """What comes now is of this run, from 0."""
        self._begins = f"[attempt {self._attempt}, run {run + 1}]\n".encode()

    def add(self, data: bytes) -> None:
        waiting = self._waiting + self._begins + data
        self._begins = b""
        self._left_out_bytes += max(0, len(waiting) - PIECE_BYTES)
        self._waiting = waiting[-PIECE_BYTES:]

    def piece(self) -> LogPiece | None:
        """What to send now: the same, under the same number, until it is `sent`."""
        if self._piece is None and self._waiting:
            text = self._decoder.decode(self._waiting)
            if self._left_out_bytes:
                text = f"[{self._left_out_bytes} bytes left out]\n{text}"
            self._piece = LogPiece(self._number, text)
            self._waiting, self._left_out_bytes = b"", 0
        return self._piece

    def sent(self) -> None:
        """The store has it, or has another attempt's."""
        self._number += 1
        self._piece = None
