"""Each way to abuse an API, at full size. `python -m benchmarks.load.abuses NAME PORT COUNT PER_S` abuses the API there
until standard input ends, on what other processes leave of the cores: other abusers have machines of their own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import resource
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass, field

import uvloop

from benchmarks.load.clients import SPEC, Recorded, Streams, answer, opened, request

TICK_S = 0.01
SOURCES = [f"127.0.0.{last}" for last in range(2, 10)]
LARGE_BYTES = 200_000_000
PIECE = b" " * 65536
FEW_CONNECTIONS = {"MAX_CONNECTIONS": "400"}  # the kernel's buffers for a thousand stuck readers don't fit in memory
POST = "POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
Run = Callable[[int, int, float, Recorded], Awaitable[None]]


@dataclass
class Abuse:
    """`run` goes on until it is canceled. `count`: connections at full size; `per_s`: how many of them are opened in a
    second, or how often all of them together do it. `settings`: of the API, where they aren't those of production."""

    what: str
    run: Run
    count: int
    per_s: float
    settings: Mapping[str, str] = field(default_factory=dict)


def raise_file_limit() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


@contextlib.asynccontextmanager
async def connected(port: int, count: int, per_s: float, first: bytes = b"") -> AsyncIterator[list[Streams]]:
    """So many connections, or as many as the API lets in, and `first` sent on each as soon as it is open."""
    lines: list[Streams] = []

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


def _trickle(first: bytes, piece: bytes) -> Run:
    """`first` on each connection, then `piece` on all of them each second."""

    async def run(port: int, count: int, per_s: float, recorded: Recorded) -> None:
        async with connected(port, count, per_s, first) as lines:
            while True:
                await asyncio.sleep(1)
                for _, writer in lines:
                    if piece and not writer.is_closing():
                        writer.write(piece)

    return run


async def _stuck_readers(port: int, count: int, per_s: float, recorded: Recorded) -> None:
    """Each requests more than the kernel buffers, of what needs no key."""
    first = request("GET", "/docs/swagger-ui-bundle.js") * 3
    async with connected(port, count, per_s, first) as lines:
        for _, writer in lines:
            writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()


async def _streams(port: int, count: int, per_s: float, recorded: Recorded) -> None:
    async with connected(port, count, per_s, request("GET", "/v1/events")) as lines:

        async def read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(EOFError, OSError):
                opening = await answer(reader)
                recorded.add(opening.status, opening.retry_after)
                while await reader.read(65536):
                    pass

        await asyncio.gather(*(read(*line) for line in lines))
        await asyncio.Event().wait()


def _large() -> Iterator[bytes]:
    yield f"{POST}Transfer-Encoding: chunked\r\n\r\n".encode()
    chunk = b"%x\r\n" % len(PIECE) + PIECE + b"\r\n"
    for _ in range(LARGE_BYTES // len(PIECE)):
        yield chunk


def _repeat(message: Callable[[], Iterator[bytes]]) -> Run:
    """On each of `count` connections, again and again: send it, until there is an answer or the API hangs up."""

    async def run(port: int, count: int, per_s: float, recorded: Recorded) -> None:
        async def one(number: int) -> None:
            loop = asyncio.get_running_loop()
            due_s = loop.time() + number / per_s
            while True:
                await asyncio.sleep(max(0.0, due_s - loop.time()))
                await _send(port, SOURCES[number % len(SOURCES)], message, recorded)
                due_s = max(due_s + count / per_s, loop.time() - 1)

        await asyncio.gather(*(one(number) for number in range(count)))

    return run


async def _send(port: int, source: str, message: Callable[[], Iterator[bytes]], recorded: Recorded) -> None:
    try:
        reader, writer = await opened(port, source)
    except OSError:
        recorded.cut += 1
        return
    answered = asyncio.create_task(answer(reader))
    try:
        for piece in message():
            if answered.done() or writer.is_closing():
                break
            writer.write(piece)
            with contextlib.suppress(OSError):
                await writer.drain()
        found = await answered
        recorded.add(found.status, found.retry_after)
    except (EOFError, OSError, TimeoutError):
        recorded.cut += 1
    finally:
        answered.cancel()
        writer.close()


def _whole(message: bytes) -> Run:
    return _repeat(lambda: iter([message]))


_SLOW_HEAD = b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
_SLOW_BODY = f"{POST}Content-Length: 65000\r\n\r\n".encode() + b"{" + PIECE[:63_000]
_DEEP = request("POST", "/v1/jobs", b'{"workload":"matmul","params":' + b'{"a":' * 12_000)
_BROAD = request("POST", "/v1/jobs", json.dumps({**SPEC, "params": {f"p{n}": [] for n in range(600)}}).encode())
_HEADERS = b"GET /livez HTTP/1.1\r\n" + b"".join(b"X-%d: %b\r\n" % (n, b"y" * 600) for n in range(100)) + b"\r\n"
_RUBBISH = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20 + bytes(range(256))
ABUSES: dict[str, Abuse] = {
    "idle": Abuse("connections that send nothing", _trickle(b"", b""), 10_000, 2500.0),
    "slow heads": Abuse("heads of which a byte comes each second", _trickle(_SLOW_HEAD, b"x"), 1000, 500.0),
    "slow bodies": Abuse("bodies of 63 KB, and then a byte each second", _trickle(_SLOW_BODY, b" "), 1000, 500.0),
    "stuck readers": Abuse("clients that read nothing, on all of 400", _stuck_readers, 410, 100.0, FEW_CONNECTIONS),
    "streams": Abuse("readers of all events, ten more than allowed", _streams, 1010, 250.0),
    "200 MB": Abuse("bodies of 200 MB in chunks", _repeat(_large), 20, 100.0),
    "deep": Abuse("bodies of 60 KB that are 12,000 levels deep", _whole(_DEEP), 20, 200.0),
    "broad": Abuse("specs with 600 wrong params", _whole(_BROAD), 20, 50.0),
    "headers": Abuse("heads of 60 KB", _whole(_HEADERS), 20, 200.0),
    "rubbish": Abuse("20 requests at once, and then bytes that aren't HTTP", _whole(_RUBBISH), 20, 50.0),
}


async def main(name: str, port: int, count: int, per_s: float) -> None:
    recorded = Recorded()
    raise_file_limit()
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    print("begun", flush=True)
    abuse = asyncio.ensure_future(ABUSES[name].run(port, count, per_s, recorded))
    ended = asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await asyncio.wait((abuse, ended), return_when=asyncio.FIRST_COMPLETED)
    failed = abuse.done()
    abuse.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await abuse
    assert not failed
    print(json.dumps({"statuses": recorded.statuses, "cut": recorded.cut, "broken": recorded.broken}))


if __name__ == "__main__":
    uvloop.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])))
