"""Done jobs beyond a limit on their number or on Redis' memory are deleted, those that ended first."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from chaos.checks import state_violations
from chaos.snapshot import read
from dyno.models.api_key import Viewer
from dyno.store import retention
from dyno.store.artifacts import note_files
from dyno.store.redis import RESERVED_BYTES
from dyno.store.retention import drop_oldest
from dyno.store.webhooks import Deliveries
from tests.deliveries import OTHER, OWNER, RECEIVER, URL, canceled, delivered, taken
from tests.results import a_result

pytestmark = pytest.mark.anyio
Finish = Callable[..., Any]


@pytest.fixture
def finish(jobs, a_spec, claim, leases):
    """Submit, claim and end jobs; returns their ids in the order of their ends."""

    async def ended(number, samples_bytes=0, owner=None):
        for _ in range(number):
            await jobs.seen_by(Viewer(owner, sees_all=False)).submit(a_spec())
        attempts = [claim(f"cpu:{device}@alpha") for device in range(number)]
        for attempt in attempts:
            leases.finish(
                attempt, "succeed", result=a_result(attempt.job_id), samples=[os.urandom(samples_bytes // 2).hex()]
            )
        return [attempt.job_id for attempt in attempts]

    return ended


async def test_without_limits_nothing_is_deleted(finish, client, settings):
    await finish(3)
    assert drop_oldest(client, settings) == {}


async def test_the_jobs_that_ended_first_are_deleted_beyond_the_number(
    finish, jobs, a_spec, claim, leases, client, settings, keys
):
    first = (await jobs.submit(a_spec())).job.id  # created first, ends last
    early = claim("cpu:9@alpha")
    ids = await finish(6)
    waiting = (await jobs.submit(a_spec())).job.id
    running = (await jobs.submit(a_spec(priority="high"))).job.id
    assert claim("cpu:8@alpha").job_id == running
    canceled = (await jobs.submit(a_spec())).job.id
    await jobs.cancel(canceled)
    leases.finish(early, "fail")
    note_files(client, settings, ids[0])
    limited = settings.model_copy(update={"max_done": 3})
    assert drop_oldest(client, limited) == {"max_done": 5}
    assert [each.id for each in (await jobs.list()).data] == [canceled, running, waiting, ids[5], first]
    assert list(client.scan_iter(f"{keys.job(ids[0])}*")) == []
    assert client.zscore(keys.artifacts, ids[0]) is not None, "its files are deleted by `tidy_files`"
    assert list(state_violations(read(client, keys))) == []
    assert client.hget(keys.counts, "dropped max_done") == "5"
    assert drop_oldest(client, limited) == {}
    assert drop_oldest(client, settings.model_copy(update={"max_done": 0})) == {"max_done": 3}
    assert {each.id for each in (await jobs.list()).data} == {waiting, running}


async def test_several_processes_delete_no_job_too_many(finish, jobs, client, settings):
    limited = settings.model_copy(update={"max_done": 5})
    await finish(30)
    with ThreadPoolExecutor(8) as pool:
        dropped = list(pool.map(lambda _: sum(drop_oldest(client, limited).values()), range(8)))
    assert sum(dropped) == 25
    assert len((await jobs.list()).data) == 5


async def test_jobs_are_deleted_until_redis_uses_less_memory(finish, jobs, client, settings, keys, monkeypatch):
    monkeypatch.setattr(retention, "_DROPPED_AT_ONCE", 2)
    await finish(1)
    used: Any = client.info("memory")["used_memory"]
    ids = await finish(20, 60_000)
    kept_bytes = used + 10 * 32_000
    limited = settings.model_copy(update={"max_store_bytes": kept_bytes})
    [(limit, count)] = drop_oldest(client, limited).items()
    assert limit == "max_store_bytes"
    assert 8 <= count <= 16
    left = [each.id for each in (await jobs.list()).data]
    assert left == ids[::-1][: len(left)]
    assert client.hget(keys.counts, "dropped max_store_bytes") == str(count)
    assert drop_oldest(client, limited) == {}


async def test_a_call_is_bounded_and_a_job_with_a_pending_webhook_stays(
    finish, jobs, a_spec, client, settings, monkeypatch
):
    monkeypatch.setattr(retention, "_RECORDS_AT_ONCE", 4)
    monkeypatch.setattr(retention, "_DROPPED_AT_ONCE", 2)
    untold = (await jobs.submit(a_spec(webhook={"url": "https://example.org/"}))).job.id
    await jobs.cancel(untold)
    await finish(6)
    limited = settings.model_copy(update={"max_done": 0, "max_store_bytes": 1})
    assert [sum(drop_oldest(client, limited).values()) for _ in range(3)] == [4, 2, 0]
    assert [each.id for each in (await jobs.list()).data] == [untold]


async def test_no_job_goes_before_its_webhook_is_delivered_wherever_the_delivery_waits(
    jobs, a_spec, client, settings, outbox
):
    """A delivery waits until it is due, then in a lane, and then for the end of an attempt."""
    limited = settings.model_copy(update={"max_done": 0, "max_store_bytes": 1})
    ids = [await canceled(jobs, a_spec(webhook={"url": URL})) for _ in range(16)]
    assert await outbox.take([RECEIVER]) is None, "so that all are in a lane"
    under_way = [await taken(outbox) for _ in range(4)]
    assert drop_oldest(client, limited) == {}
    for one in under_way:
        await delivered(outbox, one)
    assert sum(drop_oldest(client, limited).values()) == 4
    left = [await taken(outbox) for _ in range(12)]
    assert {one.job_id for one in (*under_way, *left)} == set(ids)


async def test_jobs_with_pending_webhooks_do_not_keep_others_from_being_deleted(
    jobs, a_spec, client, settings, monkeypatch
):
    monkeypatch.setattr(retention, "_CANDIDATES", 3)
    untold = [await canceled(jobs, a_spec(webhook={"url": URL})) for _ in range(7)]
    told = [await canceled(jobs, a_spec()) for _ in range(4)]
    assert sum(drop_oldest(client, settings.model_copy(update={"max_done": 7})).values()) == len(told)
    assert {each.id for each in (await jobs.list()).data} == set(untold)


async def test_pending_webhooks_of_one_key_cost_no_other_key_its_results(finish, jobs, a_spec, client, settings):
    own = jobs.seen_by(Viewer(OWNER, sees_all=False))
    untold = [await canceled(own, a_spec(webhook={"url": URL})) for _ in range(8)]
    others = await finish(4, owner=OTHER)
    assert drop_oldest(client, settings.model_copy(update={"max_done": 6})) == {}
    assert {each.id for each in (await jobs.list()).data} == {*untold, *others}


async def test_a_redelivery_keeps_no_job(jobs, a_spec, client, settings, outbox, keys, async_redis):
    job_id = await canceled(jobs, a_spec(webhook={"url": URL}))
    await delivered(outbox, await taken(outbox))
    await Deliveries(async_redis, settings, jobs.viewer).redeliver(f"msg_{job_id.removeprefix('job_')}")
    assert client.hget(keys.webhook(job_id), "status") == "pending"
    assert drop_oldest(client, settings.model_copy(update={"max_done": 0})) == {"max_done": 1}


async def test_beyond_the_memory_the_key_with_the_most_bytes_loses_jobs(finish, jobs, client, settings):
    large = await finish(4, 400_000, owner=OWNER)
    small = await finish(12, owner=OTHER)
    used: Any = client.info("memory")["used_memory"]  # buffers of other clients move it by 0.3 MB
    dropped = drop_oldest(client, settings.model_copy(update={"max_store_bytes": used - 700_000}))
    assert 1 <= dropped["max_store_bytes"] <= 3
    assert {*small, large[-1]} <= {each.id for each in (await jobs.list()).data}


async def test_memory_reserved_for_waiting_jobs_counts_as_used(finish, jobs, a_spec, client, settings):
    await finish(3)
    for _ in range(100):
        await jobs.submit(a_spec())
    used: Any = client.info("memory")["used_memory"]  # buffers of other clients move it by 0.3 MB
    assert drop_oldest(client, settings.model_copy(update={"max_store_bytes": used + 140 * RESERVED_BYTES})) == {}
    limited = settings.model_copy(update={"max_store_bytes": used + 60 * RESERVED_BYTES})
    assert drop_oldest(client, limited) == {"max_store_bytes": 3}


async def test_a_job_whose_record_was_deleted_by_hand_is_looked_for_once(finish, client, settings, keys):
    [gone, kept] = await finish(2)
    client.delete(keys.job(gone))
    client.zrem(keys.done_of_owner(""), gone)
    assert drop_oldest(client, settings.model_copy(update={"max_done": 9})) == {}
    assert client.zrange(keys.jobs_with_status("succeeded"), 0, -1) == [kept]
