from concurrent.futures import ThreadPoolExecutor

import pytest

from dyno.models.job import MAX_ATTEMPTS, FailureClass, Status
from dyno.store.embedded import EmbeddedServer
from dyno.store.maintenance import LeaseGuard, expire_leases
from dyno.store.redis import Keys, sync_client

DEVICE = "cpu:0-1@alpha"
anyio = pytest.mark.anyio


@anyio
async def test_a_lease_extended_after_the_reaper_looked_is_left_alone(jobs, a_spec, claim, client, keys, trusting):
    job = (await jobs.submit(a_spec())).job
    claim()
    client.zadd(keys.leases, {DEVICE: 1})  # what the reaper saw; the lease itself says otherwise
    assert expire_leases(client, trusting) == []
    assert (await jobs.get(job.id)).status is Status.RUNNING


@anyio
async def test_a_left_over_lease_of_an_earlier_attempt_takes_nothing_from_the_present_one(
    jobs, a_spec, claim, client, keys, trusting
):
    await jobs.submit(a_spec())
    attempt = claim()
    left_over = {"job": attempt.job_id, "token": "another", "worker": "{}", "expires_at_ms": 1}
    client.hset(keys.lease("cpu:9@beta"), mapping=left_over)
    client.zadd(keys.leases, {"cpu:9@beta": 1})
    assert expire_leases(client, trusting) == []
    assert (await jobs.get(attempt.job_id)).status is Status.RUNNING
    assert not client.exists(keys.lease("cpu:9@beta"))


@anyio
async def test_a_job_lost_on_its_last_attempt_fails_as_worker_lost(jobs, a_spec, claim, run_out, client, trusting):
    job_id = (await jobs.submit(a_spec())).job.id
    for _ in range(MAX_ATTEMPTS):
        claim()
        run_out()
        assert expire_leases(client, trusting) == [job_id]

    job = await jobs.get(job_id)
    assert (job.status, job.status_reason, job.attempt) == (Status.FAILED, "worker_lost", MAX_ATTEMPTS)
    assert job.failure is not None
    assert (job.failure.failure_class, job.failure.reason) == (FailureClass.INFRASTRUCTURE, "worker_lost")


@anyio
async def test_a_lost_job_whose_cancel_was_requested_is_canceled(jobs, a_spec, claim, run_out, client, trusting):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    await jobs.cancel(job_id)
    run_out()
    assert expire_leases(client, trusting) == [job_id]
    assert (await jobs.get(job_id)).status is Status.CANCELED
    assert claim() is None


@anyio
async def test_many_reapers_at_once_take_a_lease_once(jobs, a_spec, claim, run_out, settings, trusting):
    job_id = (await jobs.submit(a_spec())).job.id
    claim()
    run_out()

    def take(_):
        with sync_client(settings) as own:
            return expire_leases(own, trusting)

    with ThreadPoolExecutor(8) as pool:
        taken = [found for one in pool.map(take, range(8)) for found in one]
    assert taken == [job_id]
    assert (await jobs.get(job_id)).version == 3


@anyio
async def test_a_lease_without_a_running_job_is_dropped(client, keys, trusting, run_out):
    client.hset(keys.lease(DEVICE), mapping={"job": "job_gone", "token": "t"})
    run_out()
    assert expire_leases(client, trusting) == []
    assert not client.exists(keys.lease(DEVICE), keys.leases, keys.job("job_gone"))


def test_a_server_that_has_just_come_up_is_given_one_lease(settings, a_spec):
    with EmbeddedServer() as young:
        there = settings.model_copy(update={"redis_url": young.url})
        with sync_client(there) as client:
            keys = Keys(there.namespace)
            client.hset(keys.lease(DEVICE), mapping={"job": "job_x", "token": "t", "expires_at_ms": 1})
            client.zadd(keys.leases, {DEVICE: 1})
            expire_leases(client, there)
            assert client.exists(keys.lease(DEVICE))
            expire_leases(client, there.model_copy(update={"lease_s": 0.0}))
            assert not client.exists(keys.lease(DEVICE))


def test_leases_may_expire_one_lease_after_redis_was_first_reached():
    outlook = LeaseGuard(lease_s=30)
    assert not outlook.clear(100)
    outlook.observe(1000, 100)
    assert not outlook.clear(129)
    outlook.observe(1030, 130)
    assert outlook.clear(130)


def test_after_an_outage_one_lease_has_to_pass_again():
    outlook = LeaseGuard(lease_s=30)
    outlook.observe(1000, 100)
    outlook.away()
    assert not outlook.clear(140)
    outlook.observe(1060, 160)
    assert not outlook.clear(189)
    assert outlook.clear(190)


@pytest.mark.parametrize(("redis_s", "believed"), [(1105, True), (1000, True), (4700, False)])
def test_a_clock_that_jumps_ahead_runs_out_no_lease(redis_s, believed):
    outlook = LeaseGuard(lease_s=30)
    outlook.observe(1000, 0)
    outlook.observe(1100, 100)
    outlook.observe(redis_s, 105)
    assert outlook.clear(105) is believed
