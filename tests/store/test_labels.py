"""The filter by label, with its indexes, without them, and while maintenance builds them."""

import asyncio
from collections.abc import Callable

import pytest

from dyno.models.api_key import Viewer
from dyno.models.spec import Spec
from dyno.store import jobs as module
from dyno.store.maintenance import drop_expired

pytestmark = pytest.mark.anyio

ASpec = Callable[..., Spec]
ODD = {"ü:\n\x00": 'ö"', "a=b": "c", "x" * 128: "y" * 128}


async def listed(jobs, label, limit=50):
    """All pages."""
    found, cursor = list[str](), None
    while True:
        page = await jobs.browse(label=label, limit=limit, cursor=cursor)
        found += [job.id for job in page.data]
        if (cursor := page.next_cursor) is None:
            return found


def label_indexes(client, keys):
    return {str(name): client.zrange(name, 0, -1) for name in client.scan_iter(keys.jobs_with_label("*"))}


def records_read(client):
    stats = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{name}", {"calls": 0})["calls"] for name in ("hgetall", "hmget", "hget"))


@pytest.mark.verify
async def test_a_label_that_matches_nothing_costs_a_bounded_number_of_records_whatever_is_stored(
    jobs, a_spec, client, keys
):
    spec = a_spec(labels={"commit": "abc"})
    for _ in range(50):
        await asyncio.gather(*(jobs.submit(spec) for _ in range(100)))

    async def cost(**wanted):
        before = records_read(client)
        page = await jobs.browse(limit=200, **wanted)
        assert page.data == []
        return records_read(client) - before, page.has_more

    assert await cost(label="commit=none") == (0, False)
    assert await cost(label="commit=none", workload="matmul", status="queued") == (0, False)
    by_record = module._MOST_STEPS * (module._MOST_LOOKED_AT // 9 + 2)
    for filters in ({"label": "none"}, {"framework": "jax"}, {"device": "gpu"}, {"framework": "jax", "label": "none"}):
        records, has_more = await cost(**filters)
        assert 0 < records <= by_record
        assert has_more


async def test_a_label_selects_its_jobs_newest_first(jobs, a_spec, client, keys):
    made = []
    for number in range(30):
        labels = {"commit": str(number % 3), "a=b": "c=d"} if number % 2 else {}
        made.append((await jobs.submit(a_spec(labels=labels))).stored.id)
    odd = (await jobs.submit(a_spec(labels=ODD))).stored.id
    order = client.zrange(keys.jobs, 0, -1, desc=True)
    chosen = [job for job in order if job in {made[n] for n in range(1, 30, 2) if n % 3 == 2}]
    for limit in (1, 2, 50):
        assert await listed(jobs, "commit=2", limit) == chosen
    assert len(await listed(jobs, "commit")) == 15
    assert await listed(jobs, "commit=4") == await listed(jobs, "commit=") == await listed(jobs, "a") == []
    assert await listed(jobs, "a=b=c") == [odd]
    assert len(await listed(jobs, "a=b=c=d")) == 15
    assert len(await listed(jobs, "a=b")) == 16
    for name, value in ODD.items():
        assert odd in await listed(jobs, f"{name}={value}")


async def test_filters_are_combined_with_the_label(jobs, a_spec, claim, leases):
    labels = {"commit": "abc"}
    mine = jobs.seen_by(Viewer("key_0123456789abcdef", sees_all=False))
    own = (await mine.submit(a_spec(labels=labels))).stored.id
    other = (await jobs.submit(a_spec(labels=labels, workload="mnist_cnn"))).stored.id
    leases.finish(claim(), "fail")

    async def ids(of, **wanted):
        return {job.id for job in (await of.browse(label="commit=abc", **wanted)).data}

    assert await ids(jobs) == {own, other}
    assert await ids(mine) == await ids(jobs, workload="matmul") == await ids(jobs, status="failed") == {own}
    assert await ids(jobs, status="queued", framework="tensorflow") == {other}
    assert await ids(mine, status="queued") == await ids(jobs, device="gpu") == set()


@pytest.mark.parametrize("owner", [None, "key_0123456789abcdef"])
async def test_a_deleted_and_an_expired_job_leave_the_indexes_of_their_labels(
    jobs, a_spec, client, keys, settings, owner
):
    mine = jobs.seen_by(Viewer(owner))
    spec = a_spec(labels={"commit": "abc", "a=b": "c"})
    kept, deleted, expired = [(await mine.submit(spec)).stored.id for _ in range(3)]
    for job_id in (deleted, expired):
        await mine.cancel(job_id)
    indexes = label_indexes(client, keys)
    assert [set(ids) for ids in indexes.values()] == [{kept, deleted, expired}] * 3
    await mine.delete(deleted)
    assert [set(ids) for ids in label_indexes(client, keys).values()] == [{kept, expired}] * 3

    client.delete(keys.job(expired))
    [member] = client.zrange(keys.expiring, 0, -1)
    client.zadd(keys.expiring, {member: 1})
    assert drop_expired(client, settings) == 1
    assert [set(ids) for ids in label_indexes(client, keys).values()] == [{kept}] * 3
    assert client.zcard(keys.expiring) == 0
    if owner:
        assert client.zrange(keys.jobs_of_owner(owner), 0, -1) == [kept]
