from __future__ import annotations

import threading

import pytest

from dyno.errors import StoreUnavailable
from dyno.store import fleet
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.maintenance import Maintenance
from dyno.store.redis import Keys, async_client, sync_client
from tests.store.fleets import CPU, a_worker
from tests.waiting import eventually

DEVICE = "cpu:0-1@alpha"


@pytest.fixture
def quick(settings):
    return settings.model_copy(update={"reap_every_s": 0.02, "lease_s": 0.1})


@pytest.fixture(autouse=True)
def live(client, settings):
    """A worker."""
    fleet.publish(client, settings, CPU, a_worker())


@pytest.mark.anyio
async def test_a_waiting_queue_is_woken_repeatedly(quick, jobs, a_spec):
    woken: list[str] = []
    await jobs.submit(a_spec())
    maintenance = Maintenance(quick, woken.append)
    maintenance.start()
    eventually(lambda: woken == ["cpu"] * len(woken) and len(woken) >= 2)
    maintenance.stop()


@pytest.mark.anyio
async def test_a_lost_job_is_queued_again_and_its_queue_woken(quick, jobs, a_spec, claim, run_out, client, keys):
    woken = threading.Event()
    await jobs.submit(a_spec())
    attempt = claim()
    run_out()
    maintenance = Maintenance(quick, lambda queue: woken.set())
    maintenance.start()
    assert woken.wait(60)
    maintenance.stop()
    assert client.hget(keys.job(attempt.job_id), "status") == "queued"


@pytest.mark.anyio
async def test_a_failing_wake_up_does_not_stop_maintenance(quick, jobs, a_spec):
    tried: list[Exception] = []

    def failing(queue):
        tried.append(StoreUnavailable("away") if len(tried) % 2 else RuntimeError("a bug"))
        raise tried[-1]

    await jobs.submit(a_spec())
    maintenance = Maintenance(quick, failing)
    maintenance.start()
    eventually(lambda: len(tried) >= 4)
    maintenance.stop()


@pytest.mark.anyio
async def test_lost_jobs_are_reaped_while_a_full_redis_refuses_every_wake_up(quick, jobs, a_spec, claim, run_out):
    waiting = await jobs.submit(a_spec(device="any"))
    lost = await jobs.submit(a_spec(priority="high"))
    assert claim().job_id == lost.job.id

    def refused(queue):
        raise StoreUnavailable("OOM")

    with sync_client(quick) as client:
        maintenance = Maintenance(quick, refused)
        maintenance.start()
        run_out()
        eventually(lambda: client.hget(Keys(quick.namespace).job(lost.job.id), "status") == "queued")
        maintenance.stop()
    assert (await jobs.get(waiting.job.id)).status == "queued"


@pytest.mark.anyio
async def test_a_full_redis_does_not_prevent_the_next_attempt_of_a_lost_job(quick, a_spec, worker):
    with EmbeddedServer() as server:
        there = quick.model_copy(update={"redis_url": server.url})
        async with async_client(there) as asynchronous:
            jobs = Jobs(asynchronous, there)
            lost, waiting = [(await jobs.submit(a_spec())).job.id for _ in range(2)]
        with sync_client(there) as client:
            assert Leases(client, there).claim(DEVICE, ["cpu"], worker) is not None
            client.config_set("maxmemory", 1)
            maintenance = Maintenance(there, lambda queue: client.lpush(queue, "wake"))
            maintenance.start()
            keys = Keys(there.namespace)
            eventually(lambda: client.zrange(keys.queue("cpu"), 0, -1) == [lost, waiting])
            maintenance.stop()


@pytest.mark.anyio
async def test_a_queue_that_can_not_be_woken_does_not_block_others(settings, jobs, a_spec):
    woken: list[str] = []

    def wake(queue):
        if queue == "any":
            raise StoreUnavailable("OOM")
        woken.append(queue)

    await jobs.submit(a_spec(device="any"))
    await jobs.submit(a_spec(device="cpu"))
    maintenance = Maintenance(settings.model_copy(update={"reap_every_s": 60.0}), wake)  # one pass, then a long pause
    maintenance.start()
    eventually(lambda: "cpu" in woken)
    maintenance.stop()


def test_without_a_server_maintenance_waits_and_can_be_stopped(quick, tmp_path, caplog):
    maintenance = Maintenance(quick.model_copy(update={"redis_url": f"unix://{tmp_path / 'nothing.sock'}"}), print)
    maintenance.start()
    eventually(lambda: "maintenance is paused until Redis is back" in caplog.text)
    maintenance.stop()
    assert "maintenance" not in {thread.name for thread in threading.enumerate()}
