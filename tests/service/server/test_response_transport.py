from __future__ import annotations

import asyncio
import random
import socket
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import uvloop

from service.server.response_transport import FULL_BYTES, PIECE_BYTES, ResponseTransport
from tests.waiting import eventually


@asynccontextmanager
async def opened() -> AsyncIterator[tuple[ResponseTransport, socket.socket]]:
    """A transport, and the client's socket."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as caller:
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=server.accept()[0])
        yield ResponseTransport(transport, transport, lambda: 0), caller
        transport.abort()


@pytest.mark.parametrize("size_bytes", [0, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES])
def test_a_response_is_written_in_pieces_and_the_rest_is_held(size_bytes: int) -> None:
    body = random.Random(size_bytes).randbytes(size_bytes)
    sent: list[tuple[dict[str, Any], int]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for more in (True, False):
            await send({"type": "http.response.body", "body": body, "more_body": more})

    async def run() -> None:
        async with opened() as (line, _):

            async def send(message: Any) -> None:
                sent.append((message, line.held_bytes))

            await line.answer(app, {}, None, send)  # type: ignore[arg-type]
            assert line.held_bytes == 0

    uvloop.run(run())
    sizes = [len(message["body"]) for message, _ in sent]
    assert b"".join(message["body"] for message, _ in sent) == body * 2
    assert max(sizes) <= PIECE_BYTES
    of_each = [size_bytes - sum(sizes[: n + 1]) for n in range(len(sizes) // 2)]
    assert [held for _, held in sent] == of_each * 2
    assert [message["more_body"] for message, _ in sent] == [True] * (len(sent) - 1) + [False]


def test_the_data_of_a_response_is_freed_before_the_client_reads_it() -> None:
    """A list of jobs takes twice the memory of its JSON."""
    parts: set[object] = set()

    class Part:
        """An object that supports weak references."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        made_of = Part()
        gone = weakref.ref(made_of, lambda _: parts.clear())
        parts.add(gone)
        await send({"type": "http.response.body", "body": bytes(3 * PIECE_BYTES)})

    async def run() -> None:
        async with opened() as (line, _):

            async def send(message: Any) -> None:
                assert not parts

            await line.answer(app, {}, None, send)  # type: ignore[arg-type]

    uvloop.run(run())


def test_bytes_read_from_the_kernels_buffer_count_as_read() -> None:
    """Most unread bytes are in the kernel."""

    async def run() -> None:
        async with opened() as (line, caller):
            while line.held_bytes <= FULL_BYTES:
                line.write(bytes(PIECE_BYTES))
            line.takes()
            assert not line.takes()
            held_bytes = line.held_bytes
            caller.setblocking(False)

            def is_taken() -> bool:
                caller.recv(PIECE_BYTES)
                return line.takes()

            eventually(is_taken)
            assert line.held_bytes == held_bytes < line.left_bytes
            assert not line.takes()

    uvloop.run(run())
