"""Sweeps in the store: all jobs in one step or none, limits of keys, repeated calls, owners and the cancel."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import redis
import redis.asyncio
from redis.client import Pipeline

from dyno.errors import (
    IdempotencyKeyReused,
    JobExpired,
    LimitReached,
    QueueFull,
    StoreUnavailable,
    SweepFinished,
    UnknownSweep,
)
from dyno.models.api_key import Viewer
from dyno.models.job import Status, new_job_id
from dyno.models.sweep import Stop, StoredPoint, SweepRecord, new_sweep_id
from dyno.store.eta import Forecast
from dyno.store.jobs import Jobs
from dyno.store.redis import Keys
from dyno.store.sweeps import NewJob, Sweeps, drop_empty

pytestmark = pytest.mark.anyio

OWNER, OTHER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"


@pytest.fixture
def sweeps(async_redis, settings, jobs):
    return Sweeps(async_redis, settings, jobs)


@pytest.fixture
def mine(async_redis, settings, jobs):
    return Sweeps(async_redis, settings, jobs.seen_by(Viewer(OWNER, sees_all=False)))


def planned(spec, count=3):
    new = [NewJob(new_job_id(), spec, [], {}) for _ in range(count)]
    points = [StoredPoint(values={"params.n": place}, jobs=[job.id]) for place, job in enumerate(new)]
    axes: Any = {"params.n": list(range(count))}
    return SweepRecord(workload="matmul", metric="throughput", axes=axes, points=points), new


def left(client, settings):
    """All keys of the namespace."""
    return sorted(map(str, client.scan_iter(f"{settings.namespace}:*")))


async def test_all_jobs_are_queued_in_the_given_order_with_the_sweep(sweeps, jobs, a_spec, claim):
    record, new = planned(a_spec(), 5)
    sweep_id = new_sweep_id()
    assert await sweeps.submit(sweep_id, record, new) == (sweep_id, False)
    stored = await sweeps.get(sweep_id)
    assert (stored.record, stored.owner, stored.cancel_requested_at) == (record, None, None)
    assert await sweeps.statuses([stored]) == [["queued"] * 5]
    read = [job for job in await jobs.read_all(stored.job_ids) if job]
    assert [(job.id, job.queue.position) for job in read] == [(job.id, place) for place, job in enumerate(new)]
    assert [claim(f"cpu:{place}@alpha").job_id for place in range(5)] == [job.id for job in new]


async def test_a_repeated_call_queues_no_job_again_and_is_not_refused(async_redis, settings, a_spec):
    """The client repeats a call whose reply was lost."""
    limited = settings.model_copy(update={"max_queued": 3})
    jobs = Jobs(async_redis, limited)
    sweeps = Sweeps(async_redis, limited, jobs)
    record, new = planned(a_spec())
    sweep_id = new_sweep_id()
    told = await asyncio.gather(*(sweeps.submit(sweep_id, record, new) for _ in range(5)))
    assert set(told) == {(sweep_id, False)}
    assert len((await jobs.list()).data) == 3


async def test_requests_with_one_key_make_one_sweep(sweeps, jobs, a_spec):
    async def one():
        record, new = planned(a_spec())
        return await sweeps.submit(new_sweep_id(), record, new, idempotency_key="k", body_sha256="b")

    told = await asyncio.gather(*(one() for _ in range(10)))
    [sweep_id] = {each for each, _ in told}
    assert [replayed for _, replayed in told].count(False) == 1
    assert len((await jobs.list()).data) == 3
    assert await sweeps.earlier("k", "b") == sweep_id
    assert await sweeps.earlier("k", "another") is None
    record, new = planned(a_spec())
    with pytest.raises(IdempotencyKeyReused):
        await sweeps.submit(new_sweep_id(), record, new, idempotency_key="k", body_sha256="another")
    with pytest.raises(IdempotencyKeyReused):
        await jobs.submit(a_spec(), idempotency_key="k", body_sha256="another")


async def test_a_key_of_a_job_makes_no_sweep(sweeps, jobs, a_spec):
    await jobs.submit(a_spec(), idempotency_key="k", body_sha256="of the job")
    record, new = planned(a_spec())
    with pytest.raises(IdempotencyKeyReused):
        await sweeps.submit(new_sweep_id(), record, new, idempotency_key="k", body_sha256="b")
    assert await sweeps.earlier("k", "of the job") is None


async def test_a_key_whose_sweep_is_gone_makes_no_second_one(sweeps, a_spec, client, keys):
    record, new = planned(a_spec())
    sweep_id, _ = await sweeps.submit(new_sweep_id(), record, new, idempotency_key="k", body_sha256="b")
    client.delete(keys.sweep(sweep_id))
    with pytest.raises(JobExpired):
        await sweeps.submit(new_sweep_id(), record, new, idempotency_key="k", body_sha256="b")


@pytest.mark.parametrize(
    ("limits", "settings_", "refusal"),
    [
        ({"queued_jobs": 3}, {}, LimitReached),
        ({"device_s_per_day": 0}, {}, LimitReached),
        ({}, {"max_queued": 10, "key_queue_share": 0.3}, LimitReached),
        ({}, {"max_queued": 3, "key_queue_share": 1.0}, QueueFull),
    ],
)
async def test_a_limit_refuses_the_whole_sweep(async_redis, settings, a_spec, client, keys, limits, settings_, refusal):
    client.hset(keys.api_key(OWNER), mapping={"name": "ci", **limits})
    changed = settings.model_copy(update=settings_)
    jobs = Jobs(async_redis, changed).seen_by(Viewer(OWNER, sees_all=False))
    before = left(client, settings)
    record, new = planned(a_spec(), 4)
    with pytest.raises(refusal, match="the sweep has 4 jobs"):
        await Sweeps(async_redis, changed, jobs).submit(new_sweep_id(), record, new, idempotency_key="k")
    assert left(client, settings) == before
    if "device_s_per_day" not in limits:
        record, new = planned(a_spec(), 3)
        await Sweeps(async_redis, changed, jobs).submit(new_sweep_id(), record, new, idempotency_key="k")
        assert client.zcard(keys.queued_of_owner(OWNER)) == 3


async def test_only_queued_jobs_count_towards_the_limit(mine, a_spec, client, keys):
    client.hset(keys.api_key(OWNER), mapping={"name": "ci", "queued_jobs": 3})
    client.zadd(keys.queued_of_owner(OWNER), {new_job_id(): 1})  # left by damage
    record, new = planned(a_spec(), 3)
    await mine.submit(new_sweep_id(), record, new)
    assert client.zcard(keys.queued_of_owner(OWNER)) == 3


async def test_a_cancel_ends_all_jobs_that_are_not_done(sweeps, jobs, a_spec, claim, leases):
    record, new = planned(a_spec(), 4)
    sweep_id, _ = await sweeps.submit(new_sweep_id(), record, new)
    assert leases.finish(claim(), "fail")
    running = claim()
    await jobs.delete(new[0].id)
    canceled = await sweeps.cancel(sweep_id)
    assert canceled.cancel_requested_at is not None
    assert await sweeps.statuses([canceled]) == [["gone", "running", "canceled", "canceled"]]
    assert leases.heartbeat(running, None).cancel_requested
    assert await sweeps.cancel(sweep_id) == canceled
    assert leases.finish(running, "stop")
    assert await sweeps.cancel(sweep_id) == canceled


async def test_a_sweep_whose_jobs_are_done_is_not_canceled(sweeps, jobs, a_spec):
    record, new = planned(a_spec(), 2)
    sweep_id, _ = await sweeps.submit(new_sweep_id(), record, new)
    for job in new:
        await jobs.cancel(job.id)
    with pytest.raises(SweepFinished):
        await sweeps.cancel(sweep_id)
    assert (await sweeps.get(sweep_id)).cancel_requested_at is None


async def test_a_point_is_stopped_once(sweeps, jobs, a_spec, claim, client, keys):
    """Its waiting jobs are canceled, and a running one goes on."""
    record, new = planned(a_spec(), 4)
    points = [StoredPoint(values={"params.n": place}, jobs=[job.id for job in new[place::2]]) for place in (0, 1)]
    changed = record.model_copy(update={"points": points, "rounds": 2, "stop_hopeless": True})
    sweep_id, _ = await sweeps.submit(new_sweep_id(), changed, new)
    assert [each.id for each in await sweeps.watched()] == [sweep_id]
    running, why = claim(), Stop(reason="hopeless", by=1, bound=1.0, best_bound=3.0)
    assert running.job_id == new[0].id
    stored = await sweeps.get(sweep_id)
    assert [await sweeps.stop(stored, 0, each) for each in (why, Stop(reason="out_of_memory", by=0))] == [True, False]
    assert await sweeps.statuses([stored]) == [["running", "canceled", "queued", "queued"]]
    assert (await sweeps.get(sweep_id)).stopped == {0: why}
    client.delete(keys.sweep(sweep_id))
    assert await sweeps.stop(stored, 1, why) is False
    assert not client.exists(keys.sweep(sweep_id))


async def test_a_sweep_that_stops_nothing_is_not_watched(sweeps, a_spec):
    await sweeps.submit(new_sweep_id(), *planned(a_spec()))
    assert await sweeps.watched() == []


async def test_a_sweep_of_another_owner_is_unknown(async_redis, settings, sweeps, mine, jobs, a_spec):
    others = Sweeps(async_redis, settings, jobs.seen_by(Viewer(OTHER, sees_all=False)))
    record, new = planned(a_spec(), 2)
    sweep_id, _ = await mine.submit(new_sweep_id(), record, new)
    for refused in (others.get(sweep_id), others.cancel(sweep_id), sweeps.get("swp_x"), sweeps.get(new_sweep_id())):
        with pytest.raises(UnknownSweep):
            await refused
    assert await _listed(others) == []
    assert await _listed(mine) == await _listed(sweeps) == [sweep_id]
    assert {job.owner for job in (await jobs.list()).data} == {OWNER}
    assert {job.status for job in (await jobs.list()).data} == {Status.QUEUED}


async def test_a_sweep_that_cannot_be_read_does_not_hide_the_others(sweeps, a_spec, client, keys):
    ids = []
    for _ in range(4):
        record, new = planned(a_spec())
        ids.append((await sweeps.submit(new_sweep_id(), record, new))[0])
    client.hset(keys.sweep(ids[1]), "sweep", "{")
    client.hdel(keys.sweep(ids[2]), "sweep")
    assert await _listed(sweeps) == [ids[3], ids[0]]


async def _without_jobs(sweeps, jobs, spec):
    """A sweep whose jobs are deleted."""
    record, new = planned(spec)
    sweep_id, _ = await sweeps.submit(new_sweep_id(), record, new)
    for job in new:
        await jobs.cancel(job.id)
        await jobs.delete(job.id)
    return sweep_id


def _checked_a_day_later(client, settings):
    due = Keys(settings.namespace).sweeps_due
    if ids := client.zrange(due, 0, -1):
        client.zadd(due, dict.fromkeys(ids, 1))
    return drop_empty(client, settings)


async def test_sweeps_without_jobs_are_dropped_but_not_those_that_cannot_be_read(
    sweeps, jobs, a_spec, client, settings, keys
):
    damaged, empty = [await _without_jobs(sweeps, jobs, a_spec()) for _ in range(2)]
    kept, _ = await sweeps.submit(new_sweep_id(), *planned(a_spec()))
    client.hset(keys.sweep(damaged), "sweep", "{")
    assert _checked_a_day_later(client, settings) == [empty]
    assert {each for each in (damaged, empty, kept) if client.exists(keys.sweep(each))} == {damaged, kept}


@pytest.mark.parametrize("written", range(6))
async def test_a_death_of_redis_while_a_sweep_is_dropped_leaves_none_of_it(
    mine, jobs, a_spec, client, settings, monkeypatch, written
):
    """Only the first of the writes happen; a later check does the others."""
    sweep_id = await _without_jobs(mine, jobs, a_spec())
    execute = Pipeline.execute

    def dies(pipeline):
        del pipeline.command_stack[written:]
        execute(pipeline)
        raise redis.ConnectionError("Redis is gone")

    with monkeypatch.context() as patched:
        patched.setattr(Pipeline, "execute", dies)
        with pytest.raises(StoreUnavailable):
            _checked_a_day_later(client, settings)
    _checked_a_day_later(client, settings)
    assert not [name for name in left(client, settings) if "sweep" in name or sweep_id in name]


async def test_a_page_of_sweeps_and_their_statuses_cost_few_commands(sweeps, a_spec, client):
    for _ in range(3):
        record, new = planned(a_spec(), 50)
        await sweeps.submit(new_sweep_id(), record, new)
    await sweeps.statuses((await sweeps.page(None, 50)).data)  # loads the script
    before = client.info("commandstats")
    found = await sweeps.statuses((await sweeps.page(None, 50)).data)
    after = client.info("commandstats")
    assert [len(each) for each in found] == [50, 50, 50]
    sent = {name: calls["calls"] - before.get(name, {"calls": 0})["calls"] for name, calls in after.items()}
    assert (sent["cmdstat_evalsha"], sent["cmdstat_hgetall"]) == (3, 3)


async def _listed(sweeps):
    return [each.id for each in (await sweeps.page(None, 50)).data]


async def test_the_end_of_a_sweep_is_that_of_its_last_job(async_redis, settings, a_spec):
    ends: dict[str, float | None] = {}

    async def foresee(running):
        return Forecast(starts_s=dict.fromkeys(ends, 0.0), ends_s=ends)

    jobs = Jobs(async_redis, settings, foresee)
    record, new = planned(a_spec(), 3)
    await Sweeps(async_redis, settings, jobs).submit(new_sweep_id(), record, new)
    stored = [job for job in await jobs.read_all([job.id for job in new]) if job]
    assert await jobs.ends_s(stored) is None
    ends.update({job.id: end_s for job, end_s in zip(new, (5.0, 25.0, 15.0), strict=True)})
    assert await jobs.ends_s(stored) == 25.0
    ends[new[1].id] = None
    assert await jobs.ends_s(stored) is None
    assert await jobs.ends_s([]) == 0.0
