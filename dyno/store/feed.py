"""The events of one job, or of all, read from their streams a page at a time.

An entry of a stream may be several events. A place in the feed is behind an entry, or within the one that follows it:
`1763779000000-0.2` is behind the first two events of what comes after that entry. So whoever was cut off between two
events goes on with the second.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import redis.asyncio
from pydantic import ValidationError

from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.event import GapEvent, JobEvent, LogEvent, MetricEvent, ProgressEvent, StatusEvent
from dyno.models.job import DONE, Event, Holder, Progress, Status, WorkerRef
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.figures import figures_of
from dyno.store.keys import Keys
from dyno.store.records import moment

log = logging.getLogger(__name__)

_AT_ONCE = 32  # entries; each may have a piece of log, 16 KiB: what one slow reader can hold
# No result has a hundred metrics, and each place is a question of its own to Redis.
_PLACE = re.compile(r"(\d{1,19})-(\d{1,19})(?:\.(\d{1,2}))?", re.ASCII)
_BEGINNING = "0-0"
_Fields = Mapping[str, str]


class Place(NamedTuple):
    """Behind entry `entry`, and behind so many events of the one after it."""

    entry: str = _BEGINNING
    told: int = 0

    def __str__(self) -> str:
        return f"{self.entry}.{self.told}" if self.told else self.entry


_Question = tuple[str | None, Place, Viewer]


class Page(NamedTuple):
    """What comes next, and the place behind it. `ends`: of one job, which is done, or gone. `gap`: what came before
    these may be gone."""

    events: Sequence[JobEvent]
    place: Place
    ends: bool = False
    gap: GapEvent | None = None


class _Beside(NamedTuple):
    """What there is of an entry's job: whether its record, and what the entry only refers to, a piece of log say."""

    is_there: bool
    text: str | None


def place_of(text: str) -> Place | None:
    """None where it is none that an event has."""
    found = _PLACE.fullmatch(text)
    return Place(f"{int(found[1])}-{int(found[2])}", int(found[3] or 0)) if found else None


