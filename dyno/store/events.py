"""The events of one job or of all: reading them in pages, and waiting for the next change.

A stream entry may hold several events. A position is behind an entry, or within the entry that follows:
`1763779000000-0.2` is behind the first two events of the entry after that id, so a client that was cut off between
two events resumes with the second. One reader of the stream per process notifies everyone who waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis.asyncio
from pydantic import ValidationError

from dyno.asyncio_tasks import cancel_and_wait
from dyno.errors import StoreUnavailable
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.event import GapEvent, JobEvent, LogEvent, MetricEvent, ProgressEvent, StatusEvent
from dyno.models.job import DONE, Event, Holder, Progress, Status, WorkerRef
from dyno.settings import Settings
from dyno.store.records import parse_result_summary, to_datetime
from dyno.store.redis import Keys, store_errors

log = logging.getLogger(__name__)

_PAGE_ENTRIES = 32  # entries; each may have a piece of log, 16 KiB: what one slow reader can hold
# No result has a hundred metrics, and each place is a question of its own to Redis.
_POSITION = re.compile(r"(\d{1,19})-(\d{1,19})(?:\.(\d{1,2}))?", re.ASCII)
_BEGINNING = "0-0"
_Fields = Mapping[str, str]


class EventPosition(NamedTuple):
    """Behind entry `entry`, and behind so many events of the one after it."""

    entry: str = _BEGINNING
    told: int = 0

    def __str__(self) -> str:
        return f"{self.entry}.{self.told}" if self.told else self.entry


_PageRequest = tuple[str | None, EventPosition, Viewer]


class EventPage(NamedTuple):
    """What comes next, and the place behind it. `ends`: of one job, which is done, or gone. `gap`: what came before
    these may be gone."""

    events: Sequence[JobEvent]
    place: EventPosition
    ends: bool = False
    gap: GapEvent | None = None


class _Referenced(NamedTuple):
    """What there is of an entry's job: whether its record, and what the entry only refers to, a piece of log say."""

    is_there: bool
    text: str | None


def parse_event_position(text: str) -> EventPosition | None:
    """None where it is none that an event has."""
    found = _POSITION.fullmatch(text)
    return EventPosition(f"{int(found[1])}-{int(found[2])}", int(found[3] or 0)) if found else None


