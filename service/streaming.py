"""Streams and long polls.

Streams check periodically that their caller may still read, and end when a client stops reading. Long polls end when
the job changes, the time is up, the client disconnects or the service shuts down.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from typing import Annotated, TypeVar

from fastapi import Depends, Request
from starlette.responses import StreamingResponse
from starlette.types import Message, Receive, Scope, Send

from dyno import asyncio_tasks, errors
from dyno.store.records import StoredJob
from service import auth, dependencies, middleware
from service.state import State


async def wait_for_job(
    state: State, job_id: str, satisfied: Callable[[StoredJob], bool], timeout_s: float
) -> StoredJob:
    """Return the job once it is `satisfied` or done, `timeout_s` is over, the client disconnects or the service stops.

    Returns the job at once if no slot for a long poll is free. Raises UnknownJob.
    """
    if timeout_s <= 0:
        return await state.jobs.read(job_id)
    with state.polls.slot_if_free(middleware.caller_key.get()) as free:
        middleware.held_back.set(free)
        return await _wait_for_job(state, job_id, satisfied, timeout_s if free else 0)


async def _wait_for_job(
    state: State, job_id: str, satisfied: Callable[[StoredJob], bool], timeout_s: float
) -> StoredJob:
    deadline_s = time.monotonic() + timeout_s
    while True:
        job = await state.jobs.read(job_id)
        left_s = deadline_s - time.monotonic()
        if satisfied(job) or job.done or left_s <= 0 or state.stopping.is_set():
            return job
        if not await _wait_for_change(state, job, left_s):
            return job


async def wait_until_done(state: State, job: StoredJob, timeout_s: float) -> StoredJob:
    """Return the job once it is done, or unfinished after `timeout_s`.

    The job is already accepted, so the client must learn the job's id even if Redis fails meanwhile.
    """
    try:
        return await wait_for_job(state, job.id, lambda job: job.done, timeout_s)
    except (errors.StoreUnavailable, errors.UnknownJob):
        return job


async def _wait_for_change(state: State, job: StoredJob, timeout_s: float) -> bool:
    """Wait until the job's version changes, the time is up or the service stops; False if the client disconnected.

    Raises what `ChangeNotifier.changed` raises.
    """
    changed = asyncio.ensure_future(state.watch.changed(job.id, job.version, timeout_s))
    stopping = asyncio.ensure_future(state.stopping.wait())
    left = asyncio.ensure_future(middleware.caller_disconnected())
    try:
        await asyncio.wait((changed, stopping, left), return_when=asyncio.FIRST_COMPLETED)
        if changed.done():
            changed.result()
        return not left.done()
    finally:
        for task in (changed, stopping, left):
            task.cancel()


POLL_AFTER_S = 1  # for clients without long polls: even the shortest jobs take seconds
LOOK_EVERY_S = 15.0  # interval of checks and keep-alives: proxies close connections that are silent for 30 s or longer
TAKEN_WITHIN_S = 60.0  # per piece: a client may read slowly, but must not stop reading
RETRY_S = 1.0
STREAM_HEADERS = {
    "Cache-Control": "no-store",
    "X-Accel-Buffering": "no",  # for nginx, which would buffer small pieces
    "X-Content-Type-Options": "nosniff",
}
_Piece = TypeVar("_Piece", str, bytes)


class TimedStream(StreamingResponse):
    """A stream that ends when its client stops reading, because there are only few slots for streams."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until the stream ends or the client disconnects.

        Starlette's own method cancels a task group, whose errors form reference cycles. These cycles would keep all
        objects of the response in memory until the garbage collector runs.
        """
        sent = asyncio.create_task(self.stream_response(send))
        left = asyncio.create_task(self.listen_for_disconnect(receive))
        try:
            await asyncio.wait((sent, left), return_when=asyncio.FIRST_COMPLETED)
        finally:
            await asyncio_tasks.cancel_and_wait(left)
            await asyncio_tasks.cancel_and_wait(sent)
        if not sent.cancelled():
            sent.result()
        if self.background is not None:
            await self.background()

    async def stream_response(self, send: Send) -> None:
        async def sent_in_time(message: Message) -> None:
            async with asyncio.timeout(TAKEN_WITHIN_S):
                await send(message)

        with contextlib.suppress(TimeoutError):
            await super().stream_response(sent_in_time)


@contextlib.contextmanager
def open_stream(request: Request, state: State, caller: auth.Caller) -> Iterator[None]:
    """Hold a slot for a stream, and count the stream, while the block runs. Raises what `StreamLimit.slot` raises."""
    with state.streams.slot(caller.key), request.app.state.meter.streams.track_inprogress():
        yield


async def _stream_slot(request: Request, state: dependencies.StateDep, caller: auth.CallerDep) -> AsyncIterator[None]:
    with open_stream(request, state, caller):
        yield


StreamSlot = Annotated[None, Depends(_stream_slot)]


async def while_allowed(
    state: State, caller: auth.Caller, pieces: AsyncGenerator[_Piece, None]
) -> AsyncGenerator[_Piece, None]:
    """Yield `pieces` while the caller may read them: a stream ends within LOOK_EVERY_S of its key's revocation.

    A source without news yields an empty piece every LOOK_EVERY_S, to trigger the check. Empty pieces aren't sent.
    """
    look_s = time.monotonic() + LOOK_EVERY_S
    async with contextlib.aclosing(pieces):
        async for piece in pieces:
            if time.monotonic() >= look_s:
                if not await asyncio.shield(auth.may_continue(state, caller)):  # shielded, as in dyno/store/events.py
                    return
                look_s = time.monotonic() + LOOK_EVERY_S
            if piece:
                yield piece


async def wait_for_news(state: State, news: asyncio.Event, timeout_s: float) -> None:
    """Wait until `news` is set, the time is up or the service stops."""
    waits = [asyncio.ensure_future(event.wait()) for event in (news, state.stopping)]
    try:
        await asyncio.wait(waits, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
