import pytest

from dyno.errors import StoreUnavailable
from dyno.models.job import Holder
from dyno.store import fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, async_client, sync_client
from tests.store.fleets import CPU as DEVICE
from tests.store.fleets import a_worker

pytestmark = pytest.mark.anyio


async def test_a_published_worker_is_listed_with_its_device_and_queue_length(
    client, async_redis, settings, jobs, a_spec
):
    for device in ("cpu", "any", "cpu:0-1", "gpu"):
        await jobs.submit(a_spec(device=device))
    fleet.publish(client, settings, DEVICE, a_worker(state="busy", job="job_1"))

    (device,) = await fleet.devices(async_redis, settings)
    (worker,) = await fleet.workers(async_redis, settings)

    assert (device.full_id, device.frameworks) == (DEVICE.full_id, DEVICE.frameworks)
    assert (device.state, device.queue_length, device.worker) == ("busy", 3, "worker-1")
    assert (worker.state, worker.job) == ("busy", "job_1")
    assert worker.last_heartbeat == device.last_heartbeat


async def test_a_worker_that_stops_reporting_is_forgotten(client, async_redis, settings, keys):
    fleet.publish(client, settings, DEVICE, a_worker())
    assert 0 < client.pttl(keys.worker("worker-1")) <= settings.device_ttl_s * 1000
    client.delete(keys.worker("worker-1"))  # its time is up
    assert await fleet.devices(async_redis, settings) == []
    assert await fleet.workers(async_redis, settings) == []
    assert client.smembers(keys.workers) == set()


async def test_a_worker_of_a_newer_version_hides_no_other(client, async_redis, settings, keys):
    fleet.publish(client, settings, DEVICE, a_worker("plain"))
    fleet.publish(client, settings, DEVICE, a_worker("strange"))
    record = client.get(keys.worker("strange")).replace('"idle"', '"dreaming"')
    client.set(keys.worker("strange"), record)
    assert [worker.id for worker in await fleet.workers(async_redis, settings)] == ["plain"]


async def test_a_withdrawn_worker_is_gone_at_once(client, async_redis, settings):
    fleet.publish(client, settings, DEVICE, a_worker())
    fleet.withdraw(client, settings, a_worker())
    assert await fleet.devices(async_redis, settings) == []


async def test_the_latest_heartbeat_wins_and_the_end_of_an_older_worker_changes_nothing(client, async_redis, settings):
    fleet.publish(client, settings, DEVICE, a_worker("zombie", state="busy"))
    fleet.publish(client, settings, DEVICE, a_worker("successor"))
    (device,) = await fleet.devices(async_redis, settings)
    assert device.worker == "successor"
    fleet.withdraw(client, settings, a_worker("zombie"))
    (device,) = await fleet.devices(async_redis, settings)
    assert device.worker == "successor"


async def test_a_heartbeat_extends_the_record_and_is_shown_as_the_latest(client, async_redis, settings, keys):
    worker = a_worker()
    assert not fleet.extend(client, settings, worker), "nothing is published yet"
    assert client.keys(f"{settings.namespace}:*") == []
    fleet.publish(client, settings, DEVICE, worker)
    record = client.get(keys.worker(worker.id))
    (first,) = await fleet.devices(async_redis, settings)
    client.pexpire(keys.worker(worker.id), 1000)
    assert fleet.extend(client, settings, worker)
    (device,) = await fleet.devices(async_redis, settings)
    assert device.last_heartbeat > first.last_heartbeat
    assert device == first.model_copy(update={"last_heartbeat": device.last_heartbeat})
    assert client.get(keys.worker(worker.id)) == record
    assert client.pttl(keys.worker(worker.id)) > settings.device_ttl_s * 900
    assert 0 < client.pttl(keys.worker_heartbeat(worker.id)) <= settings.device_ttl_s * 1000
    fleet.withdraw(client, settings, worker)
    assert client.keys(f"{settings.namespace}:*") == []


async def test_the_latest_heartbeat_of_two_unchanged_workers_wins(client, async_redis, settings):
    for name in ("zombie", "successor"):
        fleet.publish(client, settings, DEVICE, a_worker(name))
    assert fleet.extend(client, settings, a_worker("zombie"))
    (device,) = await fleet.devices(async_redis, settings)
    assert device.worker == "zombie"
    assert [found.full_id for found, _ in fleet.idle_devices(client, settings)] == [DEVICE.full_id] * 2


async def test_a_device_that_a_hung_runner_uses_is_cordoned_with_the_reason_while_it_does(
    client, async_redis, settings
):
    held = Holder(device=DEVICE.full_id, pid=77, command="python -m workers", job="job_1")
    fleet.publish(client, settings, DEVICE, a_worker(state="busy", held_by=held))
    (device,) = await fleet.devices(async_redis, settings)
    assert (device.cordoned, device.cordon_reason) == (False, None)
    assert await fleet.accepting_devices(async_redis, settings) == [(DEVICE, True)]

    hung = held.model_copy(update={"hung": True})
    fleet.publish(client, settings, DEVICE, a_worker(state="busy", held_by=hung))
    (device,) = await fleet.devices(async_redis, settings)
    assert (device.cordoned, device.cordon_reason, device.held_by) == (True, str(hung), hung)
    assert "process 77" in str(hung)
    assert await fleet.accepting_devices(async_redis, settings) == []

    fleet.publish(client, settings, DEVICE, a_worker())
    (device,) = await fleet.devices(async_redis, settings)
    assert (device.cordoned, device.cordon_reason) == (False, None)


async def test_a_worker_stays_listed_while_redis_is_full(settings):
    with EmbeddedServer() as server:
        there = settings.model_copy(update={"redis_url": server.url})
        async with async_client(there) as asynchronous:
            with sync_client(there) as client:
                fleet.publish(client, there, DEVICE, a_worker())
                client.config_set("maxmemory", 1)
                client.pexpire(Keys(there.namespace).worker("worker-1"), 1000)
                with pytest.raises(StoreUnavailable):
                    fleet.extend(client, there, a_worker())
                assert client.pttl(Keys(there.namespace).worker("worker-1")) > 1000
            assert [each.worker for each in await fleet.devices(asynchronous, there)] == ["worker-1"]
