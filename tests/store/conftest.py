"""Fixtures: jobs and leases on Redis and Valkey, and ways to let leases and pauses run out without waiting."""

import pytest

from dyno.models.job import WorkerRef
from dyno.models.spec import Spec
from dyno.store import fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.redis import Keys, async_client
from dyno.store.webhooks import Deliveries, DeliveryQueue
from tests.servers import KINDS, server_binary
from tests.store.fleets import worker_of

DEVICE = "cpu:0-1@alpha"


@pytest.fixture(scope="session", params=KINDS)
def redis_url(request):
    with EmbeddedServer(binary=server_binary(request.param)) as server:
        yield server.url


@pytest.fixture
def anyio_backend():
    return "asyncio"


@pytest.fixture
def keys(namespace):
    return Keys(namespace)


@pytest.fixture
async def async_redis(settings):
    async with async_client(settings) as client:
        yield client


@pytest.fixture
def jobs(async_redis, settings):
    return Jobs(async_redis, settings)


@pytest.fixture
def leases(client, settings):
    return Leases(client, settings)


@pytest.fixture
def outbox(async_redis, settings):
    return DeliveryQueue(async_redis, settings)


@pytest.fixture
def deliveries(async_redis, settings):
    return Deliveries(async_redis, settings)


@pytest.fixture
def over(client, keys):
    """End the pause before a job's next delivery, or the delivery's lease."""
    return lambda job_id: client.zadd(keys.webhooks_due, {job_id: 1}, xx=True)


@pytest.fixture
def a_spec():
    """A valid spec for a CPU, with any field replaced."""
    return lambda **fields: Spec.model_validate({"workload": "matmul", "device": "cpu"} | fields)


@pytest.fixture
def worker():
    return WorkerRef(id="worker-1", device="cpu:0-1", host="alpha")


@pytest.fixture
def claim(leases, worker):
    """Claim the next job for a device that serves the queues "cpu" and "any"."""
    return lambda device=DEVICE: leases.claim(device, ["cpu", "any"], worker)


@pytest.fixture
def offer(client, settings):
    """Publish a worker for each of these devices. `fields`: those of its record."""

    def offered(*devices, **fields):
        for one in devices:
            fleet.publish(client, settings, one, worker_of(one, **fields))

    return offered


@pytest.fixture
def run_out(client, keys):
    """Expire the lease of a device now."""

    def ran_out(device=DEVICE):
        client.hset(keys.lease(device), "expires_at_ms", 1)
        client.zadd(keys.leases, {device: 1})

    return ran_out


@pytest.fixture
def trusting(settings):
    """Settings under which expired leases are ended at once, even if the server has just started."""
    return settings.model_copy(update={"lease_s": 0.0})
