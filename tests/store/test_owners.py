"""Jobs with an owner: who can see them, and what the limits of an API key count."""

import asyncio
from datetime import UTC, datetime

import pytest

from dyno.errors import LimitReached, QueueFull, UnknownJob
from dyno.models.api_key import Viewer
from dyno.models.job import Status
from dyno.store import jobs as module
from dyno.store.jobs import Jobs
from dyno.store.list_pages import decode_cursor
from dyno.store.maintenance import expire_leases
from tests.results import a_result

pytestmark = pytest.mark.anyio

OWNER, OTHER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"
TOOK_S = 100


@pytest.fixture
def mine(jobs):
    return jobs.seen_by(Viewer(OWNER, sees_all=False))


@pytest.fixture
def others(jobs):
    return jobs.seen_by(Viewer(OTHER, sees_all=False))


@pytest.fixture
def limited(client, keys):
    """Sets the limits of the owner's key."""
    return lambda **limits: client.hset(keys.api_key(OWNER), mapping={"name": "ci", **limits})


@pytest.fixture
def spent_s(client, keys):
    """The device time that the owner has used, on all days."""

    def spent():
        names = client.scan_iter(keys.spent(OWNER, 0).removesuffix("0") + "*")
        return sum(int(client.hget(name, "device_ms") or 0) for name in names) / 1000

    return spent


async def test_a_job_of_another_owner_is_unknown(jobs, mine, others, a_spec, claim, leases):
    done = (await mine.submit(a_spec())).job
    leases.finish(claim(), "succeed", result=a_result(done.id), samples=[])
    waits = (await mine.submit(a_spec(), idempotency_key="same", body_sha256="x")).job
    unowned = (await jobs.submit(a_spec())).job
    for job_id in (done.id, waits.id, unowned.id):
        for question in (others.get, others.result, others.samples, others.cancel, others.delete):
            with pytest.raises(UnknownJob) as told:
                await question(job_id)
            assert told.value.detail == f"there is no job {job_id}"
    assert (await others.list()).data == []
    assert await others.earlier("same", "x") is None
    earlier = await mine.earlier("same", "x")
    assert earlier is not None
    assert earlier.job == waits
    assert await others.visible([done.id, waits.id]) == set()
    assert [job.id for job in (await mine.list()).data] == [waits.id, done.id]
    assert [job.id for job in (await mine.list(status=Status.QUEUED, workload="matmul")).data] == [waits.id]
    assert await mine.result(done.id)
    assert len((await jobs.seen_by(Viewer(OTHER)).list()).data) == 3
    assert (await mine.cancel(waits.id)).job.owner == OWNER


async def test_however_many_jobs_others_have_a_key_is_shown_its_own_at_once(jobs, mine, a_spec, monkeypatch):
    monkeypatch.setattr(module, "_MOST_LOOKED_AT", 2)
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    own = (await mine.submit(a_spec())).job
    for _ in range(3):
        await jobs.submit(a_spec())
    page = await mine.list(limit=1)
    assert [job.id for job in page.data] == [own.id]
    assert page.next_cursor is None


async def test_no_cursor_reveals_a_job_of_another_owner(mine, others, a_spec, monkeypatch):
    monkeypatch.setattr(module, "_MOST_LOOKED_AT", 2)
    monkeypatch.setattr(module, "_MOST_STEPS", 1)
    own = [(await mine.submit(a_spec())).job.id for _ in range(6)]
    for job_id in own[1:]:
        await mine.cancel(job_id)
    for _ in range(3):  # so that fewer jobs wait than are the owner's
        await others.submit(a_spec())
    found, named, cursor = list[str](), list[str](), None
    while True:
        page = await mine.list(status=Status.QUEUED, workload="matmul", limit=1, cursor=cursor)
        found += [job.id for job in page.data]
        if (cursor := page.next_cursor) is None:
            break
        named.append(decode_cursor(cursor)[1])
    assert found == own[:1]
    assert named
    assert set(named) <= set(own)


async def test_the_limit_on_queued_jobs_holds_for_simultaneous_submits(mine, others, a_spec, claim, leases, limited):
    limited(queued_jobs=3)
    told = await asyncio.gather(*(mine.submit(a_spec()) for _ in range(20)), return_exceptions=True)
    assert sum(isinstance(each, LimitReached) for each in told) == 17
    with pytest.raises(LimitReached, match="3 jobs of this key are queued") as reached:
        await mine.submit(a_spec())
    assert (reached.value.policy, reached.value.quota, reached.value.window_s) == ("queued-jobs", 3, None)
    await others.submit(a_spec())
    attempt = claim()
    await mine.submit(a_spec())  # one runs now
    leases.requeue(attempt, reason="tested", counts_attempt=False)
    with pytest.raises(LimitReached, match="4 jobs of this key are queued"):
        await mine.submit(a_spec())


async def test_a_key_without_a_limit_may_queue_its_share_and_one_with_a_limit_may_queue_that(
    async_redis, settings, a_spec, limited
):
    jobs = Jobs(async_redis, settings.model_copy(update={"max_queued": 10, "key_queue_share": 0.3}))
    mine, others = (jobs.seen_by(Viewer(owner, sees_all=False)) for owner in (OWNER, OTHER))
    for _ in range(3):
        await mine.submit(a_spec())
    with pytest.raises(LimitReached, match="3 jobs of this key are queued and its limit is 3"):
        await mine.submit(a_spec())
    await others.submit(a_spec())
    limited(queued_jobs=4)
    await mine.submit(a_spec())
    with pytest.raises(LimitReached, match="its limit is 4"):
        await mine.submit(a_spec())
    for _ in range(5):
        await jobs.submit(a_spec())  # without a key: up to the whole queue
    with pytest.raises(QueueFull):
        await jobs.submit(a_spec())


