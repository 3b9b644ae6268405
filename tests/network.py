"""The network between Redis and its clients, as bad as a test wants it."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from asyncio import StreamReader, StreamWriter
from collections.abc import Coroutine
from types import TracebackType
from typing import Any

_RESET = struct.pack("ii", 1, 0)  # SO_LINGER: closing sends a reset
_PIECE_BYTES = 65536
_OWN_WITHIN_S = 10


class Network:
    """Context manager: a TCP port on loopback that leads to a server's socket.

    Every piece of an answer arrives `delay_s` late; `reset` breaks all connections there are, and counts them.
    """

    def __init__(self, server_url: str) -> None:
        self.server_url = server_url
        self.delay_s, self.resets = 0.0, 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="network", daemon=True)
        self._open: set[StreamWriter] = set()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/0"

    def reset(self) -> None:
        self._do(self._reset())

    def __enter__(self) -> Network:
        self._thread.start()
        self._server: asyncio.Server = self._do(asyncio.start_server(self._carry, "127.0.0.1", 0))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_OWN_WITHIN_S)
        self._loop.close()

    def _do(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_OWN_WITHIN_S)

    async def _reset(self) -> None:
        for writer in self._open:
            self.resets += 1
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            writer.transport.abort()

    async def _close(self) -> None:
        self._server.close()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _carry(self, asked: StreamReader, answering: StreamWriter) -> None:
        answers, asking = await asyncio.open_unix_connection(self.server_url.removeprefix("unix://"))
        self._open.add(answering)
        both = self._pass(asked, asking, late=False), self._pass(answers, answering, late=True)
        ways = [asyncio.ensure_future(way) for way in both]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._open.discard(answering)
            for way in ways:
                way.cancel()
            asking.close()
            answering.close()

    async def _pass(self, source: StreamReader, target: StreamWriter, late: bool) -> None:
        try:
            while piece := await source.read(_PIECE_BYTES):
                if late:
                    await asyncio.sleep(self.delay_s)
                target.write(piece)
                await target.drain()
        except OSError:
            return
