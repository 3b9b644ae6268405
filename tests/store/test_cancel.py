import pytest

from dyno.errors import JobFinished
from dyno.models.job import Status

pytestmark = pytest.mark.anyio


async def test_a_waiting_job_is_canceled_at_once_and_leaves_its_queue(jobs, a_spec, client, keys):
    job = (await jobs.submit(a_spec())).job
    canceled = await jobs.cancel(job.id)
    assert canceled.changed
    assert (canceled.job.status, canceled.job.done) == (Status.CANCELED, True)
    assert canceled.job.finished_at is not None
    assert client.zcard(keys.queue("cpu")) == 0
    assert client.smembers(keys.queues) == set()


@pytest.mark.parametrize("claimed", [False, True])
async def test_a_repeated_cancel_changes_nothing(jobs, a_spec, claim, claimed):
    job = (await jobs.submit(a_spec())).job
    if claimed:
        claim()
    first = await jobs.cancel(job.id)
    second = await jobs.cancel(job.id)
    assert not second.changed
    assert second.job == first.job


@pytest.mark.parametrize("outcome", ["succeed", "fail"])
async def test_a_job_that_ended_by_itself_can_not_be_canceled(jobs, a_spec, claim, leases, outcome):
    await jobs.submit(a_spec())
    attempt = claim()
    leases.finish(attempt, outcome)
    with pytest.raises(JobFinished):
        await jobs.cancel(attempt.job_id)
