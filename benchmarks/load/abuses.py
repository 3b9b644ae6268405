"""Each way to abuse an API, at full size; run in a process of its own by abuser.py."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from dataclasses import dataclass

from benchmarks.load.callers import SPEC, Noted
from benchmarks.load.wire import answer, opened, request

Opened = tuple[asyncio.StreamReader, asyncio.StreamWriter]
TICK_S = 0.01
SOURCES = [f"127.0.0.{last}" for last in range(2, 10)]
LARGE_BYTES = 200_000_000
PIECE = b" " * 65536
JSON = "Host: localhost\r\nContent-Type: application/json\r\n"
POST = f"POST /v1/jobs HTTP/1.1\r\n{JSON}"


@dataclass
class Abuse:
    """`run` goes on until it is canceled. `count`: connections at full size; `per_s`: how many of them are opened in a
    second, or how often all of them together do it."""

    what: str
    run: Callable[[int, int, float, Noted], Awaitable[None]]
    count: int
    per_s: float


@contextlib.asynccontextmanager
async def connected(port: int, count: int, per_s: float, first: bytes = b"") -> AsyncIterator[list[Opened]]:
    """So many connections, or as many as the API lets in, and `first` said on each as soon as it is open."""
    lines: list[Opened] = []

    async def one(source: str) -> None:
        with contextlib.suppress(OSError):
            lines.append(await opened(port, source))
            lines[-1][1].write(first)

    try:
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                group.create_task(one(SOURCES[number % len(SOURCES)]))
                if number % max(1, round(per_s * TICK_S)) == 0:
                    await asyncio.sleep(TICK_S)
        yield lines
    finally:
        for _, writer in lines:
            writer.close()


async def _idle(port: int, count: int, per_s: float, noted: Noted) -> None:
    async with connected(port, count, per_s):
        await asyncio.Event().wait()


async def _trickle(port: int, count: int, per_s: float, first: bytes, piece: bytes) -> None:
    async with connected(port, count, per_s, first) as lines:
        while True:
            await asyncio.sleep(1)
            for _, writer in lines:
                if not writer.is_closing():
                    writer.write(piece)


async def _slow_heads(port: int, count: int, per_s: float, noted: Noted) -> None:
    await _trickle(port, count, per_s, b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", b"x")


async def _slow_bodies(port: int, count: int, per_s: float, noted: Noted) -> None:
    await _trickle(port, count, per_s, f"{POST}Content-Length: 65000\r\n\r\n".encode() + b"{" + PIECE[:63_000], b" ")


async def _streams(port: int, count: int, per_s: float, noted: Noted) -> None:
    async with connected(port, count, per_s, request("GET", "/v1/events")) as lines:

        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(EOFError, OSError):
                told = await answer(reader)
                noted.note(told.status, told.retry_after)
                while await reader.read(65536):
                    pass

        await asyncio.gather(*(read(*line) for line in lines))
        await asyncio.Event().wait()


def _large() -> Iterator[bytes]:
    yield f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"
    for _ in range(LARGE_BYTES // len(PIECE)):
        yield chunk


def _deep() -> Iterator[bytes]:
    body = b'{"workload":"matmul","params":' + b'{"a":' * 12_000
    yield request("POST", "/v1/jobs", body)


def _broad() -> Iterator[bytes]:
    body = json.dumps({**SPEC, "params": {f"p{number}": [] for number in range(600)}}).encode()
    yield request("POST", "/v1/jobs", body)


def _rubbish() -> Iterator[bytes]:
    yield b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20 + bytes(range(256))


def _headers() -> Iterator[bytes]:
    yield b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 600) for n in range(100)) + b"\r\n"


def _again(said: Callable[[], Iterator[bytes]]) -> Callable[[int, int, float, Noted], Awaitable[None]]:
    """On each of `count` connections, one after the other: say it, until there is an answer or the API hangs up."""

    async def run(port: int, count: int, per_s: float, noted: Noted) -> None:
        async def one(number: int) -> None:
            loop = asyncio.get_running_loop()
            due_s = loop.time() + number / per_s
            while True:
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await _say(port, SOURCES[number % len(SOURCES)], said, noted)
                due_s = max(due_s + count / per_s, loop.time() - 1)

        await asyncio.gather(*(one(number) for number in range(count)))

    return run


async def _say(port: int, source: str, said: Callable[[], Iterator[bytes]], noted: Noted) -> None:
    try:
        reader, writer = await opened(port, source)
    except OSError:
        noted.cut += 1
        return
    answered = asyncio.create_task(answer(reader))
    try:
        for piece in said():
            if answered.done() or writer.is_closing():
                break
            writer.write(piece)
            with contextlib.suppress(OSError):
                await writer.drain()
        told = await answered
        noted.note(told.status, told.retry_after)
    except (EOFError, OSError, TimeoutError):
        noted.cut += 1
    finally:
        answered.cancel()
        writer.close()


ABUSES: dict[str, Abuse] = {
    "idle": Abuse("connections that say nothing", _idle, 10_000, 2500.0),
    "slow heads": Abuse("heads of which a byte comes each second", _slow_heads, 1000, 500.0),
    "slow bodies": Abuse("bodies of 63 KB, and then a byte each second", _slow_bodies, 1000, 500.0),
    "streams": Abuse("readers of all events, ten more than there may be", _streams, 1010, 250.0),
    "200 MB": Abuse("bodies of 200 MB in chunks", _again(_large), 20, 100.0),
    "deep": Abuse("bodies of 60 KB that are 12,000 levels deep", _again(_deep), 20, 200.0),
    "broad": Abuse("specs with 600 wrong params", _again(_broad), 20, 50.0),
    "headers": Abuse("heads of 60 KB", _again(_headers), 20, 200.0),
    "rubbish": Abuse("20 requests at once, and then bytes that are none", _again(_rubbish), 20, 50.0),
}
