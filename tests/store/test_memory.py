"""The memory that a job takes in Redis, as the shipped configurations set it up."""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
from pathlib import Path
from typing import Any

import pytest

from dyno.models.job import Progress
from dyno.models.result import PartialMetrics, Result, RunSamples
from dyno.store.jobs import Jobs
from dyno.store.leases import LogPiece
from dyno.store.redis import async_client

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[2]
QUEUED, QUEUED_BYTES = 4000, 2700
DONE = 100
RECORDED = ROOT / "docs" / "results" / "recorded" / "reproduction"
PRINTED = "WARNING: a line as TensorFlow prints it at the start of a run\n" * 6


def _used_bytes(client, keys):
    """Without the stream of all jobs' events, which has a bounded length, and without what waits to be written."""
    client.xtrim(keys.events, maxlen=0, approximate=False)
    told: Any = client.info("memory")
    return int(told["used_memory"] - told["mem_aof_buffer"] - told["mem_clients_normal"])


async def test_a_queued_job_takes_no_more_than_its_part(settings, a_spec, client, keys):
    spec = a_spec(labels={"run": "nightly"}, params={"n": 4096, "repeats": 100, "dtype": "float32", "mode": "chain"})

    async def submit(jobs, number):
        digest = hashlib.sha256(str(number).encode()).hexdigest()
        await jobs.submit(spec, fits={"0123456789ab": True}, idempotency_key=f"key {number}", body_sha256=digest)

    async with async_client(settings) as shared:
        jobs = Jobs(shared, settings)
        await submit(jobs, -1)
        before = _used_bytes(client, keys)
        for start in range(0, QUEUED, 100):
            await asyncio.gather(*(submit(jobs, start + each) for each in range(100)))
    assert (_used_bytes(client, keys) - before) / QUEUED < QUEUED_BYTES


@pytest.mark.parametrize(
    ("example", "printed", "most_bytes"),
    [
        ("matmul", "", 8000),
        pytest.param("resnet50", "", 8000, marks=pytest.mark.verify),
        pytest.param("fashion", "", 8000, marks=pytest.mark.verify),
        ("fashion", PRINTED, 9000),
        pytest.param("cifar10_1024", "", 9000, marks=pytest.mark.verify),
    ],
)
async def test_a_finished_job_takes_no_more_than_its_part(
    jobs, a_spec, claim, leases, client, keys, example, printed, most_bytes
):
    result = Result.model_validate(json.loads((RECORDED / f"{example}.json").read_text())["result"])

    async def finish():
        job_id = (await jobs.submit(a_spec(params={"n": 512}))).job.id
        attempt = claim()
        piece = LogPiece(0, printed) if printed else None
        leases.heartbeat(attempt, Progress(phase="compile", run=1, runs=5, fraction=0.1), piece)
        for number in range(20):
            progress = Progress(phase="sampling", run=1, runs=5, completed=number, total=200, fraction=0.1)
            run = number // 4 + 1
            so_far = PartialMetrics(run=run, runs=5, metrics=result.metrics) if run < 5 else None
            leases.heartbeat(attempt, progress, so_far=so_far)
        own = result.model_copy(update={"job": job_id})
        assert leases.finish(attempt, "succeed", result=own, samples=[_samples(run) for run in range(5)])

    await finish()
    before = _used_bytes(client, keys)
    for _ in range(DONE):
        await finish()
    assert (_used_bytes(client, keys) - before) / DONE < most_bytes


def _samples(run):
    """Times with the digits that a clock of nanoseconds gives."""
    times = random.Random(run)
    seconds = [round(times.gauss(0.02, 0.001), 9) for _ in range(25)]
    return RunSamples(
        run=run,
        warmup=seconds[20:],
        samples=seconds[:20],
        sample_cpu_s=[(round(2 * each, 6), 0.0) for each in seconds[:20]],
        executions_per_sample=1,
    )
