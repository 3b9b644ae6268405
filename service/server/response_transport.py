"""The transport that uvicorn writes responses to: written in pieces, and closed without cutting off a response."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE_BYTES = 64 * 1024  # of an answer, written at once
FULL_BYTES = 16 * 1024  # with so many that the kernel doesn't take nothing else is written
LEAST_BYTES_PER_S = 8 * 1024  # who takes less makes room where there is none
LINGER_S = 2.0  # for callers to end their part once they were told all
LINGER_BYTES = 8 * 2**20  # and for so many that they are sending still: who is cut off there may never see the answer


class ResponseTransport(asyncio.Transport):
    """`http` is where answers are written to; over TLS `tcp` lies below it, else it is the same.

    `to_come`: how many bytes the caller may still be sending when the line is closed.
    """

    def __init__(self, http: asyncio.Transport, tcp: asyncio.Transport, to_come: Callable[[], int]) -> None:
        super().__init__()
        self._http, self._tcp, self._to_come = http, tcp, to_come
        self._rest_bytes = 0  # of an answer that is made and not written
        self._closing = False
        self._drops_bytes = 0
        self._end: asyncio.TimerHandle | None = None
        self._asked = (0.0, 0)
        tcp.set_write_buffer_limits(FULL_BYTES)

    # what uvicorn does with it

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():  # each further piece would be a line in the log, behind `write_eof` a traceback
            self._http.write(data)

    def pause_reading(self) -> None:
        self._http.pause_reading()

    def resume_reading(self) -> None:
        self._http.resume_reading()

    def is_closing(self) -> bool:
        return self._closing or self._http.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._http.get_extra_info(name, default)

    def close(self) -> None:
        """Once all is written. What comes is dropped until the caller closes, too, or LINGER_S are over: bytes that
        lie unread when a connection ends make the kernel reset it, and throw away what was answered."""
        if self.is_closing():
            return
        self._closing = True
        to_come, plain = self._to_come(), self._http is self._tcp
        if plain and not 0 < to_come <= LINGER_BYTES:
            self._http.close()
            return
        if plain:
            self._drops_bytes = to_come
            self._http.resume_reading()
            self._http.write_eof()
        else:
            self._http.close()  # sends TLS' own end behind the answer, and waits for the caller's
        self._await_end()

    # what becomes of it

    def drop(self, size_bytes: int) -> None:
        """So many came after it was closed."""
        self._drops_bytes -= size_bytes
        if self._drops_bytes < 0:
            self._tcp.abort()

    def lost(self) -> None:
        self._closing = True
        if self._end is not None:
            self._end.cancel()
        # Both refer to this, too, and only the collector would part them.
        self._end, self._to_come = None, int

    def _await_end(self) -> None:
        self._end = asyncio.get_running_loop().call_later(LINGER_S, self._end_if_written)

    def _end_if_written(self) -> None:
        if self.held_bytes:
            self._await_end()
        else:
            self._tcp.close()

    # what its caller takes

    @property
    def held_bytes(self) -> int:
        """Of answers that are made, in this process."""
        below = 0 if self._http is self._tcp else self._tcp.get_write_buffer_size()
        return self._rest_bytes + self._http.get_write_buffer_size() + below

    @property
    def left_bytes(self) -> int:
        """Of them, and of what the kernel has and the caller doesn't."""
        queued = fcntl.ioctl(self._tcp.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return self.held_bytes + int.from_bytes(queued, sys.byteorder)

    def takes(self) -> bool:
        """Whether the caller has taken enough of its answer since this was last asked."""
        since_s, before_bytes = self._asked
        self._asked = now_s, left_bytes = asyncio.get_running_loop().time(), self.left_bytes
        return before_bytes - left_bytes > LEAST_BYTES_PER_S * (now_s - since_s)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """What `app` answers, in pieces, of which uvicorn writes one only where the last was taken.

        The end of it is written when `app` is done: what it was made of takes more memory than it does.
        """
        ends: list[Message] = []

        async def keep(message: Message) -> None:
            if len(message.get("body", b"")) <= PIECE_BYTES:
                await send(message)
            elif message.get("more_body", False):
                await self._write(send, message)
            else:
                ends.append(message)
                self._rest_bytes = len(message["body"])

        await app(scope, receive, keep)
        if ends:
            await self._write(send, ends.pop())

    async def _write(self, send: Send, message: Message) -> None:
        body, more = memoryview(message["body"]), message.get("more_body", False)
        for end in range(PIECE_BYTES, len(body) + PIECE_BYTES, PIECE_BYTES):
            piece, self._rest_bytes = bytes(body[end - PIECE_BYTES : end]), max(0, len(body) - end)
            await send({**message, "body": piece, "more_body": more or end < len(body)})
