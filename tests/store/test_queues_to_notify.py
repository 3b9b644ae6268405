"""Which workers get a wake-up forwarded by a device that none of the waiting jobs fits."""

import pytest

from dyno.models.job import SCHEMA
from dyno.store.placement import DYNO_VERSION, ClaimFilter, profile, queues_served
from tests.store.fleets import gpu

pytestmark = pytest.mark.anyio


SMALL, LARGE, TWIN = gpu(0), gpu(1, memory_bytes=9), gpu(2, memory_bytes=9)


@pytest.fixture
def take(leases, worker):
    """Claim; a job needs as many bytes as its `n` says."""

    def claimed(device, version=DYNO_VERSION):
        taker = ClaimFilter(profile(device, version), lambda spec: spec.params["n"] <= device.memory_bytes)
        return leases.claim(device.full_id, queues_served(device), worker, taker)

    return claimed


@pytest.fixture
async def for_nine(jobs, a_spec):
    """A job that needs nine bytes."""
    return (await jobs.submit(a_spec(device="gpu", params={"n": 9}))).job.id


async def test_an_idle_device_that_has_not_checked_the_jobs_is_woken_through_its_own_queue(
    leases, for_nine, offer, take
):
    offer(SMALL, LARGE)
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == ["gpu:1@alpha"]


async def test_of_equal_devices_the_one_with_the_latest_heartbeat_is_woken(leases, for_nine, offer, take):
    offer(LARGE, SMALL, TWIN)
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == ["gpu:2@alpha"]
    offer(LARGE)
    assert leases.queues_to_notify(SMALL) == ["gpu:1@alpha"]


async def test_busy_devices_and_those_of_other_queues_are_not_woken(leases, for_nine, offer, take):
    offer(SMALL)
    offer(LARGE, state="busy")
    offer(TWIN.model_copy(update={"kind": "tpu", "id": "tpu:0"}))
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == []


async def test_if_all_devices_have_checked_the_jobs_none_is_woken(leases, jobs, a_spec, offer, take):
    offer(SMALL, LARGE)
    await jobs.submit(a_spec(device="gpu", params={"n": 10}))
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == ["gpu:1@alpha"]
    assert take(LARGE) is None
    assert leases.queues_to_notify(LARGE) == leases.queues_to_notify(SMALL) == []


async def test_checks_by_a_worker_of_another_version_count_separately(leases, for_nine, offer, take):
    offer(SMALL)
    offer(TWIN.model_copy(update={"memory_bytes": 1}), version="0.0")
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == ["gpu:2@alpha"]
    assert take(TWIN.model_copy(update={"memory_bytes": 1}), "0.0") is None
    assert leases.queues_to_notify(SMALL) == []


async def test_a_worker_of_another_version_is_woken_for_a_job_of_a_newer_schema(
    leases, for_nine, client, keys, offer, take
):
    client.hset(keys.job(for_nine), "schema", SCHEMA + 1)
    offer(LARGE)
    offer(TWIN, version="later")
    assert take(LARGE) is None
    assert leases.queues_to_notify(LARGE) == ["gpu:2@alpha"]


async def test_a_device_that_has_not_checked_the_jobs_wakes_no_other(leases, for_nine, jobs, a_spec, offer, take):
    offer(SMALL, LARGE)
    await jobs.submit(a_spec(device="gpu", params={"n": 1}))
    assert take(SMALL) is not None
    await jobs.submit(a_spec(device="gpu", params={"n": 9}))
    assert take(SMALL) is None  # its lease stands
    assert leases.queues_to_notify(SMALL) == []


async def test_without_waiting_jobs_no_device_is_woken(leases, offer, take):
    offer(SMALL, LARGE)
    assert take(SMALL) is None
    assert leases.queues_to_notify(SMALL) == []
