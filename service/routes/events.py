"""Server-Sent Events: what happens to one job, or to all, as it happens; cut off, a reader goes on where it was."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import format_sse_event
from pydantic import JsonValue

from dyno.errors import FieldError, StoreUnavailable
from dyno.models.event import AnyEvent
from dyno.store.events import EventPage, EventPosition, parse_event_position
from service import streaming
from service.auth import Caller, CallerDep
from service.dependencies import JobId, StateDep
from service.problems import InvalidRequest, documented
from service.state import State
from service.streaming import StreamSlot

router = APIRouter(tags=["events"])

COME_BACK_MS = 1000  # for browsers: EventSource connects again by itself
_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}
_CODES = ("invalid-request", "too-many-streams", "store-unavailable")


_EVENT_ID: dict[str, JsonValue] = {"pattern": "^([0-9]{1,19}-[0-9]{1,19}([.][0-9]{1,2})?)?$"}  # checked as it is read


async def _behind(
    last_event_id: Annotated[
        str | None, Header(description="The `id` of the last event that was read", json_schema_extra=_EVENT_ID)
    ] = None,
    given: Annotated[
        str | None,
        Query(
            alias="last_event_id",
            description="The same, for who can't set headers; they go first",
            json_schema_extra=_EVENT_ID,
        ),
    ] = None,
) -> EventPosition | None:
    places = list[EventPosition]()
    for text, pointer in ((last_event_id, "/header/last-event-id"), (given, "/query/last_event_id")):
        if text:
            if (place := parse_event_position(text)) is None:
                detail = f'"{text[:64]}" is the id of no event'
                raise InvalidRequest([FieldError(pointer, "invalid-event-id", detail)])
            places.append(place)
    return places[0] if places else None


Behind = Annotated[EventPosition | None, Depends(_behind)]


@router.get(
    "/v1/jobs/{job_id}/events",
    response_class=Response,
    responses={
        200: {"description": "`status`, `progress`, `metric`, `log`; the last has `done`", "content": _STREAM},
        204: {"description": "The job is done, and nothing is behind the last event: don't come back"},
        **documented("job-not-found", "record-unreadable", *_CODES),
    },
)
async def of_job(job_id: JobId, state: StateDep, caller: CallerDep, behind: Behind, _: StreamSlot) -> Response:
    """All that has happened to the job, and then what does, until it is done: the last event is a `status` with `done`.

    Kept are the last thousand or so: a reader who comes back later than that is told of a `gap`. What comes of one
    change of the record, a piece of log and progress say, has the same `version`, and the next change one more.
    """
    done = (await state.jobs.get(job_id)).done  # first: once it is, the page has all of its events
    if done and not (await state.feed.page(job_id, behind or EventPosition())).events:
        return Response(status_code=204)
    return await _sent(state, caller, job_id, behind or EventPosition())


@router.get(
    "/v1/events",
    response_class=Response,
    responses={
        200: {"description": "As of one job, but without an end", "content": _STREAM},
        **documented(*_CODES),
    },
)
async def of_all(state: StateDep, caller: CallerDep, behind: Behind, _: StreamSlot) -> Response:
    """What happens to any job from now on, or behind `Last-Event-ID`; `0-0` is behind none of the last 10,000.

    A key is told of its own jobs, an admin's of all.
    """
    newest = await state.feed.newest()  # in any case: while the store is away the answer is a problem and no stream
    return await _sent(state, caller, None, behind or newest)


async def _sent(state: State, caller: Caller, job_id: str | None, behind: EventPosition) -> Response:
    pieces = _pieces(state, job_id, behind)
    return streaming.TimedStream(
        streaming.while_allowed(state, caller, pieces), headers=streaming.STREAM_HEADERS, media_type="text/event-stream"
    )


async def _pieces(state: State, job_id: str | None, behind: EventPosition) -> AsyncGenerator[bytes, None]:
    yield format_sse_event(id=str(behind), retry=COME_BACK_MS)  # who is cut off before the first event goes on, too
    async for told in _told(state, job_id, behind):
        yield format_sse_event(comment="alive", id=str(told)) if isinstance(told, EventPosition) else _encoded(told)


def _encoded(event: AnyEvent) -> bytes:
    return format_sse_event(id=event.id, event=event.kind, data_str=event.model_dump_json(by_alias=True))


async def _told(state: State, job_id: str | None, behind: EventPosition) -> AsyncIterator[AnyEvent | EventPosition]:
    """A place where nothing happens that is shown: the connection lives, and whoever is cut off there goes on behind
    what was others'. Ends with the job, or when the service stops."""
    page, say_by_s = EventPage((), behind), time.monotonic() + streaming.LOOK_EVERY_S
    with state.watch.listening(job_id) as news:
        while not (page.ends or state.stopping.is_set()):
            news.clear()
            page, before = await _page(state, job_id, page.place), page
            if page.gap is not None:
                yield page.gap
            for event in page.events:
                yield event
            if not page.events and time.monotonic() >= say_by_s:
                yield page.place
            if page.events or time.monotonic() >= say_by_s:
                say_by_s = time.monotonic() + streaming.LOOK_EVERY_S
            if page.place == before.place:
                await streaming.wait_for_news(state, news, say_by_s - time.monotonic())


async def _page(state: State, job_id: str | None, place: EventPosition) -> EventPage:
    """Without events while Redis is away: browsers give up on an answer that isn't 200, so the stream outlasts it."""
    try:
        return await state.feed.page(job_id, place, state.jobs.viewer)
    except StoreUnavailable:
        return EventPage((), place)
