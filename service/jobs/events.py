"""Server-Sent Events of one job or of all jobs; a client that reconnects continues after its last event."""

import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import format_sse_event
from pydantic import JsonValue

from dyno.errors import FieldError, StoreUnavailable
from dyno.models.event import AnyEvent
from dyno.store.events import EventPage, EventPosition, parse_event_position
from service import dependencies, problems, streaming
from service.auth import OWN, READ, Caller, CallerDep, requires
from service.state import State

router = APIRouter(tags=["events"])

COME_BACK_MS = 1000  # EventSource in browsers reconnects after this time
_STREAM: dict[str, Any] = {"text/event-stream": {"schema": {"type": "string"}}}


_EVENT_ID: dict[str, JsonValue] = {"pattern": "^([0-9]{1,19}-[0-9]{1,19}([.][0-9]{1,2})?)?$"}


async def _behind(
    last_event_id: Annotated[
        str | None, Header(description="The `id` of the last event that you received", json_schema_extra=_EVENT_ID)
    ] = None,
    given: Annotated[
        str | None,
        Query(
            alias="last_event_id",
            description="As `Last-Event-ID`, for clients that can't set headers; the header takes precedence",
            json_schema_extra=_EVENT_ID,
        ),
    ] = None,
) -> EventPosition | None:
    places = list[EventPosition]()
    for text, pointer in ((last_event_id, "/header/last-event-id"), (given, "/query/last_event_id")):
        if text:
            if (position := parse_event_position(text)) is None:
                detail = f'"{text[:64]}" is not an event id'
                raise problems.InvalidRequest([FieldError(pointer, "invalid-event-id", detail)])
            places.append(position)
    return places[0] if places else None


Behind = Annotated[EventPosition | None, Depends(_behind)]


@router.get(
    "/v1/jobs/{job_id}/events",
    operation_id="followJob",
    summary="Follow a job",
    response_class=Response,
    responses={
        200: {
            "description": "`status`, `progress`, `partial_metric`, `metric`, `log`; the last has `done`",
            "content": _STREAM,
        },
        204: {"description": "The job is done, and no event follows the given one: don't reconnect"},
        **problems.documented("job-not-found", "record-unreadable", "too-many-streams"),
    },
)
@requires(READ, OWN)
async def of_job(
    job_id: dependencies.JobId, state: dependencies.StateDep, caller: CallerDep, behind: Behind, _: streaming.StreamSlot
) -> Response:
    """Stream the job's past events, then new ones until the job is done. The last event is a `status` with `done`.

    About the last thousand events are kept; a client that missed more gets a `gap` event. All events of one change of
    the job, such as log and progress, have the same `version`; the next change increases it. After each run but the
    last, a `partial_metric` has a figure over the runs so far; final figures follow as `metric`. Past progress and
    partial metrics are left out once the job is done.
    """
    done = (await state.jobs.get(job_id)).done  # read before the events: the events of a done job are complete
    if done and not (await state.feed.page(job_id, behind or EventPosition())).events:
        return Response(status_code=204)
    return await _sent(state, caller, job_id, behind or EventPosition())


@router.get(
    "/v1/events",
    operation_id="followAll",
    summary="Follow all jobs",
    response_class=Response,
    responses={
        200: {"description": "As for one job, but endless", "content": _STREAM},
        **problems.documented("too-many-streams"),
    },
)
@requires(READ, OWN)
async def of_all(state: dependencies.StateDep, caller: CallerDep, behind: Behind, _: streaming.StreamSlot) -> Response:
    """Stream the events of all jobs from now on, or after `Last-Event-ID`; `0-0` replays the last 10,000.

    A key gets the events of its own jobs, an admin's key the events of all jobs.
    """
    newest = await state.feed.newest()  # raises while Redis is unreachable, before the stream begins
    return await _sent(state, caller, None, behind or newest)


async def _sent(state: State, caller: Caller, job_id: str | None, behind: EventPosition) -> Response:
    pieces = _pieces(state, job_id, behind)
    return streaming.TimedStream(
        streaming.while_allowed(state, caller, pieces), headers=streaming.STREAM_HEADERS, media_type="text/event-stream"
    )


async def _pieces(state: State, job_id: str | None, behind: EventPosition) -> AsyncGenerator[bytes, None]:
    yield format_sse_event(id=str(behind), retry=COME_BACK_MS)  # the id serves clients that lose the connection early
    async for event in _events(state, job_id, behind):
        yield format_sse_event(comment="alive", id=str(event)) if isinstance(event, EventPosition) else _encoded(event)


def _encoded(event: AnyEvent) -> bytes:
    return format_sse_event(id=event.id, event=event.kind, data_str=event.model_dump_json(by_alias=True))


async def _events(state: State, job_id: str | None, behind: EventPosition) -> AsyncIterator[AnyEvent | EventPosition]:
    """Yield the events until the job is done or the service stops.

    While there are no events for this caller, yields the position periodically. This keeps the connection alive. A
    client that reconnects at this position skips other callers' events.
    """
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


async def _page(state: State, job_id: str | None, position: EventPosition) -> EventPage:
    """The next page; empty while Redis is unreachable. The stream must stay open: browsers don't retry after errors."""
    try:
        return await state.feed.page(job_id, position, state.jobs.viewer)
    except StoreUnavailable:
        return EventPage((), position)
