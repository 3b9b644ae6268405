"""Fixture: a Redis or Valkey server for all tests of a file, which tests may kill."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dyno.store.embedded import EmbeddedServer
from tests.servers import server_binary


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """Parametrized with the kind of server."""
    with EmbeddedServer(binary=server_binary(request.param)) as server:
        yield server
