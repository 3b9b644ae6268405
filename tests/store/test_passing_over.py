"""Devices of one class but different sizes: a job that doesn't fit one waits, and doesn't block others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import redis

from dyno.models.job import Status, WorkerRef
from dyno.models.spec import Spec
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.placement import ClaimFilter
from dyno.store.redis import Keys

pytestmark = pytest.mark.anyio

SMALL, LARGE = "small0000000", "large0000000"
FOR_LARGE, FOR_BOTH = {SMALL: False, LARGE: True}, {SMALL: True, LARGE: True}


@pytest.fixture
def queue(jobs: Jobs, a_spec: Callable[..., Spec]) -> Callable[..., Any]:
    async def queued(fits: dict[str, bool] | None, **fields: Any) -> str:
        needs = {"params": {"n": 1 + sum((fits or {}).values())}}  # jobs with equal needs fit the same devices
        return (await jobs.submit(a_spec(**needs | fields), fits=fits)).job.id

    return queued


@pytest.fixture
def take(leases: Leases, worker: WorkerRef) -> Callable[..., Claim | None]:
    """Claim for a device of that profile. A fit check fails the test if the record has the answer."""

    def never(spec: Spec) -> bool:
        pytest.fail(f"asked about {spec}")

    def claimed(profile: str, fits: Callable[[Spec], bool] = never, device: str | None = None) -> Claim | None:
        return leases.claim(f"{device or profile}@alpha", ["cpu", "any"], worker, ClaimFilter(profile, fits))

    return claimed


@pytest.fixture
def done(take: Callable, leases: Leases) -> Callable[[str], str]:
    """Claim for a device of that profile, and finish; the job's id."""

    def finished(profile: str) -> str:
        claim = take(profile)
        assert leases.finish(claim, "succeed")
        return claim.job_id

    return finished


async def test_a_job_for_the_larger_device_waits_for_it_while_the_smaller_goes_on(
    jobs: Jobs, queue: Callable, take: Callable, done: Callable
) -> None:
    large = await queue(FOR_LARGE)
    others = [await queue(FOR_BOTH), await queue(FOR_BOTH, device="any")]

    assert [done(SMALL), done(SMALL)] == others
    assert take(SMALL) is None

    waiting = await jobs.get(large)
    assert (waiting.status, waiting.queue.position, waiting.queue.passed_over) == (Status.QUEUED, 0, True)
    assert (await jobs.list()).data[-1].queue == waiting.queue
    assert take(LARGE).job_id == large
    assert not (await jobs.get(large)).queue.passed_over


async def test_a_job_that_no_worker_has_passed_over_does_not_say_so(
    jobs: Jobs, queue: Callable, take: Callable
) -> None:
    await queue(FOR_LARGE)
    assert take(SMALL) is None
    assert not (await jobs.get(await queue(FOR_LARGE))).queue.passed_over


async def test_an_unknown_fit_is_checked_once_and_then_stored(queue: Callable, take: Callable) -> None:
    job_id = await queue({"another00000": True})
    asked: list[Spec] = []

    def no(spec: Spec) -> bool:
        asked.append(spec)
        return False

    assert take(SMALL, no) is None
    assert len(asked) == 1
    assert take(SMALL, device="its-twin") is None
    assert take(LARGE, lambda spec: True).job_id == job_id


async def test_the_fit_of_an_older_versions_record_is_checked(
    queue: Callable, take: Callable, client: redis.Redis, keys: Keys
) -> None:
    job_id = await queue(None)
    client.hdel(keys.job(job_id), "fits")
    assert take(SMALL, lambda spec: False) is None
    assert take(LARGE, lambda spec: True).job_id == job_id


async def test_the_last_job_that_was_passed_over_is_remembered_for_a_while(
    queue: Callable, take: Callable, done: Callable, client: redis.Redis, keys: Keys
) -> None:
    unfit = [await queue(FOR_LARGE) for _ in range(5)]
    fit = await queue(FOR_BOTH)
    assert done(SMALL) == fit

    assert 0 < client.pttl(keys.passed("cpu")) <= 60_000
    assert float(client.hget(keys.passed("cpu"), SMALL)) == client.zscore(keys.queue("cpu"), unfit[-1])


async def test_a_job_queued_in_front_of_those_passed_over_is_found(
    queue: Callable, take: Callable, done: Callable, leases: Leases
) -> None:
    back = await queue(FOR_BOTH)
    claim = take(LARGE)
    await queue(FOR_LARGE)
    assert take(SMALL) is None
    leases.requeue(claim, reason="shutdown", counts_attempt=False)
    assert done(SMALL) == back

    assert take(SMALL) is None
    urgent = await queue(FOR_BOTH, priority="high")
    assert take(SMALL).job_id == urgent


async def test_a_job_behind_those_that_fit_no_idle_worker_requests_one_wake_up(
    jobs: Jobs, a_spec: Callable[..., Spec], take: Callable
) -> None:
    large, both = a_spec(params={"n": 9}), a_spec()
    assert (await jobs.submit(large, fits=FOR_LARGE)).wake
    assert not (await jobs.submit(large, fits=FOR_LARGE)).wake
    assert take(SMALL) is None
    assert [(await jobs.submit(both, fits=FOR_BOTH)).wake for _ in range(3)] == [True, False, False]


async def test_an_empty_queue_leaves_nothing_behind(
    queue: Callable, take: Callable, jobs: Jobs, client: redis.Redis, keys: Keys
) -> None:
    job_id = await queue(FOR_LARGE)
    assert take(SMALL) is None
    assert client.exists(keys.passed("cpu"), keys.resting) == 2
    await jobs.cancel(job_id)
    assert client.exists(keys.passed("cpu"), keys.resting, keys.queues) == 0
