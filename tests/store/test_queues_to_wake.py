import pytest

from dyno.store import fleet
from dyno.store.maintenance import queues_to_wake
from tests.store.fleets import CPU, a_worker

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def live(client, settings):
    """A worker."""
    fleet.publish(client, settings, CPU, a_worker())


async def test_queues_with_jobs_are_returned_once_per_interval(jobs, a_spec, client, settings, keys):
    assert queues_to_wake(client, settings) == []
    await jobs.submit(a_spec())
    await jobs.submit(a_spec(device="any"))

    assert queues_to_wake(client, settings) == ["any", "cpu"]
    assert queues_to_wake(client, settings) == []
    assert 0 < client.pttl(keys.woken("cpu")) <= settings.reap_every_s * 1000
    client.delete(keys.woken("cpu"))  # its time is up
    assert queues_to_wake(client, settings) == ["cpu"]


async def test_a_job_that_comes_back_has_its_queue_named_at_once(jobs, a_spec, claim, leases, client, settings):
    await jobs.submit(a_spec())
    assert queues_to_wake(client, settings) == ["cpu"]
    leases.requeue(claim(), reason="shutdown", counts_attempt=False)
    assert queues_to_wake(client, settings) == ["cpu"]


async def test_a_queue_whose_last_job_was_claimed_is_not_named(jobs, a_spec, claim, client, settings):
    await jobs.submit(a_spec())
    claim()
    assert queues_to_wake(client, settings) == []


async def test_queues_for_nonexistent_devices_are_not_woken(jobs, a_spec, client, settings, keys):
    for number in range(2, 8):
        await jobs.submit(a_spec(device=f"cpu:{number}@nowhere"))
    for device in ("any", "cpu", CPU.full_id):
        await jobs.submit(a_spec(device=device))

    assert queues_to_wake(client, settings) == ["any", "cpu", CPU.full_id]
    assert len(list(client.scan_iter(keys.woken("*")))) == 3
