"""The events of one job or of all jobs: reading them in pages, and waiting for the next change.

A stream entry may hold several events. A position lies after a whole entry, or between two events of an entry:
`1763779000000-0.2` follows the first two events of the entry after `1763779000000-0`. So a client that loses its
connection between two events resumes with the second event. One reader of the stream per process notifies all callers.
"""

import asyncio
import contextlib
import logging
import re
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import redis.asyncio
from pydantic import ValidationError

from dyno import asyncio_tasks, errors
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.event import (
    GapEvent,
    JobEvent,
    LogEvent,
    MetricEvent,
    PartialMetricEvent,
    ProgressEvent,
    StatusEvent,
)
from dyno.models.job import DONE, Event, Holder, Progress, Status, WorkerRef
from dyno.models.result import PartialMetrics
from dyno.settings import Settings
from dyno.store.records import to_datetime
from dyno.store.redis import Keys, store_errors
from dyno.store.stored_results import execute_raw, parse_result_summary

log = logging.getLogger(__name__)

_PAGE_ENTRIES = 32  # bounds the memory for one slow client: each entry may have a piece of log of 16 KiB
# Two digits for the offset: no result has a hundred metrics, and each distinct position costs a request to Redis.
_POSITION = re.compile(r"(\d{1,19})-(\d{1,19})(?:\.(\d{1,2}))?", re.ASCII)
_BEGINNING = "0-0"
_Fields = Mapping[str, str]


class EventPosition(NamedTuple):
    """A position after the entry `entry` and the first `offset` events of the entry that follows it."""

    entry: str = _BEGINNING
    offset: int = 0

    def __str__(self) -> str:
        return f"{self.entry}.{self.offset}" if self.offset else self.entry


_PageRequest = tuple[str | None, EventPosition, Viewer]


class EventPage(NamedTuple):
    """The next events and the position after them. `ends`: the page's job is done or gone, so no events follow. `gap`:
    older events may have been dropped.
    """

    events: Sequence[JobEvent]
    place: EventPosition
    ends: bool = False
    gap: GapEvent | None = None


class _Referenced(NamedTuple):
    """`is_there`: the entry's job has a record. `value`: the log, figures or result that the entry refers to."""

    is_there: bool
    value: Any


def parse_event_position(text: str) -> EventPosition | None:
    """Parse an event id; None if it is invalid."""
    match = _POSITION.fullmatch(text)
    return EventPosition(f"{int(match[1])}-{int(match[2])}", int(match[3] or 0)) if match else None


