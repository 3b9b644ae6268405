"""Schedules in Redis: named documents of each API key, and a ZSET of the times at which they are due.

A schedule is one document, with its last firings. Every write names the document that it replaces, and a firing also
queues its job in the same step (schedule.lua). So each due time is handled once, however many APIs run.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from dyno.errors import RecordUnreadable, UnknownSchedule
from dyno.models.api_key import Viewer
from dyno.models.job_schedule import JobSchedule
from dyno.settings import Settings
from dyno.store import jobs, placement
from dyno.store.named_documents import DocumentKind, NamedDocuments, StoredDocument
from dyno.store.pipelining import PipeliningRedis
from dyno.store.records import to_datetime
from dyno.store.redis import SCRIPT_SOURCES, Script, pipelined, store_errors
from dyno.store.sweeps import NewJob


class DueSchedule(NamedTuple):
    owner: str | None
    name: str
    due_ms: int


StoredSchedule = StoredDocument[JobSchedule]


class Schedules(NamedDocuments[JobSchedule]):
    """The viewer's schedules."""

    kind = DocumentKind(
        "schedule", JobSchedule, UnknownSchedule, lambda keys: keys.schedules, lambda keys: keys.schedule_owners
    )

    def __init__(self, client: PipeliningRedis, settings: Settings, viewer: Viewer) -> None:
        super().__init__(client, settings, viewer)
        self._most = settings.max_schedules
        self._script = client.cached_script(SCRIPT_SOURCES[Script.SCHEDULE])

    async def now(self) -> datetime:
        """The time by Redis' clock, which decides what is due."""
        with store_errors():
            return _time(await self._client.time())

    async def due(self) -> tuple[datetime, list[DueSchedule]]:
        """The time by Redis' clock, and the schedules of all keys that are due, the earliest first."""
        now = await self.now()
        with store_errors():
            members: Any = await self._client.zrange(
                self._keys.schedules_due, "-inf", _millis(now), byscore=True, withscores=True
            )
        due = [(*member.split(":", 1), int(score)) for member, score in members]
        return now, [DueSchedule(owner or None, name, due_ms) for owner, name, due_ms in due]

    async def put(self, new: JobSchedule) -> tuple[bool, JobSchedule]:
        """Save the viewer's schedule. If it replaces a schedule of that name, the firings and missed times are kept.

        Returns whether the name is new, and the schedule as it was saved. Raises LimitReached.
        """
        while True:
            before = await self.read(new.owner, new.name)
            after = new if before is None else _with_past(new, before)
            outcome, *_ = await self._write(before, after)
            if outcome == "limit":
                raise self._too_many(self._most)
            if outcome == "written":
                return before is None, after

    async def replace(self, before: StoredSchedule, after: JobSchedule, *, outcome: str = "", missed: int = 0) -> bool:
        """Write the schedule and count the outcome of a due time. If another API was faster, returns False instead."""
        reply = await self._write(before, after, outcome, missed)
        return bool(reply[0] == "written")

    async def fire(
        self, before: StoredSchedule, after: JobSchedule, job: NewJob, of_owner: jobs.Jobs, *, missed: int = 0
    ) -> bool:
        """Queue the job of a due time and write the schedule, both or neither. Returns False like `replace`.

        Raises QueueFull and LimitReached.
        """
        kept = None if job.baseline is None else job.baseline.model_dump_json(by_alias=True)
        record = of_owner.new_record(job.spec, job.warnings, job.fits, baseline=kept)
        queue = placement.queue_for(job.spec.device, job.spec.framework)
        arguments = of_owner.submit_args(job.id, job.spec, queue, record)
        reply = await self._write(before, after, "fired", missed, arguments)
        jobs.check_accepted(reply, of_owner.max_queued)
        return bool(reply[0] == "written")

    async def forget(self, due: DueSchedule) -> None:
        """Remove a deleted schedule from the due schedules."""
        keys = [self._keys.schedules(due.owner), self._keys.schedules_due, self._keys.schedule_owners]
        with store_errors():
            await self._script(keys, [self._keys.namespace, due.owner or "", due.name, "", "", "", self._most, "", 0])

    async def _write(
        self,
        before: StoredSchedule | None,
        after: JobSchedule,
        outcome: str = "",
        missed: int = 0,
        of_job: Sequence[Any] = (),
    ) -> Sequence[Any]:
        owner, text = after.owner or "", "" if before is None else before.text
        next_ms = _millis(after.next_firings[0]) if after.next_firings else ""
        keys = [self._keys.schedules(owner), self._keys.schedules_due, self._keys.schedule_owners]
        args = [self._keys.namespace, owner, after.name, text, after.model_dump_json(by_alias=True), next_ms]
        with store_errors():
            reply: Sequence[Any] = await self._script(keys, [*args, self._most, outcome, missed, *of_job])
        return reply

    async def delete(self, name: str) -> str | None:
        """Delete a schedule; its jobs stay. Returns its owner. Raises UnknownSchedule."""
        schedule = await self._find(name)
        from_due = ("zrem", self._keys.schedules_due, f"{schedule.owner or ''}:{name}")
        _, deleted = await pipelined(self._client, [from_due, ("hdel", self._hash(schedule.owner), name)])
        if not deleted:
            raise self._unknown(name)
        return schedule.owner


def _with_past(new: JobSchedule, before: StoredSchedule) -> JobSchedule:
    try:
        past = before.document
    except RecordUnreadable:
        return new
    kept = {name: getattr(past, name) for name in ("firings", "missed", "missed_count")}
    return new.model_copy(update=kept)


def _time(reply: tuple[int, int]) -> datetime:
    return to_datetime(f"{reply[0]}.{reply[1]:06}")


def _millis(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