class EventReader:
    """Every method raises StoreUnavailable while Redis is away."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._asked: dict[_PageRequest, asyncio.Task[EventPage]] = {}

    async def newest(self) -> EventPosition:
        """Behind all that has happened to any job."""
        with store_errors():
            entries: Any = await self._client.xrevrange(self._keys.events, count=1)
        return EventPosition(str(entries[0][0])) if entries else EventPosition()

    async def page(self, job_id: str | None, place: EventPosition, viewer: Viewer = EVERYBODY) -> EventPage:
        """What is behind `place`, as much as is sent at once, without what the viewer may not see: of that nothing more
        is read either. Of one job all is told: whether the viewer sees it is known by then. Of jobs whose records are
        gone, because they were deleted say, nothing is.

        All who are told of the same news share one question.
        """
        question = (job_id, place, EVERYBODY if job_id or viewer.sees_all else viewer)
        if (asked := self._asked.get(question)) is None:
            asked = self._asked[question] = asyncio.create_task(self._page_soon(question))
            asked.add_done_callback(_consume_error)
        return await asyncio.shield(asked)

    async def _page_soon(self, question: _PageRequest) -> EventPage:
        await asyncio.sleep(0)  # the others ask now
        del self._asked[question]  # whoever asks from here on may have been told of more than this will find
        return await self._page(*question)

    async def _page(self, job_id: str | None, place: EventPosition, viewer: Viewer) -> EventPage:
        entries, gap = await self._entries(job_id, place)
        beside = await self._beside([each for each in entries if viewer.sees(each[1].get("owner"))])
        events: list[JobEvent] = []
        for entry, fields in entries:
            if (known := beside.get(entry)) is not None and known.is_there:
                events += _with_positions(list(_events_of(entry, fields, known.text)), place)
            place = EventPosition(entry)
        done = bool(events) and isinstance(events[-1], StatusEvent) and events[-1].done
        return EventPage(
            events, place, ends=job_id is not None and (done or await self._is_over(job_id, entries)), gap=gap
        )

    async def _is_over(self, job_id: str, entries: Sequence[Any]) -> bool:
        """Whether nothing more comes though no event said so: the job's stream has gone, with all of the job."""
        if entries:
            return False
        with store_errors():
            return not await self._client.exists(self._keys.job_events(job_id))

    async def _entries(
        self, job_id: str | None, after: EventPosition
    ) -> tuple[list[tuple[str, _Fields]], GapEvent | None]:
        """Those behind that place, and whether others between may be gone: the streams keep a bounded number, and drop
        the oldest first. So where the last one that was told is kept, or one before it, nothing is missing."""
        stream = self._keys.events if job_id is None else self._keys.job_events(job_id)
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.xread({stream: after.entry}, count=_PAGE_ENTRIES)
                pipeline.xrevrange(stream, max=after.entry, count=1)
                found, kept = await pipeline.execute()
        entries = [(str(entry), fields) for entry, fields in found[0][1]] if found else []
        if kept or not entries or after.entry == _BEGINNING:
            return entries, None
        return entries, GapEvent(id=str(after), after=str(after), oldest=entries[0][0])

    async def _beside(self, entries: Sequence[tuple[str, _Fields]]) -> dict[str, _Referenced]:
        async with self._client.pipeline(transaction=False) as pipeline:
            asked = {}
            for entry, fields in entries:
                pipeline.exists(self._keys.job(fields.get("job", "")))
                asked[entry] = self._ask(pipeline, fields)
            with store_errors():
                answers: Any = iter(await pipeline.execute() if entries else ())
        return {
            entry: _Referenced(bool(next(answers)), next(answers) if each else None) for entry, each in asked.items()
        }

    def _ask(self, pipeline: Any, fields: _Fields) -> bool:
        job_id = fields.get("job", "")
        if "log" in fields:
            pipeline.hget(self._keys.log(job_id), fields["log"])
        elif fields.get("event") == Event.SUCCEED:
            pipeline.get(self._keys.result(job_id))
        else:
            return False
        return True


def _consume_error(asked: asyncio.Task[EventPage]) -> None:
    """Its failure is told to those who asked; where all of them have left, to nobody."""
    if not asked.cancelled():
        asked.exception()


def _events_of(entry: str, fields: _Fields, beside: str | None) -> Iterator[JobEvent]:
    """Always as many for the same entry, as far as they can be read: places count them."""
    try:
        told = {"id": entry, "job": fields["job"], "owner": fields.get("owner")}
        known: dict[str, Any] = told | {"version": int(fields["version"]), "at": to_datetime(fields["at"])}
        event, detail = fields["event"], fields.get("detail")
        if event == Event.HEARTBEAT:
            if "log" in fields:
                yield LogEvent(**known, text=beside)
            if detail:
                yield ProgressEvent(**known, progress=Progress.model_validate_json(detail))
            return
        status = Status(fields["status"])
        if figures := parse_result_summary(beside):
            for metric in figures.metrics:
                yield MetricEvent(**known, verdict=figures.verdict, metric=metric)
        worker = WorkerRef.model_validate_json(detail) if event == Event.CLAIM and detail else None
        reason = None if worker else detail
        held_by = Holder.model_validate_json(fields["held_by"]) if "held_by" in fields else None
        known |= {"event": event, "status": status, "done": status in DONE, "reason": reason}
        yield StatusEvent(**known, worker=worker, held_by=held_by)
    except (ValidationError, ValueError, KeyError) as error:  # of another version, say
        log.warning("the event %s can't be told: %s: %s", entry, type(error).__name__, error)


def _with_positions(events: Sequence[JobEvent], before: EventPosition) -> list[JobEvent]:
    """Those of one entry that aren't told yet; all but the last have a place within it."""
    last = len(events) - 1
    return [
        each if index == last else each.model_copy(update={"id": str(EventPosition(before.entry, index + 1))})
        for index, each in enumerate(events)
        if index >= min(before.told, last)
    ]


