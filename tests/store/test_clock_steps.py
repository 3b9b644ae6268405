"""The clock of Redis' host steps back by an hour, on a real server: nothing is blocked for as long."""

import time
from datetime import timedelta

import pytest

from dyno.errors import LimitReached
from dyno.models.api_key import Limits, NewKey, Scope
from dyno.models.webhook import DeliveryStatus
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.alarms import AlarmRecords
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import EmbeddedServer
from dyno.store.leases import Leases
from dyno.store.maintenance import Maintenance, expire_leases, queues_to_wake, shorten_leases
from dyno.store.redis import Keys, async_client, sync_client
from tests.deliveries import REFUSED, URL, canceled, taken
from tests.server_clock import ServerClock
from tests.servers import KINDS, server_binary
from tests.store.fleets import CPU, a_worker
from tests.waiting import eventually

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0-1@alpha"
BACK = -timedelta(hours=1)


@pytest.fixture(params=KINDS)
def clock(request, tmp_path):
    return ServerClock(tmp_path, server_binary(request.param))


@pytest.fixture
def settings(clock, namespace, tmp_path):
    with EmbeddedServer(tmp_path / "data", clock.binary) as server:
        yield Settings(redis_url=server.url, namespace=namespace, reap_every_s=0.05, lease_s=4.0, device_ttl_s=1.0)


@pytest.fixture
def client(settings):
    with sync_client(settings) as client:
        yield client


@pytest.fixture
async def async_redis(settings):
    async with async_client(settings) as client:
        yield client


@pytest.fixture
async def running(jobs, a_spec, leases, worker):
    """A job that a worker has just claimed."""
    await jobs.submit(a_spec())
    attempt = leases.claim(DEVICE, ["cpu"], worker)
    assert attempt is not None
    return attempt


@pytest.fixture
def maintained(settings):
    """Maintenance runs, as in each process."""
    upkeep = Maintenance(settings, lambda queue: None)
    upkeep.start()
    yield
    upkeep.stop()


async def test_the_job_of_a_dead_worker_is_queued_again_within_two_leases(running, clock, client, keys, maintained):
    clock.forward(BACK)
    eventually(lambda: client.hget(keys.job(running.job_id), "status") == "queued", within_s=30)
    assert client.hget(keys.job(running.job_id), "status_reason") == "worker_lost"
    assert not client.exists(keys.lease(DEVICE))


async def test_a_live_worker_keeps_its_job(running, clock, leases, settings, maintained):
    def beats_for(leases_s):
        assert not leases.heartbeat(running, None).superseded
        return time.monotonic() > began_s + leases_s

    clock.forward(BACK)
    began_s = time.monotonic()
    eventually(lambda: beats_for(2 * settings.lease_s))
    assert leases.finish(running, "succeed")


async def test_only_leases_of_the_future_are_shortened_and_once(running, clock, leases, client, keys, settings):
    usual = settings.model_copy(update={"lease_s": 30.0})
    assert Leases(client, usual).heartbeat(running, None).superseded is False
    assert shorten_leases(client, usual) == []
    clock.forward(BACK)
    assert shorten_leases(client, usual) == [DEVICE]
    left_ms = client.zscore(keys.leases, DEVICE) - client.time()[0] * 1000
    assert 0 < left_ms <= 31_000
    assert float(client.hget(keys.lease(DEVICE), "expires_at_ms")) == client.zscore(keys.leases, DEVICE)
    assert shorten_leases(client, usual) == []
    assert expire_leases(client, usual) == []


async def test_a_lease_longer_than_this_processs_own_is_left_alone(running, clock, client, keys, settings):
    patient = settings.model_copy(update={"lease_s": 600.0})
    assert not Leases(client, patient).heartbeat(running, None).superseded
    assert shorten_leases(client, settings) == []
    client.delete(keys.lease(DEVICE))
    assert shorten_leases(client, settings) == [DEVICE]


async def test_a_dead_worker_is_no_longer_listed_and_a_live_one_is(clock, client, async_redis, settings):
    dead, live = a_worker("dead"), a_worker("live")
    for worker in (dead, live):
        fleet.publish(client, settings, CPU, worker)
    clock.forward(BACK)
    assert fleet.extend(client, settings, live)
    assert fleet.end_future_records(client, settings) == ["dead"]

    def listed():
        assert fleet.extend(client, settings, live) or fleet.publish(client, settings, CPU, live) is None
        fleet.end_future_records(client, settings)
        return {name for name in ("dead", "live") if client.exists(Keys(settings.namespace).worker(name))}

    eventually(lambda: listed() == {"live"}, within_s=30)
    (device,) = await fleet.devices(async_redis, settings)
    assert device.worker == "live"
    assert device.last_heartbeat.timestamp() < time.time() - 1800, "by the clock of Redis' host"


async def test_a_waiting_queue_is_woken_again(clock, client, settings, jobs, a_spec):
    rarely = settings.model_copy(update={"reap_every_s": 60.0, "device_ttl_s": 600.0})
    fleet.publish(client, rarely, CPU, a_worker())
    await jobs.submit(a_spec())
    assert [queues_to_wake(client, rarely) for _ in range(2)] == [["cpu"], []]
    clock.forward(BACK)
    assert [queues_to_wake(client, rarely) for _ in range(2)] == [["cpu"], []]


async def test_a_key_with_a_limit_on_requests_is_admitted(clock, async_redis, settings):
    api_keys = ApiKeys(async_redis, settings)
    _, secret = await api_keys.create(NewKey(name="ci", scope=Scope.SUBMIT, limits=Limits(requests_per_s=1)))

    async def admit_until_refused():
        while True:
            await api_keys.admit(secret)

    with pytest.raises(LimitReached):
        await admit_until_refused()
    clock.forward(BACK)
    assert await api_keys.admit(secret) is not None


async def test_a_webhook_is_sent_again_after_its_pause_and_after_a_lost_attempt(clock, jobs, a_spec, outbox):
    refused, lost = [await canceled(jobs, a_spec(webhook=URL)) for _ in range(2)]
    first, _ = [await taken(outbox) for _ in range(2)]
    assert first.job_id == refused
    assert await outbox.settle(first, REFUSED, DeliveryStatus.PENDING, again_in_s=60)
    clock.forward(BACK)
    assert await outbox.take() is None
    clock.forward(timedelta(seconds=50))
    assert (await taken(outbox)).job_id == lost, "its lease took 30 s"
    assert await outbox.take() is None
    clock.forward(timedelta(seconds=20))
    assert (await taken(outbox)).job_id == refused
    assert await outbox.take() is None


async def test_the_host_name_of_a_machine_that_is_gone_is_free(clock, client, settings):
    assert fleet.claim_host(client, settings, "alpha", "gone")
    clock.forward(BACK)
    assert not fleet.claim_host(client, settings, "alpha", "its successor")
    clock.forward(timedelta(seconds=2 * settings.device_ttl_s + 1))
    assert fleet.claim_host(client, settings, "alpha", "its successor")


async def test_alarms_are_looked_for_again(clock, async_redis, settings):
    records = AlarmRecords(async_redis, settings)
    assert [await records.take_turn(60) for _ in range(2)] == [True, False]
    clock.forward(BACK)
    assert not await records.take_turn(60)
    clock.forward(timedelta(seconds=61))
    assert await records.take_turn(60)
