"""How a waiting job stands: how many are before it, whether a device has passed it over, when its turn is likely."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis.asyncio

from dyno.errors import StoreUnavailable
from dyno.models.job import Status
from dyno.store.connect import store_errors
from dyno.store.keys import Keys
from dyno.store.records import Standing


class Serving(NamedTuple):
    """A device that serves a queue: its profile, and in how many seconds it is free for a job behind all others."""

    profile: str
    free_s: float | None


@dataclass(frozen=True)
class Forecast:
    """When waiting jobs are likely to be claimed; see `dyno.store.forecast`. Empty where nothing is known.

    `starts_s`: by job, of those that were looked at. By queue, `line`: these jobs in their order; `serving`: the
    devices that take its jobs. `longer`: the queues with more jobs than were looked at.
    """

    starts_s: Mapping[str, float | None] = field(default_factory=dict)
    line: Mapping[str, Sequence[str]] = field(default_factory=dict)
    serving: Mapping[str, Sequence[Serving]] = field(default_factory=dict)
    longer: Collection[str] = ()

    def eta_s(
        self, job_id: str, queue: str, position: int | None, running: Collection[str] = (), fits: str = ""
    ) -> float | None:
        """Seconds until a queued job starts; None if unknown. `fits`: of its record, see `dyno.store.fitting`.

        A job queued after the forecast starts when the forecast's job at its position would, or the next one; jobs of
        the forecast that are `running` now are left out. Beyond the forecast's last job, the time grows in proportion
        to the position.
        """
        if job_id in self.starts_s:
            return self.starts_s[job_id]
        takers = [each for each in self.serving.get(queue, ()) if f"{each.profile}-" not in fits]
        if position is None or not takers:
            return None
        line = self.line.get(queue, ())
        turns_s = [self.starts_s[each] for each in line]
        position += len(set(line).intersection(running))
        if position < len(turns_s):
            return turns_s[position]
        if queue not in self.longer:
            return min((each.free_s for each in takers if each.free_s is not None), default=None)
        last_s = turns_s[-1] if turns_s else None
        return None if last_s is None else last_s * (position + 1) / len(turns_s)


Foresee = Callable[[], Awaitable[Forecast]]


async def foresee_nothing() -> Forecast:
    return Forecast()


async def standings(
    client: redis.asyncio.Redis, keys: Keys, records: Sequence[Mapping[str, str]], foresee: Foresee
) -> dict[str, Standing]:
    """Of those records that wait, by job id, in one question and what `foresee` asks. Raises StoreUnavailable."""
    waiting = {
        record["id"]: record
        for record in records
        if record.get("status") == Status.QUEUED and {"id", "queue"} <= record.keys()
    }
    if not waiting:
        return {}
    queues = sorted({record["queue"] for record in waiting.values()})
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            for job_id, record in waiting.items():
                pipeline.zrank(keys.queue(record["queue"]), job_id)
                pipeline.zscore(keys.queue(record["queue"]), job_id)
            for queue in queues:
                pipeline.hvals(keys.passed(queue))
            _ask_what_runs(pipeline, keys)
            *replies, running = await pipeline.execute()
    forecast = await foresee()
    of_jobs, of_queues = replies[: 2 * len(waiting)], replies[2 * len(waiting) :]
    reached = {queue: max(map(float, scores), default=None) for queue, scores in zip(queues, of_queues, strict=True)}
    return {
        job_id: Standing(
            position, _is_passed(score, reached[record["queue"]]), _eta_s(forecast, record, position, running)
        )
        for (job_id, record), position, score in zip(waiting.items(), of_jobs[::2], of_jobs[1::2], strict=True)
    }


async def standing_of(
    client: redis.asyncio.Redis, keys: Keys, record: Mapping[str, str], position: int | None, foresee: Foresee
) -> Standing:
    """Of a job that has just been queued at that place, null where it doesn't wait."""
    if position is None:
        return Standing()
    try:
        with store_errors():
            running = await _ask_what_runs(client, keys)
    except StoreUnavailable:  # it is queued all the same, and its caller is to hear of that
        return Standing(position)
    return Standing(position, eta_s=_eta_s(await foresee(), record, position, running))


def _ask_what_runs(client: redis.asyncio.Redis, keys: Keys) -> Any:
    return client.zrange(keys.jobs_with_status(Status.RUNNING), 0, -1)


def _eta_s(
    forecast: Forecast, record: Mapping[str, str], position: int | None, running: Collection[str]
) -> float | None:
    return forecast.eta_s(record["id"], record["queue"], position, running, record.get("fits", ""))


def _is_passed(score: float | None, reached: float | None) -> bool:
    return score is not None and reached is not None and score <= reached
