"""A server of either kind that a test may kill, for all tests of a file."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dyno.store.embedded import EmbeddedServer
from tests.servers import server_binary


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[EmbeddedServer]:
    """Parametrized with its kind."""
    with EmbeddedServer(binary=server_binary(request.param)) as server:
        yield server
