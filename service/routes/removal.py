"""A done job, deleted with all that it left."""

from __future__ import annotations

import logging

import anyio
import anyio.to_thread
from fastapi import APIRouter, Response

from dyno.errors import ArtifactStoreUnavailable
from dyno.logging import audit
from service.access import CallerDep
from service.dependencies import JobId, StateDep
from service.problems import documented
from service.state import State

FILES_WITHIN_S = 10.0

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])
log = logging.getLogger(__name__)


@router.delete("/{job_id}", status_code=204, responses=documented("job-not-found", "job-live", "store-unavailable"))
async def delete(job_id: JobId, state: StateDep, caller: CallerDep) -> Response:
    """Delete a done job for good: its record, result, samples, log, events and files, and comparisons that name it.

    Told to nobody, two things stay in Redis for a while: what happened to it, among the last 10,000 events of all jobs,
    and those comparisons, until another job of theirs goes.

    Its idempotency key stays used until its 24 hours are over. Where the artifact store is away its files can't be
    read any more, and are deleted within the hours after it is back.
    """
    owner = await state.jobs.delete(job_id)
    audit("job-deleted", caller.name, job=job_id, owner=owner)
    await _drop_files(state, job_id)
    return Response(status_code=204)


async def _drop_files(state: State, job_id: str) -> None:
    """At once where that works. Whatever is left, because this process dies here say, the upkeep finds."""
    try:
        with anyio.fail_after(FILES_WITHIN_S):
            await anyio.to_thread.run_sync(state.artifacts.drop, job_id, abandon_on_cancel=True)
    except (ArtifactStoreUnavailable, TimeoutError) as error:
        log.warning("the files of %s, which was deleted, are left to the upkeep: %s", job_id, error)
