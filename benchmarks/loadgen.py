"""Load generator: starts services, sends requests on kept-alive connections, and reads event streams.

It writes and reads HTTP by hand, so that it takes little of the cores that it shares with the service.
"""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, cast

ROOT = Path(__file__).parent.parent
PATIENCE_S = 60.0
LONGEST_S = 600.0  # time limit of one load
_LENGTH = re.compile(rb"\r\ncontent-length: (\d+)", re.IGNORECASE)
Check = Callable[[int, bytes], bool]  # whether this status and body are right


class Service(NamedTuple):
    port: int
    pid: int


@contextmanager
def serving(words: Sequence[str], settings: Mapping[str, str], log: Path) -> Iterator[Service]:
    """A service, `python -P -m words…`, that prints its URL. Raises RuntimeError if it doesn't start, or ends."""
    foreign = {name: value for name, value in os.environ.items() if not name.startswith("DYNO_")}
    env = foreign | {f"DYNO_{name}": value for name, value in settings.items()} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-P", "-m", *words]
    with (
        log.open("w") as stderr,
        subprocess.Popen(command, env=env, cwd=ROOT, stdout=subprocess.PIPE, stderr=stderr, text=True) as process,
    ):
        try:
            assert process.stdout is not None
            if not (line := process.stdout.readline()):
                raise RuntimeError(f"{words} didn't start: {log.read_text()[-2000:]}")
            yield Service(int(line.rpartition(":")[2]), process.pid)
            if process.poll() is not None:
                raise RuntimeError(f"{words} ended: {log.read_text()[-2000:]}")
        finally:
            process.terminate()  # processes that it started end with it


def request(method: str, path: str, body: bytes | None = None, **headers: str) -> bytes:
    """`headers`: underscores stand for dashes."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class Connection(asyncio.Protocol):
    """Sends the next request when the response to the last one is complete, but at most one in `every_s` seconds, until
    `done` returns true. It needs less CPU time than asyncio's streams.

    The time of a request begins when it is due, so it includes the wait for the response to the last one.
    """

    def __init__(self, ask: Callable[[], bytes], check: Check, done: Callable[[], bool], every_s: float = 0) -> None:
        self._ask, self._check, self._done, self._every_s = ask, check, done, every_s
        self._unread = b""
        self.took_s: list[float] = []
        self.last_body: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._send(time.perf_counter())

    def data_received(self, data: bytes) -> None:
        self._unread += data
        head, end, body = self._unread.partition(b"\r\n\r\n")
        found = _LENGTH.search(head)
        length = int(found[1]) if found else 0  # 0 refuses a chunked response
        if not end or len(body) < length:
            return
        now_s, status, self._unread = time.perf_counter(), int(head[9:12]), b""
        self.took_s.append(now_s - self._due_s)
        if len(body) > length or not self._check(status, body):
            self._fail(f"wrong response: {head.decode()}\n{body[:1000].decode()}")
        elif self._done():
            self.last_body.set_result(body)
            self._transport.close()
        elif not self._every_s:
            self._send(now_s)
        else:
            due_s = self._due_s + self._every_s
            asyncio.get_running_loop().call_later(max(0.0, due_s - now_s), self._send, due_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(f"the service closed a connection: {exc}")

    def _send(self, due_s: float) -> None:
        self._due_s = due_s
        if not self._transport.is_closing():
            self._transport.write(self._ask())

    def _fail(self, message: str) -> None:
        if not self.last_body.done():
            self.last_body.set_exception(RuntimeError(message))
            self._transport.close()


class Load(NamedTuple):
    """The seconds of each request, and the last body of a connection."""

    took_s: list[float]
    body: bytes


def succeeds(status: int, body: bytes) -> bool:
    return 200 <= status < 300


def after(seconds: float) -> Callable[[], bool]:
    """A function that returns whether `seconds` have passed since this call."""
    end_s = time.perf_counter() + seconds
    return lambda: time.perf_counter() >= end_s


async def send(
    port: int,
    ask: Callable[[], bytes],
    check: Check = succeeds,
    done: Callable[[], bool] = lambda: True,
    connections: int = 1,
    per_s: float = 0,
) -> Load:
    """Send requests until `done`, at least one on each connection: `per_s` a second in all, or unlimited if 0.

    Raises RuntimeError at a wrong response.
    """
    loop, every_s = asyncio.get_running_loop(), connections / per_s if per_s else 0
    opened: list[Connection] = []
    for _ in range(connections):
        _, one = await loop.create_connection(lambda: Connection(ask, check, done, every_s), "127.0.0.1", port)
        opened.append(one)
        if every_s:
            await asyncio.sleep(every_s / connections)  # the connections take turns
    async with asyncio.timeout(LONGEST_S):
        bodies = await asyncio.gather(*(one.last_body for one in opened))
    return Load([each for one in opened for each in one.took_s], bodies[0])


@asynccontextmanager
async def streams(port: int, count: int, heard: Callable[[bytes], None] = lambda event: None) -> AsyncIterator[None]:
    """`count` readers of all events, open while the block runs. `heard` gets each event of each reader."""
    async with asyncio.timeout(PATIENCE_S), asyncio.TaskGroup() as group:
        opening = [group.create_task(_open_stream(port)) for _ in range(count)]
    tasks = [asyncio.create_task(_read(*each.result(), heard)) for each in opening]
    yield
    ended = [task for task in tasks if task.done()]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if ended:
        raise RuntimeError(f"the service closed {len(ended)} of {count} streams")


async def _open_stream(port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request("GET", "/v1/events"))
    head = await reader.readuntil(b"\r\n\r\n")
    await reader.readuntil(b"\n\n")  # the retry field
    if int(head[9:12]) != 200:
        raise RuntimeError(f"no stream: {head.decode()}")
    return reader, writer


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, heard: Callable[[bytes], None]) -> None:
    try:
        while True:
            heard(await reader.readuntil(b"\n\n"))
    finally:
        writer.close()
