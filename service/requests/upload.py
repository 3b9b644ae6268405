"""The body of an upload, written to disk as it comes: bounded in bytes, and in the time that it may be silent."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import anyio.to_thread
from fastapi import Request
from starlette.requests import ClientDisconnect

from dyno.errors import ArtifactStoreUnavailable, ArtifactTooLarge
from service.errors import BodyTooSlow

SILENT_S = 30.0  # between two pieces: a worker that is alive sends sooner


@dataclass(frozen=True)
class Upload:
    """A file that came in whole; `path` lasts as long as the block that received it, unless it is moved away."""

    path: Path
    bytes: int
    sha256: str


@asynccontextmanager
async def received(request: Request, folder: Path, max_bytes: int) -> AsyncIterator[Upload]:
    """The whole body, in a file in `folder`. Raises ArtifactTooLarge, BodyTooSlow, ArtifactStoreUnavailable."""
    declared = request.headers.get("content-length", "")
    if declared.isascii() and declared.isdigit() and int(declared[:20]) > max_bytes:
        raise ArtifactTooLarge(f"the file has {declared[:20]} bytes, at most {max_bytes} are kept")
    path = folder / f".{secrets.token_hex(8)}"
    try:
        yield await _receive(request, path, max_bytes)
    finally:
        path.unlink(missing_ok=True)


async def _receive(request: Request, path: Path, max_bytes: int) -> Upload:
    digest, size_bytes = hashlib.sha256(), 0
    try:
        with path.open("xb") as file:

            def add(piece: bytes) -> None:
                file.write(piece)
                digest.update(piece)

            async for piece in _pieces(request):
                size_bytes += len(piece)
                if size_bytes > max_bytes:
                    raise ArtifactTooLarge(f"the file has more than {max_bytes} bytes")
                await anyio.to_thread.run_sync(add, piece)
    except ClientDisconnect as error:
        raise BodyTooSlow("the connection closed before the file was complete") from error
    except OSError as error:
        raise ArtifactStoreUnavailable(f"{path.parent} can't be written: {error.strerror or error}") from error
    return Upload(path, size_bytes, digest.hexdigest())


async def _pieces(request: Request) -> AsyncIterator[bytes]:
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout(SILENT_S):
                piece = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError as error:
            raise BodyTooSlow(f"nothing came for {SILENT_S:.0f} s") from error
        yield piece  # outside the timeout: what is done with it, a slow disk's write, is not the sender's silence
