"""Memory below Redis' `maxmemory` is reserved for accepted jobs, and a result outlives a full Redis."""

from __future__ import annotations

import contextlib
import random
from typing import Any

import pytest

from dyno.errors import NoResult, StoreUnavailable
from dyno.models.job import Progress
from dyno.models.result import RunSamples
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.jobs import read_log
from dyno.store.leases import LogPiece
from dyno.store.redis import RESERVED_BYTES, check_server_async, sync_client
from tests.results import a_result
from workers.outcome import Succeeded

pytestmark = pytest.mark.anyio

SAMPLES = [RunSamples(run=0, warmup=[], samples=[0.1], sample_cpu_s=[(0.1, 0.0)], executions_per_sample=1)]
ROOM_BYTES = 600_000  # for 60 jobs
RESULT_BYTES = 3000


@pytest.fixture
def settings():
    with EmbeddedServer() as server:
        yield Settings(redis_url=server.url)


@pytest.fixture
def client(settings):
    with sync_client(settings) as client:
        yield client


@pytest.fixture
def limit(client):
    """Set `maxmemory` to as many bytes more than are used now."""

    def limited(more):
        memory: Any = client.info("memory")
        bound = int(memory["used_memory"] - memory["mem_not_counted_for_evict"] + more)
        client.config_set("maxmemory", bound)
        return bound

    return limited


def _claim(leases, worker):
    claim = leases.claim("cpu:0@alpha", ["cpu"], worker)
    assert claim is not None
    return claim


def _end(leases, claim):
    noise = random.Random(claim.job_id).randbytes(RESULT_BYTES).hex()
    leases.heartbeat(claim, Progress(phase="sampling", run=1, runs=1), LogPiece(0, noise[:500]))
    result = a_result(claim.job_id).model_copy(update={"details": {"noise": noise}})  # as long when it is compressed
    assert Succeeded(result, []).write(leases, claim)


@pytest.mark.silent("SAMPLES_NOT_STORED")
async def test_no_more_jobs_are_accepted_than_have_room_when_they_are_done(
    jobs, a_spec, leases, worker, client, limit, async_redis, settings
):
    await jobs.submit(a_spec())
    _end(leases, _claim(leases, worker))  # Redis keeps the scripts
    bound = limit(ROOM_BYTES)
    accepted = 0
    with contextlib.suppress(StoreUnavailable):
        while accepted < 1000:
            await jobs.submit(a_spec())
            accepted += 1
    assert 20 < accepted < 100
    with pytest.raises(StoreUnavailable, match=f"reserved for the results of {accepted} queued and running jobs"):
        await jobs.submit(a_spec())
    assert await check_server_async(async_redis, settings) == [], "reads, cancels and workers go on"
    for _ in range(accepted):
        claim = _claim(leases, worker)
        _end(leases, claim)
    memory: Any = client.info("memory")
    assert memory["used_memory"] - memory["mem_not_counted_for_evict"] < bound
    assert not (await jobs.result(claim.job_id)).warnings


async def test_a_replayed_submit_needs_no_room(jobs, a_spec, limit):
    first = await jobs.submit(a_spec(), idempotency_key="key", body_sha256="x")
    for _ in range(40):
        await jobs.submit(a_spec())
    limit(300_000)
    with pytest.raises(StoreUnavailable):
        await jobs.submit(a_spec())
    assert (await jobs.submit(a_spec(), idempotency_key="key", body_sha256="x")).job.id == first.job.id


@pytest.mark.provokes("SAMPLES_NOT_STORED")
async def test_above_the_limit_a_result_is_kept_without_samples_and_log(
    jobs, a_spec, claim, leases, limit, settings, async_redis
):
    job = (await jobs.submit(a_spec())).job
    attempt = claim()
    leases.heartbeat(attempt, None, LogPiece(0, "before\n"))
    limit(-1)
    for number in range(1, 4):
        assert not leases.heartbeat(attempt, None, LogPiece(number, "x" * 1000)).superseded
    assert Succeeded(a_result(job.id), SAMPLES).write(leases, attempt)
    [raised] = (await jobs.result(job.id)).warnings
    assert raised.code == "SAMPLES_NOT_STORED"
    with pytest.raises(NoResult):
        await jobs.samples(job.id)
    assert (await read_log(async_redis, settings, job.id)).text == "before\n[Redis is full: output was dropped]\n"


@pytest.mark.provokes("SAMPLES_NOT_STORED")
async def test_samples_and_output_leave_alone_what_is_reserved_for_waiting_jobs(
    jobs, a_spec, claim, leases, limit, settings, async_redis
):
    job = (await jobs.submit(a_spec())).job
    attempt = claim()
    for _ in range(20):
        await jobs.submit(a_spec())
    limit(15 * RESERVED_BYTES)
    assert not leases.heartbeat(attempt, None, LogPiece(0, "x" * 1000)).superseded
    assert Succeeded(a_result(job.id), SAMPLES).write(leases, attempt)
    with pytest.raises(NoResult):
        await jobs.samples(job.id)
    assert (await read_log(async_redis, settings, job.id)).text == "[Redis is full: output was dropped]\n"