async def test_only_queued_jobs_count_towards_the_limit(mine, a_spec, client, keys, limited):
    limited(queued_jobs=2)
    canceled = (await mine.submit(a_spec())).job.id
    await mine.cancel(canceled)
    waits = (await mine.submit(a_spec())).job.id
    client.zadd(keys.queued_of_owner(OWNER), {canceled: 1, "job_that_is_gone": 2})
    also = (await mine.submit(a_spec())).job.id
    assert client.zrange(keys.queued_of_owner(OWNER), 0, -1) == [waits, also]
    with pytest.raises(LimitReached):
        await mine.submit(a_spec())


async def test_a_repeated_request_is_answered_at_the_limit_too(mine, a_spec, limited):
    limited(queued_jobs=1)
    first = await mine.submit(a_spec(), idempotency_key="key", body_sha256="x")
    again = await mine.submit(a_spec(), idempotency_key="key", body_sha256="x")
    assert (again.replayed, again.job.id) == (True, first.job.id)


@pytest.mark.parametrize("ending", ["succeed", "fail", "stop", "requeue", "hand back", "expire"])
async def test_device_time_is_counted_once_however_an_attempt_ends(
    ending, mine, a_spec, claim, leases, client, keys, run_out, trusting, spent_s
):
    await mine.submit(a_spec())
    attempt = claim()
    assert spent_s() == 0
    begun_s = float(client.hget(keys.job(attempt.job_id), "started_at") or "nan") - TOOK_S
    client.hset(keys.job(attempt.job_id), "started_at", f"{begun_s:.6f}")
    for _ in range(2):
        if ending == "expire":
            run_out()
            expire_leases(client, trusting)
        elif ending in ("requeue", "hand back"):
            leases.requeue(attempt, reason="tested", counts_attempt=ending == "requeue")
        else:
            leases.finish(attempt, ending)
    assert TOOK_S - 0.002 <= spent_s() < 2 * TOOK_S  # kept in whole ms
    [name] = client.scan_iter(keys.spent(OWNER, 0).removesuffix("0") + "*")
    assert 24 * 3600 < client.ttl(name) <= 48 * 3600


async def test_device_time_of_a_running_attempt_counts(mine, others, a_spec, claim, client, keys, limited):
    limited(device_s_per_day=10_000)
    await mine.submit(a_spec())
    await others.submit(a_spec())
    for attempt in (claim(), claim("cpu:2@alpha")):
        begun_s = float(client.hget(keys.job(attempt.job_id), "started_at") or "nan")
        client.hset(keys.job(attempt.job_id), "started_at", f"{begun_s - 9_000:.6f}")
    await mine.submit(a_spec())  # that the other one ran for as long is another's
    today = client.time()[0] // 86400
    for day in (today, today + 1):
        client.hset(keys.spent(OWNER, day), "device_ms", 1_000_000)
    with pytest.raises(LimitReached, match="s of device time today and its limit is 10000"):
        await mine.submit(a_spec())


async def test_a_key_that_used_up_its_device_time_waits_for_the_next_day(mine, others, a_spec, client, keys, limited):
    limited(device_s_per_day=60)
    today = client.time()[0] // 86400
    client.hset(keys.spent(OWNER, today - 1), "device_ms", 10**9)
    client.hset(keys.spent(OWNER, today), "device_ms", 59_999)
    await mine.submit(a_spec())
    for day in (today, today + 1):  # the day may end while this test runs
        client.hset(keys.spent(OWNER, day), "device_ms", 60_000)
    with pytest.raises(LimitReached, match="60 s of device time today and its limit is 60") as reached:
        await mine.submit(a_spec())
    apart_s = abs(reached.value.retry_after_s - (86400 - datetime.now(UTC).timestamp() % 86400))
    assert min(apart_s, 86400 - apart_s) < 60
    assert (reached.value.policy, reached.value.window_s) == ("device-seconds", 86400)
    await others.submit(a_spec())


async def test_an_uncharged_job_counts_against_no_limit_of_its_owner(
    mine, a_spec, claim, client, keys, leases, limited, spent_s
):
    limited(queued_jobs=1, device_s_per_day=TOOK_S)
    free = (await mine.submit(a_spec(), uncharged=True)).job
    await mine.submit(a_spec())
    await mine.submit(a_spec(), uncharged=True)
    attempt = claim()
    assert attempt.job_id == free.id
    client.hset(keys.job(free.id), "started_at", f"{client.time()[0] - 2 * TOOK_S}")
    client.zrem(keys.queued_of_owner(OWNER), *client.zrange(keys.queued_of_owner(OWNER), 0, -1))
    await mine.submit(a_spec())  # the running attempt costs nothing
    assert leases.finish(attempt, "succeed", result=a_result(free.id), samples=[])
    assert spent_s() == 0
    assert client.zcard(keys.queued_of_owner(OWNER)) == 1
