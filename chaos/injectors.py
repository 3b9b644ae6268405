"""The parts that faults act on: a proxy in front of Redis, a small disk, and a wall clock that jumps."""

from __future__ import annotations

import asyncio
import errno
import shutil
import socket
import struct
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

_CHUNK_BYTES = 64 * 1024


class Proxy:
    """A TCP proxy in front of Redis' socket that can delay, hold back, refuse or reset connections.

    It runs in the event loop that opens it. If Redis dies, only the connections to it are closed.
    """

    def __init__(self) -> None:
        self._path, self._port = "", 0
        self._server: asyncio.Server | None = None
        self._clients: set[asyncio.StreamWriter] = set()
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        self.reply_delay_s = 0.0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self._port}/0"

    async def open(self, socket_path: str) -> None:
        """Accept connections for Redis at `socket_path`."""
        self._path = socket_path
        await self.restore()

    async def restore(self) -> None:
        """Undo `hold`, delays, and `shut` (on the same port)."""
        self.reply_delay_s = 0.0
        self._forwarding.set()
        if self._server is None and self._path:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
            self._port = self._server.sockets[0].getsockname()[1]

    def shut(self) -> None:
        """Refuse new connections, and reset existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        self.reset()

    def reset(self) -> int:
        """Reset all connections and return their number. Data in transit is lost."""
        clients = list(self._clients)
        for client in clients:
            _reset(client)
        return len(clients)

    def hold(self) -> None:
        """Accept connections and read all data, but forward none until `restore`.

        As in a network, `restore` also forwards requests that have timed out.
        """
        self._forwarding.clear()

    def delay(self) -> None:
        self.reply_delay_s = 0.5

    async def _serve(self, from_client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            from_redis, to_redis = await asyncio.open_unix_connection(self._path)
        except OSError:
            _reset(to_client)
            return
        self._clients.add(to_client)
        try:
            await asyncio.gather(
                self._forward(from_client, to_redis, False), self._forward(from_redis, to_client, True)
            )
        finally:
            self._clients.discard(to_client)
            for writer in (to_redis, to_client):
                writer.close()

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, is_reply: bool) -> None:
        with suppress(OSError):
            while chunk := await source.read(_CHUNK_BYTES):
                await asyncio.sleep(self.reply_delay_s if is_reply else 0)
                await self._forwarding.wait()
                target.write(chunk)
                await target.drain()
        if is_reply:
            _reset(target)
        else:
            target.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    if not writer.transport.is_closing():
        with suppress(OSError):
            end_with_reset(writer.get_extra_info("socket"))
        writer.transport.abort()


def end_with_reset(connection: socket.socket) -> None:
    """Make a close send RST and discard unsent data, as when a host or its network fails."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class SmallDisk:
    """A tmpfs at `folder` for the workers alone. If this process can't mount one, `left_out` has the reason."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._ballast = folder, folder / "ballast"
        self.left_out: str | None = None

    def mount(self) -> None:
        self.folder.mkdir(parents=True)
        command = ["mount", "-t", "tmpfs", "-o", "size=64m,mode=700", "dyno-chaos", str(self.folder)]
        self.left_out = _failure(command, "no small disk can be mounted")

    def unmount(self) -> None:
        """Unmount lazily, as a process may still use it."""
        if self.folder.is_mount():
            subprocess.run(["umount", "-l", str(self.folder)], check=False)

    def fill(self) -> None:
        """Fill the disk to the last byte. As on most full disks, folders and empty files can still be created."""
        try:
            with self._ballast.open("ab", buffering=0) as file:
                while file.write(bytes(1 << 20)):
                    pass
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise

    def free(self) -> None:
        self._ballast.unlink(missing_ok=True)


class JumpingClock:
    """A jumping wall clock for one worker and its child processes. As on a real host, the monotonic clock doesn't jump.

    `env`: the worker's environment. Without a C compiler it is empty, and `left_out` has the reason. The library is our
    own (`jumping.c`) because libfaketime 0.9.10 moves the monotonic clock, too. If it is set to leave that clock alone,
    every `time.sleep` of Python fails with EINVAL.
    """

    def __init__(self, folder: Path) -> None:
        self._file, library = folder / "clock", folder / "jumping.so"
        self._file.write_bytes(struct.pack("=q", 0))
        source = Path(__file__).with_name("jumping.c")
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"]
        self.left_out = _failure(command, "the C compiler can't make a jumping clock")
        ready = self.left_out is None
        self.env: Mapping[str, str] = {"LD_PRELOAD": str(library), "JUMPING_CLOCK": str(self._file)} if ready else {}

    def jump(self, offset_s: int) -> None:
        """Set the offset from the true time, for all processes with this clock at once."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("=q", offset_s))


def _failure(command: list[str], what: str) -> str | None:
    """Run the command. Returns why it failed, or None."""
    if shutil.which(command[0]) is None:
        return f"{what}: there is no {command[0]}"
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else f"{what}: {done.stderr.strip()[:200] or done.returncode}"
