"""Who waits, in the order in which jobs are claimed, and what runs meanwhile: read for `dyno.store.forecast`."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import redis.asyncio
from pydantic_core import from_json

from dyno.models.job import SCHEMA, Status
from dyno.store.connect import store_errors
from dyno.store.keys import Keys


class InLine(NamedTuple):
    """A job that waits; `spec` as it is stored, empty where it is of a schema that no worker of this version takes."""

    id: str
    queue: str
    spec: str


class Running(NamedTuple):
    """A job that has its device since `elapsed_s`; `eta_s` is what its own progress tells."""

    spec: str
    elapsed_s: float
    eta_s: float | None


@dataclass(frozen=True)
class Line:
    """`longer`: the queues that hold more jobs than are in `jobs`. `running` by device."""

    jobs: Sequence[InLine]
    longer: Collection[str]
    running: Mapping[str, Running]


async def read_line(client: redis.asyncio.Redis, keys: Keys, served: Collection[str], most: int) -> Line:
    """The first `most` jobs over the queues that are `served`, and all that run. Raises StoreUnavailable."""
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            pipeline.smembers(keys.queues)
            pipeline.zrange(keys.jobs_with_status(Status.RUNNING), 0, -1)
            named, running = await pipeline.execute()
        queues = sorted({str(name) for name in named} & set(served))
        async with client.pipeline(transaction=False) as pipeline:
            for queue in queues:
                pipeline.zrange(keys.queue(queue), 0, most - 1, withscores=True)
                pipeline.zcard(keys.queue(queue))
            for job_id in running:
                pipeline.hmget(keys.job(job_id), "device", "spec", "started_at", "progress")
            pipeline.time()
            *replies, (seconds, micros) = await pipeline.execute()
        fronts, lengths = replies[: 2 * len(queues) : 2], replies[1 : 2 * len(queues) : 2]
        line = sorted((score, job, queue) for queue, front in zip(queues, fronts, strict=True) for job, score in front)
        specs = await _specs(client, keys, [job for _, job, _ in line[:most]])
    jobs = [InLine(job, queue, spec) for (_, job, queue), spec in zip(line[:most], specs, strict=True)]
    seen = [job.queue for job in jobs]
    longer = {queue for queue, length in zip(queues, lengths, strict=True) if length > seen.count(queue)}
    return Line(jobs, longer, dict(_running(replies[2 * len(queues) :], seconds + micros / 1e6)))


async def _specs(client: redis.asyncio.Redis, keys: Keys, job_ids: Sequence[str]) -> list[str]:
    async with client.pipeline(transaction=False) as pipeline:
        for job_id in job_ids:
            pipeline.hmget(keys.job(job_id), "spec", "schema")
        records: list[Any] = await pipeline.execute()
    return [spec if spec and int(schema or 0) <= SCHEMA else "" for spec, schema in records]


def _running(records: Sequence[Any], now_s: float) -> Iterator[tuple[str, Running]]:
    for device, spec, started_at, progress in records:
        if device and spec and started_at:  # else it has ended since
            told = from_json(progress) if progress else {}
            yield device, Running(spec, max(0.0, now_s - float(started_at)), told.get("eta_s"))
