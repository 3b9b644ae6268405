"""Heartbeat, finish and hand-back: each needs the token, and each is idempotent."""

import pytest

from dyno.errors import NoResult, ResultNotReady
from dyno.models.job import MAX_ATTEMPTS, MAX_HAND_BACKS, WORKER_SHUTDOWN, Failure, FailureClass, Progress, Status
from dyno.store.leases import LogPiece
from dyno.store.maintenance import expire_leases
from dyno.store.stored_results import decompress, execute_raw
from tests.results import a_result

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0-1@alpha"


@pytest.fixture
def running(jobs, a_spec, claim):
    async def started(**fields):
        await jobs.submit(a_spec(**fields))
        return claim()

    return started


async def test_a_heartbeat_shows_the_progress_and_extends_the_lease(running, leases, jobs, client, keys, run_out):
    claim = await running()
    progress = Progress(phase="sampling", run=1, runs=5, completed=7, fraction=0.2)
    run_out()

    beat = leases.heartbeat(claim, progress)

    assert not beat.superseded
    job = await jobs.get(claim.job_id)
    assert job.progress == progress
    assert client.zscore(keys.leases, DEVICE) > client.time()[0] * 1000


@pytest.mark.parametrize("outcome", ["succeed", "fail", "stop", "exhaust"])
async def test_a_done_job_has_no_work_left(running, claim, leases, jobs, outcome):
    held = await running()
    if outcome == "exhaust":
        leases.requeue(held, reason="runner_crashed", counts_attempt=True)
        held = claim()
    progress = Progress(phase="sampling", run=3, runs=5, completed=7, fraction=0.67, eta_s=42.0)
    leases.heartbeat(held, progress)
    if outcome == "exhaust":
        leases.requeue(held, reason="runner_crashed", counts_attempt=True)
    else:
        leases.finish(held, outcome)
    job = await jobs.get(held.job_id)
    assert job.done
    assert job.progress == progress.model_copy(update={"fraction": 1.0, "eta_s": 0.0})


async def test_a_heartbeat_without_news_leaves_the_version_alone(running, leases, jobs):
    claim = await running()
    progress = Progress(phase="warmup", run=1, runs=5)
    leases.heartbeat(claim, progress)
    version = (await jobs.get(claim.job_id)).version
    leases.heartbeat(claim, progress)
    leases.heartbeat(claim, None)
    assert (await jobs.get(claim.job_id)).version == version


@pytest.mark.parametrize("device", [DEVICE, "cpu:2@beta"])
async def test_a_superseded_worker_is_notified_and_can_write_nothing(
    running, leases, claim, run_out, client, trusting, device
):
    zombie = await running()
    run_out()
    assert expire_leases(client, trusting) == [zombie.job_id]
    successor = claim(device)
    assert successor.job_id == zombie.job_id

    assert leases.heartbeat(zombie, Progress(phase="sampling", run=1, runs=5)).superseded
    assert not leases.finish(zombie, "succeed", result=a_result(zombie.job_id))
    assert not leases.requeue(zombie, reason="shutdown", counts_attempt=False)
    assert leases.finish(successor, "succeed")


async def test_a_heartbeat_tells_that_a_cancel_was_requested(running, leases, jobs):
    claim = await running()
    assert not leases.heartbeat(claim, None).cancel_requested
    await jobs.cancel(claim.job_id)
    assert leases.heartbeat(claim, None).cancel_requested


async def test_a_finished_job_has_its_result_and_frees_its_device(running, leases, jobs, client, keys):
    claim = await running()
    with pytest.raises(ResultNotReady, match="running"):
        await jobs.result(claim.job_id)

    assert leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=[{"samples": [0.1, 0.2]}])

    job = await jobs.get(claim.job_id)
    assert (job.status, job.done) == (Status.SUCCEEDED, True)
    assert job.finished_at is not None
    assert await jobs.result(claim.job_id) == a_result(claim.job_id)
    assert decompress(execute_raw(client, "GET", keys.samples(claim.job_id))) == '[{"samples":[0.1,0.2]}]'
    assert not client.exists(keys.lease(DEVICE), keys.leases)


async def test_a_failed_job_says_why_and_has_no_result(running, leases, jobs):
    claim = await running()
    failure = Failure(
        failure_class=FailureClass.RESOURCE, reason="out_of_memory", message="killed", signal=9, log_tail="…"
    )
    assert leases.finish(claim, "fail", status_reason="out_of_memory", failure=failure)
    job = await jobs.get(claim.job_id)
    assert (job.status, job.status_reason, job.failure) == (Status.FAILED, "out_of_memory", failure)
    with pytest.raises(NoResult, match="failed and has no result: out_of_memory: killed"):
        await jobs.result(claim.job_id)


async def test_all_keys_of_a_done_job_expire_as_requested(running, leases, client, keys):
    claim = await running(expires_in_s=600)
    leases.heartbeat(claim, None, LogPiece(0, "printed"))
    leases.finish(claim, "succeed", result=a_result(claim.job_id), samples=[])
    names = [keys.job, keys.result, keys.samples, keys.job_events, keys.log]
    assert all(590 < client.ttl(name(claim.job_id)) <= 600 for name in names)


async def test_a_job_handed_back_keeps_its_attempt_and_its_place_at_the_front(running, leases, jobs, a_spec, claim):
    first = await running()
    await jobs.submit(a_spec())
    assert leases.requeue(first, reason="shutdown", counts_attempt=False)
    assert leases.requeue(first, reason="shutdown", counts_attempt=False)

    job = await jobs.get(first.job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.QUEUED, "shutdown", 0)
    assert (job.worker, job.started_at, job.queue.position) == (None, None, 0)
    again = claim()
    assert (again.job_id, again.attempt) == (first.job_id, 1)
    assert (await jobs.get(first.job_id)).status_reason is None


async def test_hand_backs_of_workers_that_shut_down_count_as_attempts_in_the_end(
    running, leases, jobs, claim, client, keys
):
    attempt = await running()
    for _ in range(MAX_HAND_BACKS + MAX_ATTEMPTS - 1):
        for _ in range(2):
            assert leases.requeue(attempt, reason=WORKER_SHUTDOWN, counts_attempt=False)
        assert (await jobs.get(attempt.job_id)).status is Status.QUEUED
        attempt = claim()
    assert leases.requeue(attempt, reason=WORKER_SHUTDOWN, counts_attempt=False)
    job = await jobs.get(attempt.job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, WORKER_SHUTDOWN, MAX_ATTEMPTS)
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.reason) == (FailureClass.INFRASTRUCTURE, WORKER_SHUTDOWN)
    assert f"handed the job back {MAX_HAND_BACKS} times" in job.failure.message
    assert client.hget(keys.counts, "requeued handed_back") == str(MAX_HAND_BACKS + MAX_ATTEMPTS - 1)


async def test_a_job_handed_back_after_a_cancel_was_requested_is_canceled(running, leases, jobs, claim):
    attempt = await running()
    await jobs.cancel(attempt.job_id)
    assert leases.requeue(attempt, reason="shutdown", counts_attempt=False)
    assert (await jobs.get(attempt.job_id)).status is Status.CANCELED
    assert claim() is None
