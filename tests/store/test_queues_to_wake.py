from __future__ import annotations

from collections.abc import Callable

import pytest
import redis

from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.maintenance import queues_to_wake
from dyno.store.redis import Keys
from tests.store.test_fleet import DEVICE, a_worker

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def live(client: redis.Redis, settings: Settings) -> None:
    """A worker."""
    fleet.publish(client, settings, DEVICE, a_worker())


async def test_queues_with_jobs_are_returned_once_per_interval(
    jobs: Jobs, a_spec: Callable[..., Spec], client: redis.Redis, settings: Settings, keys: Keys
) -> None:
    assert queues_to_wake(client, settings) == []
    await jobs.submit(a_spec())
    await jobs.submit(a_spec(device="any"))

    assert queues_to_wake(client, settings) == ["any", "cpu"]
    assert queues_to_wake(client, settings) == []
    assert 0 < client.pttl(keys.woken("cpu")) <= settings.reap_every_s * 1000
    client.delete(keys.woken("cpu"))  # its time is up
    assert queues_to_wake(client, settings) == ["cpu"]


async def test_a_job_that_comes_back_has_its_queue_named_at_once(
    jobs: Jobs,
    a_spec: Callable[..., Spec],
    claim: Callable,
    leases: Leases,
    client: redis.Redis,
    settings: Settings,
) -> None:
    await jobs.submit(a_spec())
    assert queues_to_wake(client, settings) == ["cpu"]
    leases.requeue(claim(), reason="shutdown", counts_attempt=False)
    assert queues_to_wake(client, settings) == ["cpu"]


async def test_a_queue_whose_last_job_was_claimed_is_not_named(
    jobs: Jobs, a_spec: Callable[..., Spec], claim: Callable, client: redis.Redis, settings: Settings
) -> None:
    await jobs.submit(a_spec())
    claim()
    assert queues_to_wake(client, settings) == []


async def test_queues_for_nonexistent_devices_are_not_woken(
    jobs: Jobs, a_spec: Callable[..., Spec], client: redis.Redis, settings: Settings, keys: Keys
) -> None:
    for number in range(2, 8):
        await jobs.submit(a_spec(device=f"cpu:{number}@nowhere"))
    for device in ("any", "cpu", DEVICE.full_id):
        await jobs.submit(a_spec(device=device))

    assert queues_to_wake(client, settings) == ["any", "cpu", DEVICE.full_id]
    assert len(list(client.scan_iter(keys.woken("*")))) == 3
