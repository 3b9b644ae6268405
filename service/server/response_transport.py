"""The transport for uvicorn's responses: it writes them in pieces, and closes without cutting one off."""

from __future__ import annotations

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

PIECE_BYTES = 64 * 1024  # of a response, written at once
FULL_BYTES = 16 * 1024  # with so many unsent bytes, writing pauses
LEAST_BYTES_PER_S = 8 * 1024  # clients that read slower are closed first when room is needed
LINGER_S = 2.0  # for clients to close their side after the response
LINGER_BYTES = 8 * 2**20  # request bytes to drop meanwhile: a client cut off while sending may never see the response


class ResponseTransport(asyncio.Transport):
    """Responses are written to `http`; over TLS `tcp` is the transport below it, else the same.

    `to_come` returns how many bytes the client may still be sending when the connection closes.
    """

    def __init__(self, http: asyncio.Transport, tcp: asyncio.Transport, to_come: Callable[[], int]) -> None:
        super().__init__()
        self._http, self._tcp, self._to_come = http, tcp, to_come
        self._rest_bytes = 0  # of a complete response that isn't written yet
        self._closing = False
        self._drops_bytes = 0
        self._end: asyncio.TimerHandle | None = None
        self._asked = (0.0, 0)
        tcp.set_write_buffer_limits(FULL_BYTES)

    # Called by uvicorn

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.is_closing():  # a further write would log a line, and after `write_eof` a traceback
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
        """Close after all bytes are written. Drop incoming bytes until the client closes, too, or for LINGER_S.

        If unread bytes remained when the connection ends, the kernel would reset it and discard the response.
        """
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
            self._http.close()  # sends TLS' close_notify after the response, and waits for the client's
        self._await_end()

    # Closing

    def drop(self, size_bytes: int) -> None:
        """Count bytes that arrived after `close`, and abort if there are more than announced."""
        self._drops_bytes -= size_bytes
        if self._drops_bytes < 0:
            self._tcp.abort()

    def lost(self) -> None:
        self._closing = True
        if self._end is not None:
            self._end.cancel()
        # Break reference cycles, which only the garbage collector would free.
        self._end, self._to_come = None, int

    def _await_end(self) -> None:
        self._end = asyncio.get_running_loop().call_later(LINGER_S, self._end_if_written)

    def _end_if_written(self) -> None:
        if self.held_bytes:
            self._await_end()
        else:
            self._tcp.close()

    # Reading by the client

    @property
    def held_bytes(self) -> int:
        """Response bytes in the memory of this process."""
        below = 0 if self._http is self._tcp else self._tcp.get_write_buffer_size()
        return self._rest_bytes + self._http.get_write_buffer_size() + below

    @property
    def left_bytes(self) -> int:
        """Response bytes that the client hasn't acknowledged: in this process and in the kernel."""
        queued = fcntl.ioctl(self._tcp.get_extra_info("socket").fileno(), termios.TIOCOUTQ, bytes(4))
        return self.held_bytes + int.from_bytes(queued, sys.byteorder)

    def takes(self) -> bool:
        """Whether the client has read more than LEAST_BYTES_PER_S since the last call."""
        since_s, before_bytes = self._asked
        self._asked = now_s, left_bytes = asyncio.get_running_loop().time(), self.left_bytes
        return before_bytes - left_bytes > LEAST_BYTES_PER_S * (now_s - since_s)

    async def answer(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run `app` and write its response in pieces; uvicorn writes one after the client has read the last.

        The final body is written after `app` has returned: its data takes more memory than the bytes.
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
