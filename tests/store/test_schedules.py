"""Schedules in the store: several APIs fire them, and each due time queues one job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from dyno.errors import LimitReached, QueueFull, RecordUnreadable, UnknownSchedule
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.job import new_job_id
from dyno.models.job_schedule import Firing, JobSchedule
from dyno.models.spec import Spec
from dyno.store.jobs import Jobs
from dyno.store.schedules import DueSchedule, Schedules
from dyno.store.sweeps import NewJob

pytestmark = pytest.mark.anyio

ONE, OTHER, ADMIN = Viewer("key_1", sees_all=False), Viewer("key_2", sees_all=False), Viewer("key_3")
DUE = datetime(2026, 1, 5, 3, tzinfo=UTC)
DAY = timedelta(days=1)
Of = Callable[[Viewer], Schedules]


def daily(name="nightly", owner=None, **fields):
    known: dict[str, Any] = {"cron": "0 3 * * *", "timezone": "UTC", "spec": {"workload": "matmul"}, "enabled": True}
    known |= {"next_firings": [DUE + at * DAY for at in range(5)], "saved_at": DUE - DAY}
    return JobSchedule(name=name, owner=owner, **known | fields)


def fired(before, job_id):
    firing = Firing(due_at=before.next_firings[0], fired_at=before.next_firings[0], job=job_id)
    return before.model_copy(
        update={"firings": [firing, *before.firings], "next_firings": [at + DAY for at in before.next_firings]}
    )


def a_job():
    return NewJob(new_job_id(), Spec(workload="matmul"), [], {})


@pytest.fixture
def of(async_redis, settings):
    return lambda viewer: Schedules(async_redis, settings, viewer)


async def saved(store, schedule):
    await store.put(schedule)
    stored = await store.read(schedule.owner, schedule.name)
    assert stored is not None
    return stored


async def numbers(jobs, client, keys):
    """The jobs that there are, and the firings that were counted."""
    return len((await jobs.list()).data), client.hget(keys.counts, "firing fired")


async def test_a_schedule_is_saved_replaced_and_deleted(of):
    store = of(EVERYBODY)
    assert await store.put(daily()) == (True, daily())
    assert await store.put(daily(cron="0 3 * * 1")) == (False, daily(cron="0 3 * * 1"))
    assert await store.get("nightly") == daily(cron="0 3 * * 1")
    await store.put(daily("a"))
    assert [each.name for each in await store.list()] == ["a", "nightly"]
    assert [(each.name, each.due_ms) for each in (await store.due())[1]] == [
        (name, DUE.timestamp() * 1000) for name in ("a", "nightly")
    ]
    assert await store.delete("nightly") is None
    assert [each.name for each in (await store.due())[1]] == ["a"]
    for ask in (store.get, store.delete):
        with pytest.raises(UnknownSchedule):
            await ask("nightly")


async def test_a_schedule_that_is_disabled_or_of_the_future_is_not_due(of):
    store = of(EVERYBODY)
    await store.put(daily())
    await store.put(daily(enabled=False, next_firings=[]))
    await store.put(daily("later", next_firings=[await store.now() + DAY]))
    assert (await store.due())[1] == []


async def test_keys_have_their_own_names_and_an_admin_finds_all(of):
    for viewer in (ONE, OTHER, EVERYBODY):
        await of(viewer).put(daily(owner=viewer.owner))
    assert (await of(ONE).get("nightly")).owner == "key_1"
    assert [each.owner for each in await of(OTHER).list()] == ["key_2"]
    assert [each.owner for each in await of(ADMIN).list()] == [None, "key_1", "key_2"]
    await of(ADMIN).put(daily(owner="key_3"))
    assert (await of(ADMIN).get("nightly")).owner == "key_3"
    assert [await of(ADMIN).delete("nightly") for _ in range(4)] == ["key_3", None, "key_1", "key_2"]
    assert (await of(ADMIN).due())[1] == []


async def test_a_key_has_so_many_schedules_at_most(async_redis, settings):
    store = Schedules(async_redis, settings.model_copy(update={"max_schedules": 2}), ONE)
    for name in ("a", "b", "a"):
        await store.put(daily(name, owner="key_1"))
    with pytest.raises(LimitReached) as refused:
        await store.put(daily("c", owner="key_1"))
    assert (refused.value.policy, refused.value.quota) == ("schedules", 2)
    assert [each.name for each in (await store.due())[1]] == ["a", "b"]


async def test_a_firing_makes_a_job_of_the_key_and_writes_the_schedule(of, jobs, client, keys):
    store, job, own = of(ONE), a_job(), jobs.seen_by(ONE)
    before = await saved(store, daily(owner="key_1"))
    after = fired(before.document, job.id)
    assert await store.fire(before, after, job, own, missed=3)
    assert await store.get("nightly") == after
    assert ((await own.get(job.id)).owner, (await own.get(job.id)).status) == ("key_1", "queued")
    assert (await store.due())[1][0].due_ms == (DUE + DAY).timestamp() * 1000
    assert client.hmget(keys.counts, "firing fired", "firing missed") == ["1", "3"]


async def test_of_many_that_fire_at_once_one_makes_a_job(of, jobs, client, keys):
    before = await saved(of(EVERYBODY), daily())
    new = [a_job() for _ in range(20)]
    attempts = [of(EVERYBODY).fire(before, fired(before.document, job.id), job, jobs) for job in new]
    assert sum(await asyncio.gather(*attempts)) == 1
    assert await numbers(jobs, client, keys) == (1, "1")


async def test_a_repeated_call_makes_no_second_job(of, jobs, client, keys):
    """As the client sends it again when the reply was lost."""
    store, job = of(EVERYBODY), a_job()
    before = await saved(store, daily())
    assert [await store.fire(before, fired(before.document, job.id), job, jobs) for _ in range(2)] == [True, True]
    assert await numbers(jobs, client, keys) == (1, "1")


async def test_a_schedule_that_was_replaced_or_deleted_meanwhile_does_not_fire(of, jobs, client, keys):
    store = of(EVERYBODY)
    first = await saved(store, daily())
    second = await saved(store, daily(cron="0 3 * * 1"))
    job = a_job()
    assert not await store.fire(first, fired(first.document, job.id), job, jobs)
    assert not await store.replace(first, first.document, missed=1)
    await store.delete("nightly")
    assert not await store.fire(second, fired(second.document, job.id), job, jobs)
    assert (await numbers(jobs, client, keys), (await store.due())[1]) == ((0, None), [])


async def test_a_refused_job_leaves_the_schedule_as_it_was(of, async_redis, settings):
    full = Jobs(async_redis, settings.model_copy(update={"max_queued": 0}))
    store, job = of(EVERYBODY), a_job()
    before = await saved(store, daily())
    with pytest.raises(QueueFull):
        await store.fire(before, fired(before.document, job.id), job, full)
    assert await store.read(None, "nightly") == before
    assert (await full.list()).data == []


async def test_a_replaced_schedule_keeps_what_it_fired_and_missed(of, jobs):
    store, job = of(EVERYBODY), a_job()
    before = await saved(store, daily(missed=[DUE - DAY], missed_count=7))
    assert await store.fire(before, fired(before.document, job.id), job, jobs)
    _, after = await store.put(daily(cron="0 4 * * *"))
    assert ([each.job for each in after.firings], after.missed, after.missed_count) == ([job.id], [DUE - DAY], 7)
    assert await store.get("nightly") == after


async def test_a_due_time_without_a_schedule_is_forgotten(of, client, keys):
    store = of(EVERYBODY)
    await store.put(daily())
    client.zadd(keys.schedules_due, {"key_1:gone": 1000})
    for due in (DueSchedule("key_1", "gone", 1000), DueSchedule(None, "nightly", 0)):
        await store.forget(due)
    assert [each.name for each in (await store.due())[1]] == ["nightly"]


async def test_a_damaged_schedule_hides_no_other_and_can_be_replaced(of, client, keys):
    store = of(EVERYBODY)
    await store.put(daily("whole"))
    client.hset(keys.schedules(None), "damaged", "{")
    assert [each.name for each in await store.list()] == ["whole"]
    with pytest.raises(RecordUnreadable):
        await store.get("damaged")
    assert await store.put(daily("damaged")) == (False, daily("damaged"))
