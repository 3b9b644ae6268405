"""Fixture: a Redis or Valkey server for all tests of a file, which tests may kill."""

import pytest

from dyno.store.embedded import EmbeddedServer
from tests.servers import server_binary


@pytest.fixture(scope="module")
def server(request):
    """Parametrized with the kind of server."""
    with EmbeddedServer(binary=server_binary(request.param)) as server:
        yield server
