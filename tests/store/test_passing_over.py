"""Devices of one class but different sizes: a job that doesn't fit one waits, and doesn't block others."""

from __future__ import annotations

import pytest

from dyno.models.job import Status
from dyno.store.placement import ClaimFilter

pytestmark = pytest.mark.anyio

SMALL, LARGE = "small0000000", "large0000000"
FOR_LARGE, FOR_BOTH = {SMALL: False, LARGE: True}, {SMALL: True, LARGE: True}


@pytest.fixture
def queue(jobs, a_spec):
    async def queued(fits, **fields):
        needs = {"params": {"n": 1 + sum((fits or {}).values())}}  # jobs with equal needs fit the same devices
        return (await jobs.submit(a_spec(**needs | fields), fits=fits)).job.id

    return queued


@pytest.fixture
def take(leases, worker):
    """Claim for a device of that profile. A fit check fails the test if the record has the answer."""

    def never(spec):
        pytest.fail(f"asked about {spec}")

    def claimed(profile, fits=never, device=None):
        return leases.claim(f"{device or profile}@alpha", ["cpu", "any"], worker, ClaimFilter(profile, fits))

    return claimed


@pytest.fixture
def done(take, leases):
    """Claim for a device of that profile, and finish; the job's id."""

    def finished(profile):
        claim = take(profile)
        assert leases.finish(claim, "succeed")
        return claim.job_id

    return finished


async def test_a_job_for_the_larger_device_waits_for_it_while_the_smaller_goes_on(jobs, queue, take, done):
    large = await queue(FOR_LARGE)
    others = [await queue(FOR_BOTH), await queue(FOR_BOTH, device="any")]

    assert [done(SMALL), done(SMALL)] == others
    assert take(SMALL) is None

    waiting = await jobs.get(large)
    assert (waiting.status, waiting.queue.position, waiting.queue.passed_over) == (Status.QUEUED, 0, True)
    assert (await jobs.list()).data[-1].queue == waiting.queue
    assert take(LARGE).job_id == large
    assert not (await jobs.get(large)).queue.passed_over


async def test_a_job_that_no_worker_has_passed_over_does_not_say_so(jobs, queue, take):
    await queue(FOR_LARGE)
    assert take(SMALL) is None
    assert not (await jobs.get(await queue(FOR_LARGE))).queue.passed_over


async def test_the_last_job_that_was_passed_over_is_remembered_for_a_while(queue, take, done, client, keys):
    unfit = [await queue(FOR_LARGE) for _ in range(5)]
    fit = await queue(FOR_BOTH)
    assert done(SMALL) == fit

    assert 0 < client.pttl(keys.passed("cpu")) <= 60_000
    assert float(client.hget(keys.passed("cpu"), SMALL)) == client.zscore(keys.queue("cpu"), unfit[-1])


async def test_a_job_queued_in_front_of_those_passed_over_is_found(queue, take, done, leases):
    back = await queue(FOR_BOTH)
    claim = take(LARGE)
    await queue(FOR_LARGE)
    assert take(SMALL) is None
    leases.requeue(claim, reason="shutdown", counts_attempt=False)
    assert done(SMALL) == back

    assert take(SMALL) is None
    urgent = await queue(FOR_BOTH, priority="high")
    assert take(SMALL).job_id == urgent


async def test_a_job_behind_those_that_fit_no_idle_worker_requests_one_wake_up(jobs, a_spec, take):
    large, both = a_spec(params={"n": 9}), a_spec()
    assert (await jobs.submit(large, fits=FOR_LARGE)).wake
    assert not (await jobs.submit(large, fits=FOR_LARGE)).wake
    assert take(SMALL) is None
    assert [(await jobs.submit(both, fits=FOR_BOTH)).wake for _ in range(3)] == [True, False, False]


async def test_an_empty_queue_leaves_nothing_behind(queue, take, jobs, client, keys):
    job_id = await queue(FOR_LARGE)
    assert take(SMALL) is None
    assert client.exists(keys.passed("cpu"), keys.resting) == 2
    await jobs.cancel(job_id)
    assert client.exists(keys.passed("cpu"), keys.resting, keys.queues) == 0
