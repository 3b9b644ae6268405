"""Redis' password for a user is replaced while Dyno is connected: docs/operations.md, "Rotating secrets"."""

import pytest
import redis

from dyno.errors import StoreUnavailable
from dyno.store.embedded import EmbeddedServer
from dyno.store.fleet import cordoned_now
from dyno.store.redis import sync_client
from tests.servers import KINDS, server_binary


@pytest.fixture(params=KINDS)
def binary(request):
    return server_binary(request.param)


@pytest.fixture
def server(binary):
    with EmbeddedServer(binary=binary) as server:
        yield server


def test_two_passwords_work_at_once_and_connections_outlast_the_old_one(server, settings):
    old, new = (
        settings.model_copy(update={"redis_url": server.url.replace("//", f"//worker:{word}@")})
        for word in ("old", "new")
    )
    with redis.Redis.from_url(server.url) as admin, sync_client(old) as connected, sync_client(new) as restarted:
        admin.execute_command("ACL", "SETUSER", "worker", "on", ">old", "~*", "+@all")
        assert cordoned_now(connected, old) == set()
        admin.execute_command("ACL", "SETUSER", "worker", ">new")
        assert cordoned_now(restarted, new) == set()
        admin.execute_command("ACL", "SETUSER", "worker", "<old")
        assert cordoned_now(connected, old) == set()
        connected.connection_pool.disconnect()
        with pytest.raises(StoreUnavailable):
            cordoned_now(connected, old)
        assert cordoned_now(restarted, new) == set()
