"""How a waiting job stands: how many are before it, whether a device has passed it over, when its turn is likely."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis.asyncio

from dyno.job import Status
from dyno.store.connect import store_errors
from dyno.store.keys import Keys


class Standing(NamedTuple):
    """See `dyno.job.QueuePlace`; without arguments that of a job that doesn't wait."""

    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = None


@dataclass(frozen=True)
class Forecast:
    """When waiting jobs are likely to be claimed; see `dyno.store.forecast`. Empty where nothing is known.

    `starts_s`: by job, of those that were looked at. `behind`: of queues with more jobs than that, how many were looked
    at and when the last of them is likely to be claimed.
    """

    starts_s: Mapping[str, float | None] = field(default_factory=dict)
    behind: Mapping[str, tuple[int, float | None]] = field(default_factory=dict)

    def eta_s(self, job_id: str, queue: str, position: int | None) -> float | None:
        """Of a job that waits. Where it wasn't looked at, in proportion to its place; null where nothing is known."""
        if job_id in self.starts_s:
            return self.starts_s[job_id]
        seen, last_s = self.behind.get(queue, (0, None))
        if position is None or last_s is None or position < seen:
            return None
        return last_s * (position + 1) / seen


Foresee = Callable[[], Awaitable[Forecast]]


async def foresee_nothing() -> Forecast:
    return Forecast()


async def standings(
    client: redis.asyncio.Redis, keys: Keys, records: Sequence[Mapping[str, str]], foresee: Foresee
) -> dict[str, Standing]:
    """Of those records that wait, by job id, in one question and what `foresee` asks. Raises StoreUnavailable."""
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
    forecast = await foresee()
    of_jobs, of_queues = replies[: 2 * len(waiting)], replies[2 * len(waiting) :]
    reached = {queue: max(map(float, scores), default=None) for queue, scores in zip(queues, of_queues, strict=True)}
    return {
        job_id: Standing(position, _is_passed(score, reached[queue]), forecast.eta_s(job_id, queue, position))
        for (job_id, queue), position, score in zip(waiting.items(), of_jobs[::2], of_jobs[1::2], strict=True)
    }


def _is_passed(score: float | None, reached: float | None) -> bool:
    return score is not None and reached is not None and score <= reached
