"""Ordinary clients: each sends one request again and again and records how long the answer took.

HTTP is written and read by hand, so that the clients take little of the two cores.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import NamedTuple

SPEC = {"workload": "matmul", "device": "tpu", "queue_if_absent": True}  # no worker claims it
LISTED = 20
ANSWER_WITHIN_S = 60.0
RECEIVE_BYTES = 64 * 1024  # the kernel's receive buffer
_LENGTH = re.compile(rb"content-length: (\d+)", re.IGNORECASE)
_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # thousands of connections would each leave a port in TIME_WAIT
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Answer(NamedTuple):
    """`retry_after`: whether it has that header."""

    status: int
    retry_after: bool
    body: bytes


@dataclass
class Recorded:
    """Of one stretch of time. `cut`: connections that ended before the answer; `broken`: 5xx answers other than a 503
    with Retry-After."""

    seconds: dict[str, list[float]] = field(default_factory=dict)
    statuses: Counter[int] = field(default_factory=Counter)
    cut: int = 0
    broken: int = 0

    def all_seconds(self) -> list[float]:
        return [each for of_kind in self.seconds.values() for each in of_kind]

    def add(self, status: int, retry_after: bool) -> None:
        self.statuses[status] += 1
        promised = status == HTTPStatus.SERVICE_UNAVAILABLE and retry_after
        self.broken += status >= HTTPStatus.INTERNAL_SERVER_ERROR and not promised


def request(method: str, path: str, body: bytes = b"") -> bytes:
    headers = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n" if body else ""
    return f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n".encode() + body


SUBMIT = request("POST", "/v1/jobs", json.dumps(SPEC).encode())


async def opened(port: int, source: str = "127.0.0.1") -> Streams:
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
    """The next one. Raises EOFError, OSError or TimeoutError if there is none."""
    async with asyncio.timeout(ANSWER_WITHIN_S):
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        body = await reader.readexactly(int(length[1])) if length else b""
    return Answer(int(head[9:12]), b"\r\nretry-after: " in head.lower(), body)


class Connection:
    """Kept alive, and opened again after the API closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Streams | None = None

    async def ask(self, question: bytes) -> Answer:
        try:
            if self._streams is None or self._streams[0].at_eof():
                self.close()
                self._streams = await opened(self._port)
            self._streams[1].write(question)
            return await answer(self._streams[0])
        except (EOFError, OSError, TimeoutError):
            self.close()
            raise

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None


async def prepared(port: int) -> Mapping[str, bytes]:
    """The ordinary requests by name, after submitting the jobs that they are about."""
    connection = Connection(port)
    await connection.ask(request("GET", "/openapi.json"))  # made at the first request
    jobs = [json.loads((await connection.ask(SUBMIT)).body) for _ in range(LISTED)]
    connection.close()
    return {
        "job": request("GET", jobs[0]["urls"]["self"]),
        "validate": request("POST", "/v1/jobs?validate_only=true", json.dumps(SPEC).encode()),
        "list": request("GET", f"/v1/jobs?limit={LISTED}"),
    }


async def ask(port: int, questions: Mapping[str, bytes], per_s: Mapping[str, float], for_s: float) -> Recorded:
    """Each of `questions` on a connection of its own, so many times a second, whether or not the API keeps up."""
    recorded = Recorded()
    until_s = time.perf_counter() + for_s
    await asyncio.gather(*(_ask(port, each, questions[each], 1 / per_s[each], until_s, recorded) for each in questions))
    return recorded


async def _ask(port: int, name: str, question: bytes, every_s: float, until_s: float, recorded: Recorded) -> None:
    """A request's time runs from when it was due, so it includes the wait for the answer to the last one."""
    connection, took_s = Connection(port), recorded.seconds.setdefault(name, [])
    due_s = time.perf_counter()
    while due_s < until_s:
        await asyncio.sleep(due_s - time.perf_counter())
        try:
            found = await connection.ask(question)
        except (EOFError, OSError, TimeoutError):
            recorded.cut += 1
        else:
            took_s.append(time.perf_counter() - due_s)
            recorded.add(found.status, found.retry_after)
        due_s += every_s
    connection.close()