class Feed:
    """Every method raises StoreUnavailable while Redis is away."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._asked: dict[_Question, asyncio.Task[Page]] = {}

    async def newest(self) -> Place:
        """Behind all that has happened to any job."""
        with store_errors():
            entries: Any = await self._client.xrevrange(self._keys.events, count=1)
        return Place(str(entries[0][0])) if entries else Place()

    async def page(self, job_id: str | None, place: Place, viewer: Viewer = EVERYBODY) -> Page:
        """What is behind `place`, as much as is sent at once, without what the viewer may not see: of that nothing more
        is read either. Of one job all is told: whether the viewer sees it is known by then. Of jobs whose records are
        gone, because they were deleted say, nothing is.

        All who are told of the same news share one question.
        """
        question = (job_id, place, EVERYBODY if job_id or viewer.sees_all else viewer)
        if (asked := self._asked.get(question)) is None:
            asked = self._asked[question] = asyncio.create_task(self._page_soon(question))
            asked.add_done_callback(_heard)
        return await asyncio.shield(asked)

    async def _page_soon(self, question: _Question) -> Page:
        await asyncio.sleep(0)  # the others ask now
        del self._asked[question]  # whoever asks from here on may have been told of more than this will find
        return await self._page(*question)

    async def _page(self, job_id: str | None, place: Place, viewer: Viewer) -> Page:
        entries, gap = await self._entries(job_id, place)
        beside = await self._beside([each for each in entries if viewer.sees(each[1].get("owner"))])
        events: list[JobEvent] = []
        for entry, fields in entries:
            if (known := beside.get(entry)) is not None and known.is_there:
                events += _placed(list(_events(entry, fields, known.text)), place)
            place = Place(entry)
        done = bool(events) and isinstance(events[-1], StatusEvent) and events[-1].done
        return Page(events, place, ends=job_id is not None and (done or await self._is_over(job_id, entries)), gap=gap)

    async def _is_over(self, job_id: str, entries: Sequence[Any]) -> bool:
        """Whether nothing more comes though no event said so: the job's stream has gone, with all of the job."""
        if entries:
            return False
        with store_errors():
            return not await self._client.exists(self._keys.job_events(job_id))

    async def _entries(self, job_id: str | None, after: Place) -> tuple[list[tuple[str, _Fields]], GapEvent | None]:
        """Those behind that place, and whether others between may be gone: the streams keep a bounded number, and drop
        the oldest first. So where the last one that was told is kept, or one before it, nothing is missing."""
        stream = self._keys.events if job_id is None else self._keys.job_events(job_id)
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                pipeline.xread({stream: after.entry}, count=_AT_ONCE)
                pipeline.xrevrange(stream, max=after.entry, count=1)
                found, kept = await pipeline.execute()
        entries = [(str(entry), fields) for entry, fields in found[0][1]] if found else []
        if kept or not entries or after.entry == _BEGINNING:
            return entries, None
        return entries, GapEvent(id=str(after), after=str(after), oldest=entries[0][0])

    async def _beside(self, entries: Sequence[tuple[str, _Fields]]) -> dict[str, _Beside]:
        async with self._client.pipeline(transaction=False) as pipeline:
            asked = {}
            for entry, fields in entries:
                pipeline.exists(self._keys.job(fields.get("job", "")))
                asked[entry] = self._ask(pipeline, fields)
            with store_errors():
                answers: Any = iter(await pipeline.execute() if entries else ())
        return {entry: _Beside(bool(next(answers)), next(answers) if each else None) for entry, each in asked.items()}

    def _ask(self, pipeline: Any, fields: _Fields) -> bool:
        job_id = fields.get("job", "")
        if "log" in fields:
            pipeline.hget(self._keys.log(job_id), fields["log"])
        elif fields.get("event") == Event.SUCCEED:
            pipeline.get(self._keys.result(job_id))
        else:
            return False
        return True


def _heard(asked: asyncio.Task[Page]) -> None:
    """Its failure is told to those who asked; where all of them have left, to nobody."""
    if not asked.cancelled():
        asked.exception()


def _events(entry: str, fields: _Fields, beside: str | None) -> Iterator[JobEvent]:
    """Always as many for the same entry, as far as they can be read: places count them."""
    try:
        told = {"id": entry, "job": fields["job"], "owner": fields.get("owner")}
        known: dict[str, Any] = told | {"version": int(fields["version"]), "at": moment(fields["at"])}
        event, detail = fields["event"], fields.get("detail")
        if event == Event.HEARTBEAT:
            if "log" in fields:
                yield LogEvent(**known, text=beside)
            if detail:
                yield ProgressEvent(**known, progress=Progress.model_validate_json(detail))
            return
        status = Status(fields["status"])
        if figures := figures_of(beside):
            for metric in figures.metrics:
                yield MetricEvent(**known, verdict=figures.verdict, metric=metric)
        worker = WorkerRef.model_validate_json(detail) if event == Event.CLAIM and detail else None
        reason = None if worker else detail
        held_by = Holder.model_validate_json(fields["held_by"]) if "held_by" in fields else None
        known |= {"event": event, "status": status, "done": status in DONE, "reason": reason}
        yield StatusEvent(**known, worker=worker, held_by=held_by)
    except (ValidationError, ValueError, KeyError) as error:  # of another version, say
        log.warning("the event %s can't be told: %s: %s", entry, type(error).__name__, error)


def _placed(events: Sequence[JobEvent], before: Place) -> list[JobEvent]:
    """Those of one entry that aren't told yet; all but the last have a place within it."""
    last = len(events) - 1
    return [
        each if index == last else each.model_copy(update={"id": str(Place(before.entry, index + 1))})
        for index, each in enumerate(events)
        if index >= min(before.told, last)
    ]
