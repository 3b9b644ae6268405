"""How a waiting job stands: how many are before it, and whether a device has passed it over."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis.asyncio

from dyno.job import Status
from dyno.store.connect import store_errors
from dyno.store.keys import Keys


class Standing(NamedTuple):
    """See `dyno.job.QueuePlace`; without arguments that of a job that doesn't wait."""

    position: int | None = None
    passed_over: bool = False


async def standings(
    client: redis.asyncio.Redis, keys: Keys, records: Sequence[Mapping[str, str]]
) -> dict[str, Standing]:
    """Of those records that wait, by job id, in one question. Raises StoreUnavailable."""
    waiting = {
        record["id"]: record["queue"]
        for record in records
        if record.get("status") == Status.QUEUED and {"id", "queue"} <= record.keys()
    }
    if not waiting:
        return {}
    queues = sorted(set(waiting.values()))
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            for job_id, queue in waiting.items():
                pipeline.zrank(keys.queue(queue), job_id)
                pipeline.zscore(keys.queue(queue), job_id)
            for queue in queues:
                pipeline.hvals(keys.passed(queue))
            replies: list[Any] = await pipeline.execute()
    of_jobs, of_queues = replies[: 2 * len(waiting)], replies[2 * len(waiting) :]
    reached = {queue: max(map(float, scores), default=None) for queue, scores in zip(queues, of_queues, strict=True)}
    return {
        job_id: Standing(position, _is_passed(score, reached[queue]))
        for (job_id, queue), position, score in zip(waiting.items(), of_jobs[::2], of_jobs[1::2], strict=True)
    }


def _is_passed(score: float | None, reached: float | None) -> bool:
    return score is not None and reached is not None and score <= reached
