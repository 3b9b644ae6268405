"""A server that answers as a test says, calls by both clients, and the pauses that clients would have made."""

import http.server
import threading

import pytest

from dyno.client import AsyncClient, Client
from tests.asking import all_asked, asked
from tests.client.stub_server import Handler


@pytest.fixture
def url():
    Handler.answers, Handler.seen = [], []
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.fixture(params=[Client, AsyncClient])
def through(request, url):
    """Makes a call with Client or AsyncClient, and returns its result."""
    return lambda ask, key=None, url=url: asked(request.param, ask, url, key)


@pytest.fixture(params=[Client, AsyncClient])
def through_all(request, url):
    """Makes several calls with Client or AsyncClient; see `all_asked`."""
    return lambda asks: all_asked(request.param, asks, url)


@pytest.fixture
def pauses(monkeypatch):
    """Records the clients' pauses and skips them."""
    kept = []

    async def awaited(client, time_s):
        kept.append(time_s)

    for kind in (Client, AsyncClient):
        monkeypatch.setattr(kind, "_pause", awaited)
    return kept
