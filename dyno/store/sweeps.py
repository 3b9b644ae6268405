"""Sweeps in the store: submit all jobs of a sweep in one step; read, list and cancel sweeps; drop sweeps without jobs.

One script queues all jobs of a sweep and writes its record. So neither a crash of the API nor a limit leaves a part of
a sweep behind. A sweep is kept until a daily check finds that all of its jobs are gone.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import redis
import redis.asyncio

from dyno import errors
from dyno.models.api_key import Limits
from dyno.models.baseline import Baseline
from dyno.models.job import SpecWarning
from dyno.models.spec import Spec
from dyno.models.sweep import Stop, SweepRecord
from dyno.settings import Settings
from dyno.store import api_keys, jobs, placement, records
from dyno.store.list_pages import IndexPosition, JobIndex, RecordPage, read_page
from dyno.store.pipelining import PipeliningRedis
from dyno.store.redis import SCRIPT_SOURCES, SWEEP_ID, Keys, Script, index_errors, store_errors, unless_wrong_type

CHECK_EVERY_S = 86_400.0
_STOPPED = "stopped "  # prefix of field names in the record; the place of a point follows
_AT_ONCE = 20  # sweeps that one call of `drop_empty` checks: 4,000 jobs, 10 ms of Redis


@dataclass(frozen=True)
class NewJob:
    """The job of a point: the arguments of `Jobs.submit`, and an id that the caller has chosen."""

    id: str
    spec: Spec
    warnings: Sequence[SpecWarning]
    fits: dict[str, bool]
    baseline: Baseline | None = None


@dataclass(frozen=True)
class StoredSweep:
    """`record`: the sweep as requested. `stopped`: stops by the point's position. The rest is in the jobs' records."""

    id: str
    owner: str | None
    created_at: datetime
    cancel_requested_at: datetime | None
    record: SweepRecord
    stopped: Mapping[int, Stop] = field(default_factory=dict)

    @property
    def job_ids(self) -> list[str]:
        return [job_id for point in self.record.points for job_id in point.jobs]


class Sweeps:
    """The sweeps that the viewer of `jobs` may see. Every method raises StoreUnavailable while Redis can't be used."""

    def __init__(self, client: PipeliningRedis, settings: Settings, jobs: jobs.Jobs) -> None:
        self._client, self._jobs, self._namespace = client, jobs, settings.namespace
        self._keys = Keys(settings.namespace)
        self._submit = client.cached_script(SCRIPT_SOURCES[Script.SUBMIT_SWEEP])
        self._stop = client.cached_script(SCRIPT_SOURCES[Script.STOP_POINT])
        self._statuses = client.cached_script(SCRIPT_SOURCES[Script.STATUSES])
        self._cancel = client.cached_script(SCRIPT_SOURCES[Script.CANCEL_SWEEP])

    async def submit(
        self,
        sweep_id: str,
        record: SweepRecord,
        new: Sequence[NewJob],
        *,
        idempotency_key: str | None = None,
        body_sha256: str = "",
        traceparent: str | None = None,
    ) -> tuple[str, bool]:
        """Queue the jobs in the given order. Returns the sweep's id, and whether an earlier request made it.

        Raises IdempotencyKeyReused, JobExpired, QueueFull and LimitReached; then no job is queued.
        """
        owner = self._jobs.viewer.owner
        keys = [self._keys.sweep(sweep_id)]
        if idempotency_key is not None:
            keys.append(self._keys.idempotency(owner, idempotency_key))
        text = record.model_dump_json(by_alias=True)
        args: list[Any] = [self._namespace, sweep_id, owner or "", text, round(CHECK_EVERY_S * 1000)]
        args += [body_sha256, jobs.IDEMPOTENCY_S * 1000, self._jobs.max_queued, self._jobs.max_queued_per_key]
        args += [int(record.stop_hopeless or bool(record.batch_limits)), len(new)]
        for job in new:
            kept = None if job.baseline is None else job.baseline.model_dump_json(by_alias=True)
            more = {"traceparent": traceparent, "baseline": kept}
            fields = self._jobs.new_record(job.spec, job.warnings, job.fits, **more)
            queue = placement.queue_for(job.spec.device, job.spec.framework)
            job_args = self._jobs.submit_args(job.id, job.spec, queue, fields)
            args += [len(job_args), *job_args]
        with store_errors():
            reply: Any = await self._submit(keys, args)
        self._check_accepted(reply, len(new))
        return str(reply[1]), reply[0] == "replayed"

    def _check_accepted(self, reply: Sequence[Any], count: int) -> None:
        """Raises the error for a refusal by submit_sweep.lua."""
        outcome, *rest = reply
        if outcome == "key_reused":
            raise errors.IdempotencyKeyReused("this idempotency key was used with another body in the last 24 hours")
        if outcome == "gone":
            raise errors.JobExpired(f"this idempotency key made {rest[0]}, which has expired; use a new key")
        if outcome == "full":
            refused: errors.LimitReached = api_keys.queue_full(self._jobs.max_queued, rest[0])
        elif outcome in Limits.model_fields:
            refused = api_keys.limit_reached(outcome, *rest)
        else:
            return
        limit = (refused.policy, refused.quota, refused.window_s, refused.retry_after_s)
        raise type(refused)(f"the sweep has {count} jobs; {refused.detail}", *limit)

    async def earlier(self, idempotency_key: str, body_sha256: str) -> str | None:
        """The sweep that the same key and body made in the last 24 hours; see `Jobs.earlier`."""
        with store_errors():
            record: Any = await self._client.hgetall(self._keys.idempotency(self._jobs.viewer.owner, idempotency_key))
            is_same = record.get("body_sha256") == body_sha256 and SWEEP_ID.fullmatch(record.get("job", ""))
            return record["job"] if is_same and await self._client.exists(self._keys.sweep(record["job"])) else None

    async def get(self, sweep_id: str) -> StoredSweep:
        """Raises UnknownSweep, RecordUnreadable."""
        fields: Any = {}
        if SWEEP_ID.fullmatch(sweep_id):
            with store_errors():
                fields = await self._client.hgetall(self._keys.sweep(sweep_id))
        if "sweep" not in fields or not self._jobs.viewer.sees(fields.get("owner")):
            raise errors.UnknownSweep(f'there is no sweep "{sweep_id[:64]}"')
        return _stored(sweep_id, fields)

    async def page(self, cursor: str | None, limit: int) -> RecordPage[StoredSweep]:
        """A page of readable sweeps, newest first. Raises InvalidSpec for an invalid cursor."""
        viewer = self._jobs.viewer
        index = self._keys.sweeps if viewer.sees_all else self._keys.sweeps_of_owner(viewer.owner or "")

        async def read(places: Sequence[IndexPosition]) -> list[StoredSweep | None]:
            return await self._read([sweep_id for _, sweep_id in places])

        async with index_errors(self._client, self._keys):
            return await read_page(self._client, JobIndex(index, None, None), read, cursor, limit)

    async def statuses(self, sweeps: Sequence[StoredSweep]) -> list[list[str]]:
        """For each sweep the statuses of its jobs, in the order of `job_ids`; "gone" for a job without a record."""
        with store_errors():
            sent = [(args, self._statuses.send([], args)) for args in ([self._namespace, *s.job_ids] for s in sweeps)]
            return [await self._statuses([], args, reply) for args, reply in sent]

    async def cancel(self, sweep_id: str) -> StoredSweep:
        """Cancel waiting jobs at once, and ask the workers of running jobs to stop them.

        Raises UnknownSweep, and SweepFinished if all jobs were done before the first cancel.
        """
        sweep = await self.get(sweep_id)
        with store_errors():
            reply: Any = await self._cancel([self._keys.sweep(sweep_id)], [self._namespace, *sweep.job_ids])
        if reply[0] == "finished":
            raise errors.SweepFinished(f"{sweep_id} can't be canceled: all of its jobs are done")
        return await self.get(sweep_id)

    async def watched(self) -> list[StoredSweep]:
        """The sweeps whose points may be stopped, of all viewers."""
        with store_errors():
            ids: Any = await self._client.smembers(self._keys.sweeps_watched)
        return [sweep for sweep in await self._read(sorted(ids)) if sweep is not None]

    async def unwatch(self, sweep_id: str) -> None:
        with store_errors():
            await self._client.srem(self._keys.sweeps_watched, sweep_id)

    async def stop(self, sweep: StoredSweep, position: int, why: Stop) -> bool:
        """Cancel the waiting jobs of a point, and record the reason. Returns False if the point was stopped before."""
        args = [self._namespace, position, why.model_dump_json(), *sweep.record.points[position].jobs]
        with store_errors():
            outcome = await self._stop([self._keys.sweep(sweep.id)], args)
        return bool(outcome == "stopped")

    async def _read(self, sweep_ids: Sequence[str]) -> list[StoredSweep | None]:
        """The sweeps; None for a sweep that is gone or can't be read."""
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for sweep_id in sweep_ids:
                    pipeline.hgetall(self._keys.sweep(sweep_id))
                replies = await pipeline.execute(raise_on_error=False) if sweep_ids else []
            records_read: list[dict[str, str]] = [unless_wrong_type(reply) or {} for reply in replies]
        return [_readable(sweep_id, fields) for sweep_id, fields in zip(sweep_ids, records_read, strict=True)]