class EventReader:
    """Every method raises StoreUnavailable while Redis is unreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._pending: dict[_PageRequest, asyncio.Task[EventPage]] = {}

    async def newest(self) -> EventPosition:
        """The position after the newest event of all jobs."""
        with store_errors():
            entries: Any = await self._client.xrevrange(self._keys.events, count=1)
        return EventPosition(str(entries[0][0])) if entries else EventPosition()

    async def page(self, job_id: str | None, position: EventPosition, viewer: Viewer = EVERYBODY) -> EventPage:
        """One page of the events after `position`.

        Events of other owners' jobs are left out, and their log, figures and results aren't read. For a single job,
        `viewer` is ignored: the caller has checked access already. Events of jobs whose records are gone, such as
        deleted jobs, are left out.

        Callers that request the same page at the same time share one read.
        """
        request = (job_id, position, EVERYBODY if job_id or viewer.sees_all else viewer)
        if (pending := self._pending.get(request)) is None:
            pending = self._pending[request] = asyncio.create_task(self._page_soon(request))
            pending.add_done_callback(_consume_error)
        return await asyncio.shield(pending)

    async def _page_soon(self, request: _PageRequest) -> EventPage:
        await asyncio.sleep(0)  # lets the other callers join
        del self._pending[request]  # later callers may have been notified of events that this read misses
        return await self._page(*request)

    async def _page(self, job_id: str | None, position: EventPosition, viewer: Viewer) -> EventPage:
        entries, gap = await self._entries(job_id, position)
        referenced = await self._referenced([row for row in entries if viewer.sees(row[1].get("owner"))])
        events: list[JobEvent] = []
        for entry, fields in entries:
            if (reference := referenced.get(entry)) is not None and reference.is_there:
                events += _with_positions(list(_events_of(entry, fields, reference.value)), position)
            position = EventPosition(entry)
        done = bool(events) and isinstance(events[-1], StatusEvent) and events[-1].done
        return EventPage(
            events, position, ends=job_id is not None and (done or await self._is_over(job_id, entries)), gap=gap
        )

    async def _is_over(self, job_id: str, entries: Sequence[Any]) -> bool:
        """Whether the job's stream is gone, as after a deletion. Then no event follows, not even a final event."""
        if entries:
            return False
        with store_errors():
            return not await self._client.exists(self._keys.job_events(job_id))

    async def _entries(
        self, job_id: str | None, after: EventPosition
    ) -> tuple[list[tuple[str, _Fields]], GapEvent | None]:
        """The entries that follow `after`, and a gap event if entries directly after `after` may be missing.

        The streams keep a bounded number of entries and drop the oldest first. So nothing is missing if the entry at
        `after`, or an older entry, is still there.
        """
        stream = self._keys.events if job_id is None else self._keys.job_events(job_id)
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.xread({stream: after.entry}, count=_PAGE_ENTRIES)
                pipeline.xrevrange(stream, max=after.entry, count=1)
                reply, kept = await pipeline.execute()
        entries = [(str(entry), fields) for entry, fields in reply[0][1]] if reply else []
        if kept or not entries or after.entry == _BEGINNING:
            return entries, None
        return entries, GapEvent(id=str(after), after=str(after), oldest=entries[0][0])

    async def _referenced(self, entries: Sequence[tuple[str, _Fields]]) -> dict[str, _Referenced]:
        async with self._client.pipeline(transaction=False) as pipeline:
            has_value = {}
            for entry, fields in entries:
                pipeline.exists(self._keys.job(fields.get("job", "")))
                has_value[entry] = self._request_value(pipeline, fields)
            with store_errors():
                answers: Any = iter(await pipeline.execute() if entries else ())
        return {
            entry: _Referenced(bool(next(answers)), next(answers) if refers else None)
            for entry, refers in has_value.items()
        }

    def _request_value(self, pipeline: Any, fields: _Fields) -> bool:
        """Queue the read of the log, figures or result that an entry refers to. Returns False if it refers to none."""
        job_id = fields.get("job", "")
        if "log" in fields:
            pipeline.hget(self._keys.log(job_id), fields["log"])
        elif "partial" in fields:
            pipeline.hget(self._keys.partial(job_id), fields["partial"])
        elif fields.get("event") == Event.SUCCEED:
            execute_raw(pipeline, "GET", self._keys.result(job_id))
        else:
            return False
        return True


def _consume_error(page: asyncio.Task[EventPage]) -> None:
    """Mark the error as retrieved. Otherwise asyncio would log it if all callers have left."""
    if not page.cancelled():
        page.exception()


def _events_of(entry: str, fields: _Fields, value: Any) -> Iterator[JobEvent]:
    """The events of an entry. Each read must give the same number of events, because positions count them."""
    try:
        origin = {"id": entry, "job": fields["job"], "owner": fields.get("owner")}
        common: dict[str, Any] = origin | {"version": int(fields["version"]), "at": to_datetime(fields["at"])}
        event, detail = fields["event"], fields.get("detail")
        if event == Event.HEARTBEAT:
            if "partial" in fields:
                yield from _partial_metrics(common, value)
            if "log" in fields:
                yield LogEvent(**common, text=value)
            if detail:
                yield ProgressEvent(**common, progress=Progress.model_validate_json(detail))
            return
        status = Status(fields["status"])
        if figures := parse_result_summary(value):
            for metric in figures.metrics:
                yield MetricEvent(**common, verdict=figures.verdict, metric=metric)
        worker = WorkerRef.model_validate_json(detail) if event == Event.CLAIM and detail else None
        reason = None if worker else detail
        held_by = Holder.model_validate_json(fields["held_by"]) if "held_by" in fields else None
        common |= {"event": event, "status": status, "done": status in DONE, "reason": reason}
        yield StatusEvent(**common, worker=worker, held_by=held_by)
    except (ValidationError, ValueError, KeyError) as error:  # written by another version, for example
        log.warning("skipping the unreadable event %s: %s: %s", entry, type(error).__name__, error)


def _partial_metrics(common: Mapping[str, Any], value: str | None) -> Iterator[JobEvent]:
    """The events of the figures after a run; no events once the attempt has ended."""
    if value is not None:
        figures = PartialMetrics.model_validate_json(value)
        for metric in figures.metrics:
            yield PartialMetricEvent(**common, run=figures.run, runs=figures.runs, arm=figures.arm, metric=metric)


