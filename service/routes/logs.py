"""What the runners of a job have printed: as it is now, or as it comes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Response
from fastapi.responses import PlainTextResponse

from dyno.errors import StoreUnavailable, UnknownJob
from dyno.store.jobs import LogPart, read_log
from service.access import CallerDep
from service.answers import streams
from service.dependencies import JobId, StateDep
from service.problems import documented
from service.state import State

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_TEXT: dict[str, Any] = {
    "text/plain": {"schema": {"type": "string"}, "example": "[attempt 1, run 1]\nEpoch 1: loss 0.31\n"}
}
PIECE_CHARACTERS = 16 * 1024  # sent at once: what one slow reader makes the server hold
Follow = Annotated[bool, Query(description="Go on with what comes, until the job is done")]


async def _place(state: StateDep, caller: CallerDep, follow: Follow = False) -> AsyncIterator[None]:
    if not follow:
        yield
        return
    with state.streams.one(caller.key):
        yield


@router.get(
    "/{job_id}/logs",
    response_class=PlainTextResponse,
    dependencies=[Depends(_place)],
    responses={
        200: {"description": "What was printed, at most its last 256 KiB", "content": _TEXT},
        **documented("job-not-found", "invalid-request", "too-many-streams", "store-unavailable"),
    },
)
async def logs(job_id: JobId, state: StateDep, caller: CallerDep, follow: Follow = False) -> Response:
    """What the job's runners wrote to stdout and stderr, all attempts and runs; of one that runs, up to 2 s ago.

    It is there for jobs that failed, were killed or canceled, too, and goes with the record.
    """
    part = await _part(state, job_id)
    if follow:
        pieces = streams.allowed(state, caller, _followed(state, job_id, part))
        return streams.Held(pieces, headers=streams.HEADERS, media_type="text/plain")
    return PlainTextResponse(part.text, headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"})


async def _part(state: State, job_id: str, start: int = 0) -> LogPart:
    return await read_log(state.client, state.settings, job_id, start, state.jobs.viewer)


async def _followed(state: State, job_id: str, part: LogPart) -> AsyncGenerator[str, None]:
    with state.watch.listening(job_id) as told:
        for piece in _pieces(part.text):
            yield piece
        while not (part.done or state.stopping.is_set()):
            told.clear()
            try:
                part = await asyncio.shield(_part(state, job_id, part.following))  # as dyno/store/events.py does
            except UnknownJob:
                return
            except StoreUnavailable:
                await streams.pause(state, told, streams.RETRY_S)
                continue
            for piece in _pieces(part.text):
                yield piece
            if not (part.text or part.done):
                await streams.pause(state, told, streams.LOOK_EVERY_S)
                yield ""


def _pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