def _readable(sweep_id: str, fields: dict[str, str]) -> StoredSweep | None:
    with contextlib.suppress(errors.RecordUnreadable):  # logged already
        return _stored(sweep_id, fields) if "sweep" in fields else None
    return None


def _stored(sweep_id: str, fields: dict[str, str]) -> StoredSweep:
    canceled_at = fields.get("cancel_requested_at")
    what, stopped = f"the sweep {sweep_id}", dict[int, Stop]()
    for name, text in fields.items():
        if name.startswith(_STOPPED):
            stopped[int(name.removeprefix(_STOPPED))] = records.parse_stored(Stop.model_validate_json, text, what)
    return StoredSweep(
        id=sweep_id,
        owner=fields.get("owner"),
        created_at=records.to_datetime(fields["created_at"]),
        cancel_requested_at=None if canceled_at is None else records.to_datetime(canceled_at),
        record=records.parse_stored(SweepRecord.model_validate_json, fields["sweep"], what),
        stopped=stopped,
    )


def drop_empty(client: redis.Redis, settings: Settings) -> list[str]:
    """Delete the sweeps that are due for a check and have no job any more. Returns their ids.

    Safe to run in several processes at once. Raises StoreUnavailable.
    """
    keys, dropped = Keys(settings.namespace), list[str]()
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        due: Any = client.zrange(keys.sweeps_due, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
        for sweep_id in due:
            # Reschedule first, so that a record that can't be read doesn't block the others.
            client.zadd(keys.sweeps_due, {sweep_id: now_ms + round(CHECK_EVERY_S * 1000)}, xx=True)
            fields: Any = client.hgetall(keys.sweep(sweep_id))
            sweep = _readable(sweep_id, fields)
            if fields and (sweep is None or client.exists(*map(keys.job, sweep.job_ids))):
                continue
            with client.pipeline(transaction=False) as pipeline:  # a full Redis refuses every transaction
                pipeline.srem(keys.sweeps_watched, sweep_id)
                pipeline.zrem(keys.sweeps_of_owner(fields.get("owner", "")), sweep_id)
                pipeline.zrem(keys.sweeps, sweep_id)
                pipeline.delete(keys.sweep(sweep_id))
                pipeline.zrem(keys.sweeps_due, sweep_id)  # last: if Redis dies in between, a later check continues
                pipeline.execute()
            dropped.append(sweep_id)
    return dropped