def _with_positions(events: Sequence[JobEvent], before: EventPosition) -> list[JobEvent]:
    """The events of one entry that follow `before`. All except the last get a position within the entry."""
    last = len(events) - 1
    return [
        event if index == last else event.model_copy(update={"id": str(EventPosition(before.entry, index + 1))})
        for index, event in enumerate(events)
        if index >= min(before.offset, last)
    ]


BLOCK_S = 10.0  # without a reply for this long plus a margin, the reader's connection is considered lost
_MARGIN_S = 5.0
_REST_S = 0.01  # pause between two reads; without it, each event of a busy service would cost a read
_RECONNECT_S = 0.5
_BATCH_ENTRIES = 1000


@dataclass(eq=False)
class _Waiter:
    after_version: int
    wake_up: asyncio.Event = field(default_factory=asyncio.Event)


class ChangeNotifier:
    """Notifies callers of changes. Needs a client without a socket timeout: `blocking_client(settings)`."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._waiters: dict[str, set[_Waiter]] = defaultdict(set)
        self._listeners: dict[str | None, set[asyncio.Event]] = defaultdict(set)
        self._reader: asyncio.Task[None] | None = None
        self._wanted = asyncio.Event()  # set while a caller waits or listens; reads would be wasted otherwise

    async def start(self) -> None:
        """Start the reader. While Redis is unreachable, the reader keeps trying to connect."""
        self._reader = asyncio.create_task(self._read_for_ever(), name="watch")

    async def stop(self) -> None:
        """Stop the reader. Pending calls of `changed` wait until their timeout."""
        if self._reader is not None:
            await asyncio_tasks.cancel_and_wait(self._reader)
            self._reader = None

    async def changed(self, job_id: str, after_version: int, timeout_s: float) -> bool:
        """Wait until the job's version exceeds `after_version`. Returns False if that takes longer than `timeout_s`.

        A deleted or expired job counts as changed. Raises StoreUnavailable.
        """
        waiter = _Waiter(after_version)
        self._waiters[job_id].add(waiter)  # before reading the record, so that no change is missed
        self._wanted.set()
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._passed(job_id, after_version):
                    await waiter.wake_up.wait()
                    waiter.wake_up.clear()
            return True
        except TimeoutError:
            return False
        finally:
            self._waiters[job_id].discard(waiter)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    @contextlib.contextmanager
    def listening(self, job_id: str | None) -> Iterator[asyncio.Event]:
        """An event that is set when the job (any job if `job_id` is None) changes, or may have changed unnoticed."""
        wake_up = asyncio.Event()
        self._listeners[job_id].add(wake_up)
        self._wanted.set()
        try:
            yield wake_up
        finally:
            self._listeners[job_id].discard(wake_up)
            if not self._listeners[job_id]:
                del self._listeners[job_id]

    async def _passed(self, job_id: str, version: int) -> bool:
        """`_has_passed`, shielded from the caller's cancellation: redis-py closes a connection if a cancellation
        interrupts a reply, so each client that disconnects would cost a connection.
        """
        return await asyncio.shield(self._has_passed(job_id, version))

    async def _has_passed(self, job_id: str, version: int) -> bool:
        with store_errors():
            current = await self._client.hget(self._keys.job(job_id), "version")
        return current is None or int(current) > version

    async def _read_for_ever(self) -> None:
        while True:
            await self._wanted.wait()
            try:
                await self._read_while_wanted()
            except (errors.StoreUnavailable, TimeoutError) as error:
                log.debug("can't read events now: %s", error)
            except Exception:
                log.exception("reading events failed; retrying")
            else:
                continue
            self._wake_all()  # waiters read the record themselves and report errors to their callers
            await asyncio.sleep(_RECONNECT_S)

    async def _read_while_wanted(self) -> None:
        last_id = await self._newest_id()
        self._wake_all()  # for changes up to this event id
        while self._waiters or self._listeners:
            began_s = time.monotonic()
            last_id = await self._read_once(last_id)
            await asyncio.sleep(max(0.0, began_s + _REST_S - time.monotonic()))
        self._wanted.clear()

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
                self._wake(fields["job"], int(fields["version"]))
        return last_id

    def _wake(self, job_id: str, version: int) -> None:
        for waiter in self._waiters.get(job_id, ()):
            if version > waiter.after_version:
                waiter.wake_up.set()
        for listener in (*self._listeners.get(job_id, ()), *self._listeners.get(None, ())):
            listener.set()

    def _wake_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.wake_up.set()
        for listeners in self._listeners.values():
            for listener in listeners:
                listener.set()
