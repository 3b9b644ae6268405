from __future__ import annotations

import asyncio
from functools import partial
from typing import Any, cast

import uvicorn
import uvloop

from dyno.settings import Settings
from service.middleware import HttpMetrics
from service.server.connections import ConnectionLimit
from service.server.http_protocol import HttpProtocol


def test_a_request_waits_while_there_is_no_room_for_its_response() -> None:
    """Otherwise the response, and its data, would stay in memory."""
    asked: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        asked.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    async def run() -> None:
        http = partial(
            HttpProtocol, Settings(), ConnectionLimit(9, most_sending=9, most_held_bytes=2**20), HttpMetrics("0")
        )
        config = uvicorn.Config(app, port=0, http=cast(type[asyncio.Protocol], http), lifespan="off", log_config=None)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        port = server.servers[0].sockets[0].getsockname()[1]
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while not server.server_state.connections:
            await asyncio.sleep(0)
        [connection] = cast(set[HttpProtocol], server.server_state.connections)
        try:
            connection.pause_writing()
            writer.write(b"GET /first HTTP/1.1\r\nHost: localhost\r\n\r\n")
            while connection.cycle is None:
                await asyncio.sleep(0)
            for _ in range(5):  # enough turns of the event loop for all pending callbacks
                await asyncio.sleep(0)
            assert asked == []
        finally:
            connection.resume_writing()
            assert b"204" in await reader.readuntil(b"\r\n\r\n")
            writer.close()
            server.should_exit = True
            await serving

    uvloop.run(asyncio.wait_for(run(), 30))
    assert asked == ["/first"]
