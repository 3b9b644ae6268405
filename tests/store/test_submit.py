import asyncio

import pytest

from dyno.errors import IdempotencyKeyReused, JobExpired, QueueFull, StoreUnavailable, UnknownJob
from dyno.models.api_key import Viewer
from dyno.models.job import SpecWarning, Status, WorkerRef
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import IDEMPOTENCY_S, Jobs
from dyno.store.leases import Leases
from dyno.store.redis import async_client, sync_client

pytestmark = pytest.mark.anyio


async def test_a_submitted_job_is_queued_with_all_that_was_asked_for(jobs, a_spec):
    spec = a_spec(params={"n": 64}, labels={"commit": "abc"}, seed=7)
    warning = SpecWarning(code="POW2_ONLY", message="only powers of two")

    job = (await jobs.seen_by(Viewer("someone")).submit(spec, warnings=[warning])).job

    assert job.status is Status.QUEUED
    assert job.spec == spec
    assert job.warnings == [warning]
    assert job.owner == "someone"
    assert (job.queue.name, job.queue.position) == ("cpu", 0)
    assert (job.attempt, job.version, job.done) == (0, 1, False)
    assert job.created_at == job.queued_at
    assert job == await jobs.get(job.id)


async def test_only_the_job_that_finds_its_queue_empty_asks_for_a_wake_up(jobs, a_spec, claim):
    assert (await jobs.submit(a_spec())).wake
    assert not (await jobs.submit(a_spec())).wake
    assert (await jobs.submit(a_spec(device="any"))).wake
    claim()
    claim("cpu:2@alpha")
    claim("cpu:3@alpha")
    assert (await jobs.submit(a_spec())).wake


async def test_the_same_idempotency_key_fifty_times_at_once_makes_one_job(jobs, a_spec, client, keys):
    submits = [jobs.submit(a_spec(), idempotency_key="key", body_sha256="same") for _ in range(50)]
    replies = await asyncio.gather(*submits)

    assert len({reply.job.id for reply in replies}) == 1
    assert sorted(reply.replayed for reply in replies) == [False] + [True] * 49
    assert client.zcard(keys.jobs) == 1
    assert client.zcard(keys.queue("cpu")) == 1


async def test_an_idempotency_key_with_another_body_is_refused(jobs, a_spec):
    await jobs.submit(a_spec(), idempotency_key="key", body_sha256="one")
    with pytest.raises(IdempotencyKeyReused):
        await jobs.submit(a_spec(), idempotency_key="key", body_sha256="another")


async def test_two_owners_may_use_the_same_idempotency_key(jobs, a_spec):
    me, you = (jobs.seen_by(Viewer(owner, sees_all=False)) for owner in ("me", "you"))
    mine, yours = [await one.submit(a_spec(), idempotency_key="key", body_sha256="x") for one in (me, you)]
    assert mine.job.id != yours.job.id


async def test_an_idempotency_key_lives_for_a_day(jobs, a_spec, client, keys):
    await jobs.submit(a_spec(), idempotency_key="key", body_sha256="x")
    assert IDEMPOTENCY_S - 60 < client.ttl(keys.idempotency(None, "key")) <= IDEMPOTENCY_S


async def test_a_key_whose_job_is_gone_makes_no_second_one(jobs, a_spec, client, keys):
    job = (await jobs.submit(a_spec(), idempotency_key="key", body_sha256="same")).job
    client.delete(keys.job(job.id))  # as its time to live does
    with pytest.raises(JobExpired, match=job.id):
        await jobs.submit(a_spec(), idempotency_key="key", body_sha256="same")
    with pytest.raises(IdempotencyKeyReused):
        await jobs.submit(a_spec(), idempotency_key="key", body_sha256="another")
    assert not client.exists(keys.queue("any"))


async def test_submit_needs_no_second_request(jobs, a_spec, monkeypatch):
    async def away(job_id):
        raise StoreUnavailable(job_id)

    with monkeypatch.context() as patch:
        patch.setattr(jobs, "get", away)
        first, second = [await jobs.submit(a_spec(), idempotency_key=key, body_sha256="x") for key in ("one", "two")]
        again = await jobs.submit(a_spec(), idempotency_key="two", body_sha256="x")
    assert (first.wake, second.wake, again.wake, again.replayed) == (True, False, False, True)
    assert first.job == await jobs.get(first.job.id)
    assert second.job == again.job == await jobs.get(second.job.id)


async def test_beyond_the_limit_a_submit_is_refused_and_leaves_nothing(async_redis, settings, a_spec, client, keys):
    jobs = Jobs(async_redis, settings.model_copy(update={"max_queued": 2}))
    await jobs.submit(a_spec())
    await jobs.submit(a_spec())
    with pytest.raises(QueueFull):
        await jobs.submit(a_spec(), idempotency_key="key")
    assert client.zcard(keys.jobs) == 2
    assert not client.exists(keys.idempotency(None, "key"))


async def test_a_full_server_refuses_new_jobs_but_ends_those_it_has(settings, a_spec):
    with EmbeddedServer() as server:
        there = settings.model_copy(update={"redis_url": server.url})
        async with async_client(there) as asynchronous:
            jobs = Jobs(asynchronous, there)
            job = (await jobs.submit(a_spec())).job
            with sync_client(there) as client:
                client.config_set("maxmemory", 1)
                with pytest.raises(StoreUnavailable):
                    await jobs.submit(a_spec())
                leases = Leases(client, there)
                claim = leases.claim("cpu:0@alpha", ["cpu"], WorkerRef(id="w", device="cpu:0", host="alpha"))
                assert claim is not None
                assert leases.finish(claim, "fail")
            assert (await jobs.get(job.id)).status is Status.FAILED


@pytest.mark.parametrize("job_id", ["", "job_1", "job_01M7YR4V72ZGCZTSZ5K8JK9CFW:events", "*", "job_" + "0" * 26])
async def test_an_id_that_names_no_job_is_unknown(jobs, job_id):
    with pytest.raises(UnknownJob):
        await jobs.get(job_id)
    with pytest.raises(UnknownJob):
        await jobs.cancel(job_id)
    with pytest.raises(UnknownJob):
        await jobs.result(job_id)


async def test_the_time_of_creation_is_by_the_servers_clock(jobs, a_spec, client, monkeypatch):
    before = client.time()[0]
    monkeypatch.setattr("time.time", lambda: 0.0)
    job = (await jobs.submit(a_spec())).job
    assert before <= job.created_at.timestamp() <= client.time()[0] + 1


async def test_a_server_that_is_away_is_reported_as_unavailable(settings, a_spec, tmp_path):
    nowhere = settings.model_copy(update={"redis_url": f"unix://{tmp_path / 'nothing.sock'}"})
    async with async_client(nowhere) as client:
        jobs = Jobs(client, nowhere)
        with pytest.raises(StoreUnavailable):
            await jobs.submit(a_spec())
        with pytest.raises(StoreUnavailable):
            await jobs.list()
