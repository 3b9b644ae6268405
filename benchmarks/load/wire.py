"""HTTP as cheap as it can be asked, so that the asking takes little of the two cores: one connection, one question."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from typing import NamedTuple

ANSWER_WITHIN_S = 60.0
RECEIVE_BYTES = 64 * 1024  # what the kernel takes from the API before anybody reads it
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # thousands of connections would each leave a port that nobody may use


class Answer(NamedTuple):
    """`retry_after`: whether it said when to come back."""

    status: int
    retry_after: bool
    body: bytes


async def opened(port: int, source: str = "127.0.0.1") -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    line = socket.socket()
    try:
        line.setblocking(False)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
        line.bind((source, 0))
        await asyncio.get_running_loop().sock_connect(line, ("127.0.0.1", port))
    except BaseException:
        line.close()
        raise
    return await asyncio.open_connection(sock=line)


async def answer(reader: asyncio.StreamReader) -> Answer:
    """The next one. Raises EOFError or OSError where the connection ends instead, TimeoutError where nothing comes."""
    async with asyncio.timeout(ANSWER_WITHIN_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
    return Answer(int(head[9:12]), b"\r\nretry-after: " in head.lower(), body)


def request(method: str, path: str, body: bytes = b"") -> bytes:
    kind = "Content-Type: application/json\r\n" if body else ""
    length = f"Content-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{kind}{length}\r\n".encode() + body


class Line:
    """One connection that is kept, and opened again where the API closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._ends: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, question: bytes) -> Answer:
        try:
            if self._ends is None or self._ends[0].at_eof():
                self.close()
                self._ends = await opened(self._port)
            self._ends[1].write(question)
            return await answer(self._ends[0])
        except (EOFError, OSError, TimeoutError):
            self.close()
            raise

    def close(self) -> None:
        if self._ends is not None:
            self._ends[1].close()
            self._ends = None
