"""A TCP proxy in front of Redis' socket that can delay, hold back, refuse or reset connections."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress

_PIECE_BYTES = 64 * 1024


class Proxy:
    """Runs in the event loop that starts it. If Redis dies, only the connections to it are closed."""

    def __init__(self) -> None:
        self._path = ""
        self._server: asyncio.Server | None = None
        self._port = 0
        self._callers: set[asyncio.StreamWriter] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.replies_late_by_s = 0.0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    async def open(self, socket_path: str | None = None) -> None:
        """Accept connections for Redis at `socket_path`. A second call uses the same path and port."""
        self._path = socket_path or self._path
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    @property
    def is_open(self) -> bool:
        return self._server is not None

    def shut(self) -> None:
        """Refuse new connections, and reset existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()

    def reset(self) -> int:
        """Reset all connections and return their number. Data in transit is lost."""
        callers = list(self._callers)
        for caller in callers:
            _cut(caller)
        return len(callers)

    def silence(self) -> None:
        """Accept connections and read all data, but forward none."""
        self._flowing.clear()

    def speak(self) -> None:
        """Forward again, including the data held back. As in a network, that includes requests that timed out."""
        self._flowing.set()

    async def _serve(self, from_caller: asyncio.StreamReader, to_caller: asyncio.StreamWriter) -> None:
        try:
            from_redis, to_redis = await asyncio.open_unix_connection(self._path)
        except OSError:
            _cut(to_caller)
            return
        self._callers.add(to_caller)
        try:
            await asyncio.gather(self._requests(from_caller, to_redis), self._replies(from_redis, to_caller))
        finally:
            self._callers.discard(to_caller)
            for writer in (to_redis, to_caller):
                writer.close()

    async def _requests(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(_PIECE_BYTES):
                await self._flowing.wait()
                target.write(piece)
                await target.drain()
        target.close()

    async def _replies(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(_PIECE_BYTES):
                await asyncio.sleep(self.replies_late_by_s)
                await self._flowing.wait()
                target.write(piece)
                await target.drain()
        _cut(target)


def _cut(writer: asyncio.StreamWriter) -> None:
    if writer.transport.is_closing():
        return
    with suppress(OSError):
        end_with_reset(writer.get_extra_info("socket"))
    writer.transport.abort()


def end_with_reset(connection: socket.socket) -> None:
    """Make a close send RST and discard unsent data, as when a host or its network fails."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
