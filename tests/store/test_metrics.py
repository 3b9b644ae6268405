"""The scripts' counters: everything counts once, and errors in counts never block a job."""

import anyio
import pytest

from dyno.models.job import Failure, FailureClass, Status
from dyno.store import metrics as module
from dyno.store.maintenance import expire_leases
from dyno.store.metrics import OTHER, StoreMetrics, read_metrics
from dyno.store.redis import BOUNDS_S

pytestmark = pytest.mark.anyio

DEVICE = "cpu:0-1@alpha"


def of(found, *first):
    return {words[1:]: number for words, number in found.counts.items() if words[: len(first)] == first}


async def test_a_store_in_which_nothing_happened_has_counted_nothing(async_redis, settings):
    found = await read_metrics(async_redis, settings)
    assert (found.counts, found.queues, found.running, found.devices) == ({}, {}, [], [])
    assert found.jobs == dict.fromkeys(Status, 0)
    assert found.histogram("wait", "cpu") == ([0] * (len(BOUNDS_S["wait"]) + 1), 0)


async def test_each_end_of_a_job_is_counted_once_however_often_it_is_repeated(
    jobs, a_spec, claim, leases, async_redis, settings
):
    failure = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message='said "class":"resource"')
    for _ in range(4):
        await jobs.submit(a_spec())
    for outcome, why in (("succeed", None), ("fail", failure), ("stop", None)):
        held = claim()
        for _ in range(3):
            assert leases.finish(held, outcome, failure=why)
    waiting = await jobs.list(status=Status.QUEUED)
    for _ in range(2):
        await jobs.cancel(waiting.data[0].id)
    found = await read_metrics(async_redis, settings)
    assert of(found, "submitted") == {("matmul",): 4}
    assert of(found, "ended") == {
        ("matmul", "succeeded", "none"): 1,
        ("matmul", "failed", "timeout"): 1,
        ("matmul", "canceled", "none"): 2,
    }
    assert found.histogram("wait", "cpu")[0][-1] == 3
    assert found.histogram("attempt", "matmul")[0][-1] == 3
    assert of(found, "requeued") == of(found, "lost") == {}


async def test_an_attempt_without_an_outcome_is_counted_with_its_cause(
    jobs, a_spec, claim, leases, run_out, trusting, client, async_redis, settings
):
    await jobs.submit(a_spec())
    assert leases.requeue(claim(), reason="worker_shutdown", counts_attempt=False)
    claim()
    run_out()
    assert expire_leases(client, trusting)
    claim()
    run_out()
    assert expire_leases(client, trusting)
    await jobs.submit(a_spec())
    for _ in range(2):
        assert leases.requeue(claim(), reason="runner_not_started", counts_attempt=True)
    found = await read_metrics(async_redis, settings)
    assert of(found, "requeued") == {("handed_back",): 1, ("lost",): 1, ("infrastructure",): 1}
    assert of(found, "lost") == {("cpu",): 2}
    assert of(found, "ended") == {("matmul", "failed", "infrastructure"): 2}
    assert found.histogram("wait", "cpu")[0][-1] == found.histogram("attempt", "matmul")[0][-1] == 5


async def test_a_device_s_time_grows_while_it_works_and_never_goes_back(
    jobs, a_spec, claim, leases, async_redis, settings
):
    told = [0.0]

    def hand_back(held):
        return leases.requeue(held, reason="worker_shutdown", counts_attempt=False)

    for end in (lambda held: leases.finish(held, "succeed"), hand_back):
        await jobs.submit(a_spec())
        held = claim()
        with anyio.fail_after(60):
            while (now := await read_metrics(async_redis, settings)).busy_s("cpu") <= told[-1]:
                assert len(now.running) == 1
        told.append(now.busy_s("cpu"))
        assert end(held)
        done = await read_metrics(async_redis, settings)
        assert done.running == []
        told += [done.busy_s("cpu"), (await read_metrics(async_redis, settings)).busy_s("cpu")]
    assert told == sorted(told)
    assert (await read_metrics(async_redis, settings)).busy_s("gpu") == 0


async def test_the_sum_of_a_histogram_is_the_time_that_went_by(
    jobs, a_spec, claim, leases, client, keys, async_redis, settings
):
    job_id = (await jobs.submit(a_spec())).job.id
    seconds, _ = client.time()
    client.hset(keys.job(job_id), "queued_at", seconds - 400)
    held = claim()
    client.hset(keys.job(job_id), "started_at", seconds - 40)
    assert leases.finish(held, "succeed")
    found = await read_metrics(async_redis, settings)
    within, sum_s = found.histogram("wait", "cpu")
    assert 400 <= sum_s < 430
    assert dict(zip(BOUNDS_S["wait"], within, strict=False)) == {at: int(at >= 900) for at in BOUNDS_S["wait"]}
    within, sum_s = found.histogram("attempt", "matmul")
    assert 40 <= sum_s < 60
    assert dict(zip(BOUNDS_S["attempt"], within, strict=False)) == {at: int(at >= 60) for at in BOUNDS_S["attempt"]}
    assert 40 <= found.busy_s("cpu") < 60


async def test_an_error_in_a_count_does_not_block_a_job(jobs, a_spec, claim, leases, client, keys):
    client.set(keys.counts, "not a hash")
    job_id = (await jobs.submit(a_spec())).job.id
    assert leases.requeue(claim(), reason="worker_shutdown", counts_attempt=False)
    client.hdel(keys.job(job_id), "queued_at")
    held = claim()
    client.hdel(keys.job(job_id), "started_at")
    assert leases.finish(held, "succeed")
    assert client.hget(keys.job(job_id), "status") == "succeeded"
    assert client.zrange(keys.jobs_with_status("succeeded"), 0, -1) == [job_id]
    assert client.exists(keys.lease(DEVICE)) == 0


def test_readings_at_the_bounds_of_another_version_are_kept():
    counts = {("wait", "cpu", "0.2"): 2, ("wait", "cpu", "0.1"): 1, ("wait", "cpu", "1e9"): 1}
    counts["wait", "cpu", "inf"] = 1
    within, _ = StoreMetrics(0, counts, {}, {}, [], [], None, 0, 0, 0, True).histogram("wait", "cpu")
    assert within[:3] == [1, 3, 3]
    assert within[-2:] == [3, 5]


async def test_many_queues_share_a_name(jobs, a_spec, async_redis, settings, monkeypatch):
    monkeypatch.setattr(module, "MOST_QUEUES", 2)
    for name in ("cpu", "cpu:7@nowhere", "cpu:8@nowhere", "cpu", "gpu"):
        await jobs.submit(a_spec(device=name))
    assert (await read_metrics(async_redis, settings)).queues == {"cpu": 2, "gpu": 1, OTHER: 2}
