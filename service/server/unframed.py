"""Answers to HTTP/1.0, which knows no chunks (RFC 9112, 6.1): what has no length ends with its connection."""

from __future__ import annotations

from typing import cast

from starlette.types import Message, Send
from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle


def unframed(cycle: RequestResponseCycle) -> Send:
    """In place of uvicorn's own `send`, which puts all that has no length into chunks, whoever asked for it."""
    has_length = True

    async def send(message: Message) -> None:
        nonlocal has_length
        if message["type"] == "http.response.start":
            has_length = any(name.lower() == b"content-length" for name, _ in message["headers"])
            if not has_length:
                cycle.chunked_encoding = False
        elif not has_length:
            cycle.expected_content_length = len(message.get("body", b""))  # it holds each piece to what was announced
        await cycle.send(cast(ASGISendEvent, message))

    return send
