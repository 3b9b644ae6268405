"""A server that responds but refuses writes counts as unreachable for lease expiry, as it refuses heartbeats, too."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
import redis

from dyno.errors import StoreUnavailable
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.maintenance import Maintenance, redis_now_s
from dyno.store.redis import Keys, async_client, sync_client
from tests.servers import KINDS, server_binary
from tests.waiting import eventually

DEVICE = "cpu:0-1@alpha"
Fault = Callable[[redis.Redis], AbstractContextManager[None]]


@pytest.fixture(params=KINDS)
def there(request, namespace, tmp_path):
    with EmbeddedServer(tmp_path / "data", server_binary(request.param)) as server:
        yield Settings(redis_url=server.url, namespace=namespace, reap_every_s=0.02, lease_s=1.0)


@contextmanager
def demoted(client):
    """Make it a replica of a server that doesn't exist."""
    client.execute_command("REPLICAOF", "127.0.0.1", "1")
    yield
    client.execute_command("REPLICAOF", "NO", "ONE")


@contextmanager
def without_replicas(client):
    client.config_set("min-replicas-to-write", 1)
    yield
    client.config_set("min-replicas-to-write", 0)


@contextmanager
def unable_to_save(client):
    """Put a folder in the place of its snapshot file."""
    (Path(client.config_get("dir")["dir"]) / client.config_get("dbfilename")["dbfilename"]).mkdir()
    client.config_set("save", "3600 1")
    client.bgsave()
    eventually(lambda: client.info("persistence")["rdb_last_bgsave_status"] == "err")
    yield
    client.config_set("save", "")


@pytest.mark.anyio
@pytest.mark.parametrize("fault", [demoted, without_replicas, unable_to_save], ids=lambda fault: fault.__name__)
async def test_a_worker_that_could_not_extend_its_lease_gets_a_whole_lease_to_do_so(fault, there, a_spec, worker):
    async with async_client(there) as asynchronous:
        job_id = (await Jobs(asynchronous, there).submit(a_spec())).job.id
    with sync_client(there) as client:
        # Leases run out when the test says so, not while the machine is busy.
        leases = Leases(client, there.model_copy(update={"lease_s": 600.0}))
        record = Keys(there.namespace).job(job_id)
        maintenance = Maintenance(there, lambda queue: None)
        maintenance.start()
        assert leases.claim(DEVICE, ["cpu"], worker) is not None
        run_out(client, there)
        eventually(lambda: client.hget(record, "status") == "queued", what="the reaper believes in leases")
        assert leases.claim(DEVICE, ["cpu"], worker) is not None
        with fault(client):
            seen = looks(client)
            # What it was at when the fault began may ask once or twice more; after that each look asks once, and fails.
            eventually(lambda: looks(client) > seen + 4, what="the reaper has looked")
            back_s = time.monotonic()
        run_out(client, there)
        eventually(lambda: client.hget(record, "status") != "running")
        assert time.monotonic() - back_s >= there.lease_s
        maintenance.stop()


def run_out(client, there):
    keys = Keys(there.namespace)
    client.hset(keys.lease(DEVICE), "expires_at_ms", 1)
    client.zadd(keys.leases, {DEVICE: 1})


def looks(client):
    """The number of TIME commands; each check begins with one."""
    return int(client.info("commandstats")["cmdstat_time"]["calls"])


@pytest.mark.parametrize("fault", [demoted, without_replicas, unable_to_save], ids=lambda fault: fault.__name__)
def test_checking_whether_redis_accepts_heartbeats_changes_nothing(fault, there):
    with sync_client(there) as client:
        client.config_set("maxmemory", 1)  # a full server takes heartbeats
        changes = client.info("persistence")["rdb_changes_since_last_save"]
        assert abs(redis_now_s(client, there) - client.time()[0]) < 60
        assert client.info("persistence")["rdb_changes_since_last_save"] == changes
        client.config_set("maxmemory", 0)
        with fault(client), pytest.raises(StoreUnavailable):
            redis_now_s(client, there)
        redis_now_s(client, there)
        assert client.keys() == []
