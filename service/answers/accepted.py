"""How a queued job is answered: the whole job, where it is, its version, and when to ask again."""

from __future__ import annotations

from fastapi import Response

from dyno.models.job import Job
from dyno.store.jobs import Submitted
from service.answers import waiting
from service.edge import held
from service.state import State

POLL_AFTER_S = 1  # for callers without long polls: a job takes seconds at least


async def accepted(state: State, submitted: Submitted, response: Response, preferred_wait_s: int | None) -> Job:
    """The job once it is done, or as it is after `preferred_wait_s`; the headers are those of a 202."""
    job = submitted.job
    if preferred_wait_s:
        job = await waiting.until_done(state, job, preferred_wait_s)
        if held.get():
            response.headers["Preference-Applied"] = f"wait={preferred_wait_s}"
    if submitted.replayed:
        response.headers["Idempotent-Replayed"] = "true"
    if not job.done:
        response.headers["Retry-After"] = str(POLL_AFTER_S)
    response.headers["Location"] = job.urls.self
    response.headers["ETag"] = waiting.etag(job)
    return job
