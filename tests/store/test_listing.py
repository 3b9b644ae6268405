from __future__ import annotations

from datetime import timedelta

import pytest

from dyno.errors import InvalidSpec
from dyno.models.job import Status
from dyno.store import jobs as module
from tests.waiting import eventually

pytestmark = pytest.mark.anyio


def ids(jobs):
    return [job.id for job in jobs]


async def submitted(jobs, spec, count):
    return [(await jobs.submit(spec)).job.id for _ in range(count)]


async def walk(jobs, limit, **wanted):
    found: list[str] = []
    cursor = None
    while True:
        page = await jobs.list(limit=limit, cursor=cursor, **wanted)
        assert len(page.data) <= limit
        assert page.has_more == (page.next_cursor is not None)
        found += ids(page.data)
        if page.next_cursor is None:
            return found
        cursor = page.next_cursor


async def test_pages_show_every_job_once_newest_first(jobs, a_spec, keys, client):
    await submitted(jobs, a_spec(), 7)
    order = client.zrange(keys.jobs, 0, -1, desc=True)
    assert len(order) == 7
    for limit in (1, 2, 3, 7, 50):
        assert await walk(jobs, limit) == order


async def test_the_cursor_distinguishes_jobs_of_one_millisecond(jobs, a_spec, keys, client, monkeypatch):
    made = await submitted(jobs, a_spec(), 9)
    client.zadd(keys.jobs, dict.fromkeys(made, 1))
    monkeypatch.setattr(module, "_MOST_LOOKED_AT", 2)
    monkeypatch.setattr(module, "_MOST_STEPS", 5)
    assert await walk(jobs, 1) == sorted(made, reverse=True)


async def test_jobs_that_arrive_between_two_pages_move_nothing(jobs, a_spec):
    made = await submitted(jobs, a_spec(), 4)
    first = await jobs.list(limit=2)
    await submitted(jobs, a_spec(), 3)
    second = await jobs.list(limit=2, cursor=first.next_cursor)
    assert [*ids(first.data), *ids(second.data)] == made[::-1]


async def test_each_filter_keeps_what_fits_and_nothing_else(jobs, a_spec, claim, leases):
    (done,) = await submitted(jobs, a_spec(labels={"commit": "abc", "a=b": "c=d"}), 1)
    leases.finish(claim(), "succeed")
    (training,) = await submitted(jobs, a_spec(workload="mnist_cnn", device="gpu:0@beta"), 1)
    (jax,) = await submitted(jobs, a_spec(framework="jax", device="any"), 1)

    async def listed(**wanted):
        return set(ids((await jobs.list(**wanted)).data))

    assert await listed(status=Status.SUCCEEDED) == {done}
    assert await listed(workload="mnist_cnn") == {training}
    assert await listed(status=Status.QUEUED, workload="matmul") == {jax}
    assert await listed(framework="jax") == {jax}
    assert await listed(label="commit") == await listed(label="commit=abc") == {done}
    assert await listed(label="a=b") == await listed(label="a=b=c=d") == {done}
    assert await listed(label="commit=other") == await listed(label="a") == await listed(label="a=b=c") == set()
    assert (
        await listed(device="cpu") == await listed(device="cpu:0-1") == await listed(device="cpu:0-1@alpha") == {done}
    )
    assert await listed(device="gpu:0@beta") == await listed(device="gpu") == {training}


async def test_the_time_of_creation_bounds_the_list_on_both_sides(jobs, a_spec, client):
    def millis():
        seconds, micros = client.time()
        return int(seconds) * 1000 + int(micros) // 1000

    async def submitted_later(than):
        eventually(lambda: than is None or millis() > round(than.created_at.timestamp() * 1000))
        return (await jobs.submit(a_spec())).job

    first = await submitted_later(None)
    second = await submitted_later(first)
    third = await submitted_later(second)
    page = await jobs.list(created_after=first.created_at, created_before=third.created_at)
    assert ids(page.data) == [second.id]
    page = await jobs.list(created_after=third.created_at + timedelta(seconds=1))
    assert page.data == []


async def test_a_page_reads_a_bounded_number_of_records_and_its_cursor_goes_on(jobs, a_spec, monkeypatch):
    (rare,) = await submitted(jobs, a_spec(labels={"rare": "yes"}), 1)
    await submitted(jobs, a_spec(), 9)
    monkeypatch.setattr(module, "_MOST_LOOKED_AT", 16)
    monkeypatch.setattr(module, "_MOST_STEPS", 2)
    page = await jobs.list(label="rare", limit=1)
    assert (page.data, page.has_more) == ([], True)
    assert await walk(jobs, 5, label="rare") == [rare]


async def test_entries_whose_record_has_expired_are_passed_over_and_dropped(jobs, a_spec, client, keys):
    kept, gone = await submitted(jobs, a_spec(), 2)
    client.delete(keys.job(gone))
    assert ids((await jobs.list()).data) == [kept]
    assert client.zrange(keys.jobs, 0, -1) == [kept]


@pytest.mark.parametrize("cursor", ["x", "no cursor", "é", "AAAA", "MTIz", "OTk5OjE"])
async def test_an_invalid_cursor_is_refused(jobs, cursor):
    with pytest.raises(InvalidSpec) as caught:
        await jobs.list(cursor=cursor)
    assert [error.pointer for error in caught.value.errors] == ["/cursor"]
