"""A cordoned device claims nothing, and other devices get its jobs."""

import pytest

from dyno.models.job import Status
from dyno.store import fleet
from dyno.store.fleet import cordon, cordoned, uncordon
from dyno.store.placement import queues_served
from tests.store.fleets import gpu, worker_of

pytestmark = pytest.mark.anyio


FIRST, SECOND, THIRD = gpu(0), gpu(1), gpu(2)


@pytest.fixture
def take(leases, worker):
    return lambda one: leases.claim(one.full_id, queues_served(one), worker)


async def test_a_cordoned_device_claims_nothing_until_it_is_uncordoned(async_redis, settings, jobs, a_spec, take):
    await jobs.submit(a_spec(device="gpu"))
    for _ in range(2):
        await cordon(async_redis, settings, FIRST.full_id)
    assert take(FIRST) is None
    assert await cordoned(async_redis, settings) == {FIRST.full_id}
    await uncordon(async_redis, settings, FIRST.full_id)
    assert take(FIRST) is not None


async def test_other_devices_continue_to_claim(async_redis, settings, jobs, a_spec, take):
    await jobs.submit(a_spec(device="gpu"))
    await cordon(async_redis, settings, FIRST.full_id)
    assert take(SECOND) is not None


async def test_a_running_job_continues_when_its_device_is_cordoned(async_redis, settings, jobs, a_spec, take, leases):
    job_id = (await jobs.submit(a_spec(device="gpu"))).job.id
    claim = take(FIRST)
    await cordon(async_redis, settings, FIRST.full_id)
    assert not leases.heartbeat(claim, None).superseded
    assert leases.finish(claim, "succeed")
    assert (await jobs.get(job_id)).status is Status.SUCCEEDED


async def test_a_cordoned_device_forwards_its_wake_up_to_an_idle_one(
    async_redis, settings, jobs, a_spec, take, offer, leases
):
    """No worker has checked the job yet, and the next wake-up for it comes from maintenance."""
    offer(FIRST, SECOND)
    await cordon(async_redis, settings, FIRST.full_id)
    await jobs.submit(a_spec(device="gpu"))
    assert take(FIRST) is None
    assert leases.queues_to_notify(FIRST) == [SECOND.full_id]


async def test_a_wake_up_is_not_forwarded_to_another_cordoned_device(
    async_redis, settings, jobs, a_spec, offer, leases
):
    offer(FIRST, SECOND, THIRD)
    for one in (FIRST, SECOND, THIRD):
        await cordon(async_redis, settings, one.full_id)
    await jobs.submit(a_spec(device="gpu"))
    assert leases.queues_to_notify(FIRST) == []


async def test_the_fleet_lists_cordons_and_a_new_worker_does_not_lift_them(client, async_redis, settings, offer):
    await cordon(async_redis, settings, FIRST.full_id)
    for _ in range(2):
        offer(FIRST, SECOND)
        assert {one.id: one.cordoned for one in await fleet.devices(async_redis, settings)} == {
            "gpu:0": True,
            "gpu:1": False,
        }
        fleet.withdraw(client, settings, worker_of(FIRST))