BLOCK_S = 10.0  # a reader that hears nothing for longer than this and a margin has lost its connection
_MARGIN_S = 5.0
_RECONNECT_S = 0.5
_BATCH_ENTRIES = 1000


@dataclass(eq=False)
class _Waiter:
    after_version: int
    told: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeNotifier:
    """Needs a client without a socket timeout: `async_client(settings, blocking=True)`."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._waiters: dict[str, set[_Waiter]] = defaultdict(set)
        self._listeners: dict[str | None, set[asyncio.Event]] = defaultdict(set)
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the reader. Redis may be away: it is read as soon as it is back."""
        self._reader = asyncio.create_task(self._read_for_ever(), name="watch")

    async def stop(self) -> None:
        """Stop the reader; those who still wait do so until their time is up."""
        if self._reader is not None:
            await cancel_and_wait(self._reader)
            self._reader = None

    async def changed(self, job_id: str, after_version: int, timeout_s: float) -> bool:
        """Wait until the job's version has passed `after_version`: true; false after `timeout_s`.

        A job that is gone has changed. Raises StoreUnavailable.
        """
        waiter = _Waiter(after_version)
        self._waiters[job_id].add(waiter)  # before the look at the record, so that nothing slips between
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._passed(job_id, after_version):
                    await waiter.told.wait()
                    waiter.told.clear()
            return True
        except TimeoutError:
            return False
        finally:
            self._waiters[job_id].discard(waiter)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    @contextlib.contextmanager
    def listening(self, job_id: str | None) -> Iterator[asyncio.Event]:
        """Is set whenever something happens to the job, or to any; and where something may have been missed."""
        told = asyncio.Event()
        self._listeners[job_id].add(told)
        try:
            yield told
        finally:
            self._listeners[job_id].discard(told)
            if not self._listeners[job_id]:
                del self._listeners[job_id]

    async def _passed(self, job_id: str, version: int) -> bool:
        """Is asked to the end, though its caller may be canceled: redis-py closes a connection amid whose answer that
        happens, so that callers who hang up would each cost one."""
        return await asyncio.shield(self._has_passed(job_id, version))

    async def _has_passed(self, job_id: str, version: int) -> bool:
        with store_errors():
            current = await self._client.hget(self._keys.job(job_id), "version")
        return current is None or int(current) > version

    async def _read_for_ever(self) -> None:
        last_id: str | None = None
        while True:
            try:
                last_id = await self._newest_id() if last_id is None else last_id
                self._tell_all()  # what happened while nobody read
                while True:
                    last_id = await self._read_once(last_id)
            except (StoreUnavailable, TimeoutError) as error:
                log.debug("events can't be read now: %s", error)
            except Exception:
                log.exception("events can't be read; trying again")
                last_id = None  # what can't be read is left behind
            self._tell_all()  # they look for themselves, and tell their callers
            await asyncio.sleep(_RECONNECT_S)

    async def _newest_id(self) -> str:
        with store_errors():
            entries: Any = await self._client.xrevrange(self._keys.events, count=1)
        return str(entries[0][0]) if entries else "0-0"

    async def _read_once(self, last_id: str) -> str:
        async with asyncio.timeout(BLOCK_S + _MARGIN_S):
            with store_errors():
                streams: Any = await self._client.xread(
                    {self._keys.events: last_id}, count=_BATCH_ENTRIES, block=round(BLOCK_S * 1000)
                )
        for _, entries in streams or []:
            for entry_id, fields in entries:
                last_id = entry_id
                self._tell(fields["job"], int(fields["version"]))
        return last_id

    def _tell(self, job_id: str, version: int) -> None:
        for waiter in self._waiters.get(job_id, ()):
            if version > waiter.after_version:
                waiter.told.set()
        for told in (*self._listeners.get(job_id, ()), *self._listeners.get(None, ())):
            told.set()

    def _tell_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.told.set()
        for listeners in self._listeners.values():
            for told in listeners:
                told.set()
