"""Long polls: an answer held back until there is news, the time is up or the service stops."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from dyno.errors import StoreUnavailable, UnknownJob
from dyno.models.job import Job
from service.edge import caller, caller_left, held
from service.state import State


def etag(job: Job) -> str:
    """Weak: the record is the same, though the place in the queue shown with it may have moved."""
    return f'W/"{job.version}"'


async def until(state: State, job_id: str, satisfied: Callable[[Job], bool], timeout_s: float) -> Job:
    """The job as it is once `satisfied`, done, after `timeout_s`, or when the service stops or nobody waits for it any
    more; at once where as many answers are held back as may be. Raises UnknownJob."""
    if timeout_s <= 0:
        return await state.jobs.get(job_id)
    with state.polls.one_if_free(caller.get()) as free:
        held.set(free)
        return await _until(state, job_id, satisfied, timeout_s if free else 0)


async def _until(state: State, job_id: str, satisfied: Callable[[Job], bool], timeout_s: float) -> Job:
    deadline_s = time.monotonic() + timeout_s
    while True:
        job = await state.jobs.get(job_id)
        left_s = deadline_s - time.monotonic()
        if satisfied(job) or job.done or left_s <= 0 or state.stopping.is_set():
            return job
        if not await _news(state, job, left_s):
            return job


async def until_done(state: State, job: Job, timeout_s: float) -> Job:
    """The job once it is done, or as it is after `timeout_s`.

    It was accepted already: whatever becomes of Redis meanwhile, its caller has to learn its id.
    """
    try:
        return await until(state, job.id, lambda job: job.done, timeout_s)
    except (StoreUnavailable, UnknownJob):
        return job


async def _news(state: State, job: Job, timeout_s: float) -> bool:
    """Until the job's version changes, the time is up or the service stops; False where the caller has hung up.

    Raises what the watch does.
    """
    changed = asyncio.ensure_future(state.watch.changed(job.id, job.version, timeout_s))
    stopping = asyncio.ensure_future(state.stopping.wait())
    left = asyncio.ensure_future(caller_left())
    try:
        await asyncio.wait((changed, stopping, left), return_when=asyncio.FIRST_COMPLETED)
        if changed.done():
            changed.result()
        return not left.done()
    finally:
        for each in (changed, stopping, left):
            each.cancel()
