"""The body of a request, read by us: bounded in bytes and time, JSON in UTF-8 and nothing else."""

from __future__ import annotations

import asyncio

from fastapi import Request

from dyno.settings import Settings
from service.errors import BodyTooLarge, BodyTooSlow, UnsupportedMediaType


async def read(request: Request, settings: Settings) -> bytes:
    """The whole body. Raises UnsupportedMediaType, BodyTooLarge (without reading on) or BodyTooSlow."""
    max_bytes, within_s = settings.max_body_bytes, settings.body_timeout_s
    _check_type(request)
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise BodyTooLarge(f"the body has {declared[:20]} bytes, at most {max_bytes} are read")
    try:
        async with asyncio.timeout(within_s):
            return await _collect(request, max_bytes)
    except TimeoutError as error:
        raise BodyTooSlow(f"the body was not complete after {within_s:g} s") from error


async def _collect(request: Request, max_bytes: int) -> bytes:
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                raise BodyTooLarge(f"the body has more than {max_bytes} bytes")
        return bytes(body)
    finally:
        body.clear()  # an error refers to what was read by its traceback, until garbage is looked for


def _check_type(request: Request) -> None:
    """Only application/json: a form or text body from a foreign web page would come without a CORS preflight."""
    media_type, *parameters = (part.strip().lower() for part in _all(request, "content-type").split(";"))
    if media_type != "application/json":
        given = f'"{media_type}"' if media_type else "nothing"
        raise UnsupportedMediaType(f'Content-Type says {given}; send "application/json"')
    charsets = [value.strip('"') for name, _, value in (p.partition("=") for p in parameters) if name == "charset"]
    if any(charset not in ("utf-8", "utf8") for charset in charsets):
        raise UnsupportedMediaType(f'the charset "{charsets[0]}" is not read; JSON is UTF-8')
    encoding = (_all(request, "content-encoding") or "identity").strip().lower()
    if encoding != "identity":
        raise UnsupportedMediaType(f'the Content-Encoding "{encoding}" is not read; send the body as it is')


def _all(request: Request, name: str) -> str:
    """All lines of a header: where it is to say one thing, two of them say nothing that is read."""
    return ", ".join(request.headers.getlist(name))
