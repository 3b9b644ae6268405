"""Deleting a done job removes all its data; live jobs can't be deleted."""

from collections.abc import Callable

import pytest

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.errors import JobExpired, JobLive, UnknownJob
from dyno.models.api_key import Viewer
from dyno.models.job import new_job_id
from dyno.models.spec import Spec
from dyno.store.artifacts import SETTLED_S
from dyno.store.leases import LogPiece
from tests.results import a_result
from tests.store.contents import contents

pytestmark = pytest.mark.anyio

ASpec = Callable[..., Spec]


def traces(client, keys, job_id):
    """The job's keys and all entries with its id, except those in the stream of all jobs, which readers skip."""
    held = contents(client, keys.namespace)
    return [name for name, text in held.items() if name != keys.events and (job_id in name or job_id in text)]


@pytest.mark.parametrize("outcome", ["succeed", "fail", "stop"])
async def test_a_done_job_is_deleted_from_every_key_and_index_and_no_other_is(
    jobs, a_spec, claim, leases, client, keys, outcome
):
    for _ in range(2):
        await jobs.submit(a_spec())
    gone, kept = claim(), claim("cpu:2@alpha")
    for each in (gone, kept):
        leases.heartbeat(each, None, LogPiece(0, "printed"))
        result = a_result(each.job_id) if outcome == "succeed" else None
        assert leases.finish(each, outcome, result=result, samples=result and [])
    await jobs.delete(gone.job_id)
    assert traces(client, keys, gone.job_id) == []
    assert list(state_violations(read(client, keys))) == []
    assert (await jobs.get(kept.job_id)).done
    with pytest.raises(UnknownJob):
        await jobs.delete(gone.job_id)


async def test_deleting_a_job_with_an_owner_leaves_nothing(jobs, a_spec, client, keys):
    mine = jobs.seen_by(Viewer("key_aaaaaaaaaaaaaaaa", sees_all=False))
    gone, kept = [(await mine.submit(a_spec())).job.id for _ in range(2)]
    await mine.cancel(gone)
    await mine.delete(gone)
    assert traces(client, keys, gone) == []
    assert client.zrange(keys.jobs_of_owner("key_aaaaaaaaaaaaaaaa"), 0, -1) == [kept]


async def test_a_live_job_is_refused_and_left_as_it_is(jobs, a_spec, claim):
    running = (await jobs.submit(a_spec())).job
    attempt = claim()
    waiting = (await jobs.submit(a_spec())).job
    for job, status in ((running, "running"), (waiting, "queued")):
        with pytest.raises(JobLive, match=status):
            await jobs.delete(job.id)
        assert (await jobs.get(job.id)).status == status
    assert attempt.job_id == running.id


async def test_deleting_an_unknown_job_is_refused(jobs):
    for job_id in (new_job_id(), "*"):
        with pytest.raises(UnknownJob):
            await jobs.delete(job_id)


async def test_its_idempotency_key_makes_no_second_job(jobs, a_spec):
    job = (await jobs.submit(a_spec(), idempotency_key="one", body_sha256="b")).job
    await jobs.cancel(job.id)
    await jobs.delete(job.id)
    with pytest.raises(JobExpired):
        await jobs.submit(a_spec(), idempotency_key="one", body_sha256="b")


async def test_a_late_call_of_a_superseded_attempt_does_not_restore_a_deleted_job(
    jobs, a_spec, claim, leases, client, keys
):
    await jobs.submit(a_spec())
    attempt = claim()
    leases.finish(attempt, "fail")
    await jobs.delete(attempt.job_id)
    assert leases.heartbeat(attempt, None).superseded
    assert not leases.finish(attempt, "succeed", result=a_result(attempt.job_id))
    assert not leases.requeue(attempt, reason="late", counts_attempt=True)
    assert traces(client, keys, attempt.job_id) == []


@pytest.mark.parametrize(("ended_s_ago", "due_in_s"), [(0, SETTLED_S), (SETTLED_S - 600, 600), (2 * SETTLED_S, 0)])
async def test_files_of_a_deleted_job_are_due_once_uploads_have_ended(
    jobs, a_spec, client, keys, ended_s_ago, due_in_s
):
    job = (await jobs.submit(a_spec())).job
    await jobs.cancel(job.id)
    now_s = client.time()[0]
    client.hset(keys.job(job.id), "finished_at", now_s - ended_s_ago)
    client.zadd(keys.artifacts, {job.id: 10**15})
    await jobs.delete(job.id)
    due_ms = client.zscore(keys.artifacts, job.id)
    assert due_ms is not None
    assert float(due_ms) / 1000 - now_s == pytest.approx(due_in_s, abs=60)


async def test_a_job_that_left_no_file_is_in_no_list_of_files(jobs, a_spec, client, keys):
    job = (await jobs.submit(a_spec())).job
    await jobs.cancel(job.id)
    await jobs.delete(job.id)
    assert not client.exists(keys.artifacts)
