"""Jobs: submit, list, read, wait for, cancel, rerun and delete them; read results; read or follow logs."""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Annotated, Any

import anyio.to_thread
from fastapi import APIRouter, Depends, Query, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel, Field

from dyno.errors import ArtifactStoreUnavailable, StoreUnavailable, UnknownJob
from dyno.logging import audit
from dyno.models.job import Job, Status, Validation
from dyno.models.result import Result
from dyno.models.spec import FrameworkName
from dyno.store.jobs import Jobs, LogPart, Submitted, read_log
from dyno.store.records import StoredJob
from service import dependencies, middleware, problems, streaming, submission, validation
from service.auth import OWN, READ, SUBMIT, Caller, CallerDep, requires
from service.hot_routes import DEFAULT_LIMIT, accepted_job, job_etag, job_response, list_response, result_response
from service.state import State

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

_QUEUED = dependencies.sends("Location", "RetryAfter", "Replayed", "ETag", "Preferred")


class JobList(BaseModel):
    """One page, newest first. If few jobs match, a page may be short although more pages follow."""

    data: list[Job]
    next_cursor: str | None
    has_more: bool


class JobFilter(BaseModel, extra="forbid"):
    """Jobs that match all given conditions."""

    status: Status | None = None
    workload: Annotated[str, Field(max_length=64)] | None = None
    device: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="A device kind, or an id with or without its host: of the spec, or of the worker that runs it"
    )
    framework: FrameworkName | None = None
    label: Annotated[str, Field(max_length=257)] | None = Field(None, description="`name` or `name=value`")
    created_after: dependencies.Timestamp | None = None
    created_before: dependencies.Timestamp | None = None
    imported: bool | None = Field(None, description="Only jobs that were imported, or only those that weren't")
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next_cursor` of the previous page")
    limit: Annotated[int, Field(ge=1, le=200)] = DEFAULT_LIMIT


@router.post(
    "",
    operation_id="submitJob",
    summary="Submit a job",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Validation, "description": "With `validate_only`: the spec is valid and can run"},
        202: _QUEUED,
        **problems.documented(
            *(*problems.OF_BODY, "invalid-spec", "does-not-fit", "exceeds-timeout", "unsupported"),
            *("no-device-fits", "idempotency-key-reused", "job-expired", "queue-full", "priority-not-allowed"),
            "store-unfit",
        ),
    },
)
@requires(SUBMIT, OWN)
async def submit(
    job_request: dependencies.Submission,
    state: dependencies.StateDep,
    preferred_wait_s: dependencies.PreferredWait,
    validate_only: bool = False,
    idempotency_key: dependencies.IdempotencyKey = None,
) -> Response:
    """Queue a job. After a response 202, the job won't be lost."""
    if validate_only:
        job_request, admission, _ = await submission.admitted(state, job_request)
        answer = Validation(spec=job_request.spec, estimate=admission.estimate, warnings=admission.warnings)
        return Response(answer.model_dump_json(), media_type="application/json")
    submitted = await submission.submit(state, job_request, idempotency_key)
    return await accepted_job(state, submitted, preferred_wait_s)


@router.get(
    "",
    operation_id="listJobs",
    summary="List jobs",
    response_model=JobList,
    responses={200: dependencies.sends("Link")},
)
@requires(READ, OWN)
async def browse(jobs: dependencies.JobsDep, request: Request, filters: Annotated[JobFilter, Query()]) -> Response:
    """List jobs, newest first."""
    with dependencies.as_parameter_errors():
        page = await jobs.browse(**{name: getattr(filters, name) for name in JobFilter.model_fields})
    response = list_response(page)
    dependencies.link_next(request, response, page.next_cursor)
    return response


@router.get(
    "/{job_id}",
    operation_id="getJob",
    summary="Read a job, or wait for it",
    response_model=Job,
    responses={
        200: dependencies.sends("ETag", "RetryAfter"),
        304: {"description": "The job hasn't changed since the given ETag", **dependencies.sends("ETag", "RetryAfter")},
        **problems.documented("job-not-found", "record-unreadable"),
    },
)
@requires(READ, OWN)
async def show(
    job_id: dependencies.JobId,
    state: dependencies.StateDep,
    if_none_match: dependencies.IfNoneMatch,
    wait: dependencies.Wait = 0,
) -> Response:
    """Read a job. With `wait`, respond when the job is newer than `If-None-Match` or, without this header, done.

    If too many requests are already waiting, the service responds at once, with `Retry-After`.
    """

    def news(job: StoredJob) -> bool:
        return if_none_match is not None and not dependencies.etag_matches(if_none_match, job_etag(job))

    job = await streaming.wait_for_job(state, job_id, news, wait)
    later = (
        {"Retry-After": str(streaming.POLL_AFTER_S)} if wait and not (middleware.held_back.get() or job.done) else None
    )
    return job_response(job, if_none_match, later)


@router.post(
    "/{job_id}/cancel",
    operation_id="cancelJob",
    summary="Cancel a job",
    responses={
        200: dependencies.sends("ETag"),
        202: {
            "model": Job,
            "description": "The job is running; its worker will cancel it within seconds",
            **dependencies.sends("ETag"),
        },
        **problems.documented("job-not-found", "job-finished"),
    },
)
@requires(SUBMIT, OWN)
async def cancel(job_id: dependencies.JobId, jobs: dependencies.JobsDep, caller: CallerDep, response: Response) -> Job:
    """Cancel a job: at once if it is queued, through its worker if it runs. Repeating the request changes nothing.

    After 202 the job may still end `succeeded`, if its result was stored before its worker learned of the cancellation.
    """
    job = await cancel_job(jobs, job_id, caller)
    response.status_code = 200 if job.done else 202
    response.headers["ETag"] = job_etag(job)
    return job


async def cancel_job(jobs: Jobs, job_id: str, caller: Caller) -> Job:
    """Cancel the job. Write this to the audit log unless the job is the caller's own."""
    canceled = await jobs.cancel(job_id)
    if canceled.changed and canceled.job.owner != (caller.key and caller.key.id):
        audit("job-canceled", caller.name, job=job_id, owner=canceled.job.owner)
    return canceled.job


@router.get(
    "/{job_id}/result",
    operation_id="getResult",
    summary="Read a job's result",
    response_model=Result,
    responses={
        200: dependencies.sends("ETag", "Encoding", "Vary"),
        304: {"description": "You have the result already: it never changes", **dependencies.sends("ETag", "Vary")},
        **problems.documented("job-not-found", "result-not-ready", "no-result", "record-unreadable"),
    },
)
@requires(READ, OWN)
async def result(
    job_id: dependencies.JobId,
    jobs: dependencies.JobsDep,
    request: Request,
    if_none_match: dependencies.IfNoneMatch,
) -> Response:
    """Read the result of a succeeded job. `result-not-ready`: retry later. `no-result`: the job has none."""
    accepted = ", ".join(request.headers.getlist("accept-encoding"))
    return result_response(await jobs.stored_result(job_id), if_none_match, accepted)


@router.post(
    "/{job_id}/rerun",
    operation_id="rerunJob",
    summary="Run a job's spec again",
    status_code=202,
    response_model=Job,
    responses={
        202: _QUEUED,
        **problems.documented(
            *("job-not-found", "job-expired", "invalid-spec", "does-not-fit", "exceeds-timeout", "unsupported"),
            *("no-device-fits", "idempotency-key-reused", "queue-full", "record-unreadable"),
            *("priority-not-allowed", "store-unfit"),
        ),
    },
)
@requires(SUBMIT, OWN)
async def rerun(
    job_id: dependencies.JobId,
    state: dependencies.StateDep,
    preferred_wait_s: dependencies.PreferredWait,
    idempotency_key: dependencies.IdempotencyKey = None,
) -> Response:
    """Queue the job's spec again, whatever the job's status. The new job's `rerun_of` is the old job's id.

    The spec is checked as for a new submit. If the spec can't run any more, pointers in the errors refer to the job's
    spec.
    """
    submitted = await submit_rerun(state, job_id, idempotency_key)
    return await accepted_job(state, submitted, preferred_wait_s)


async def submit_rerun(state: State, job_id: str, idempotency_key: str | None) -> Submitted:
    body_sha256 = validation.body_digest({"rerun_of": job_id})
    if idempotency_key and (earlier := await state.jobs.earlier(idempotency_key, body_sha256)):
        return earlier  # before reading the old job, which may be deleted
    job_request = submission.rerun_request(await state.jobs.get(job_id), state, body_sha256)
    return await submission.submit(state, job_request, idempotency_key, rerun_of=job_id)


FILES_WITHIN_S = 10.0

log = logging.getLogger(__name__)


@router.delete(
    "/{job_id}",
    operation_id="deleteJob",
    summary="Delete a done job",
    status_code=204,
    responses=problems.documented("job-not-found", "job-live"),
)
@requires(SUBMIT, OWN)
async def delete(job_id: dependencies.JobId, state: dependencies.StateDep, caller: CallerDep) -> Response:
    """Delete a done job for good: its record, result, samples, log, events and files, and comparisons that name it.

    The comparisons, and the job's events among the last 10,000 events of all jobs, stay in Redis for a while, but no
    response contains them.

    The job's idempotency key stays in use for the rest of its 24 hours. If the artifact store is unreachable, the files
    can't be read any more, and are deleted within hours after the store is back.
    """
    owner = await state.jobs.delete(job_id)
    audit("job-deleted", caller.name, job=job_id, owner=owner)
    await _drop_files(state, job_id)
    return Response(status_code=204)


async def _drop_files(state: State, job_id: str) -> None:
    """Delete the files now if possible. Maintenance deletes files that are left, for example if this process dies."""
    try:
        with anyio.fail_after(FILES_WITHIN_S):
            await anyio.to_thread.run_sync(state.artifacts.drop, job_id, abandon_on_cancel=True)
    except (ArtifactStoreUnavailable, TimeoutError) as error:
        log.warning("can't delete the files of the deleted job %s now; maintenance will: %s", job_id, error)


_LOG_TEXT: dict[str, Any] = {
    "text/plain": {"schema": {"type": "string"}, "example": "[attempt 1, run 1]\nEpoch 1: loss 0.31\n"}
}
PIECE_CHARACTERS = 16 * 1024  # maximum size of one write; for a slow client, the API keeps one piece in memory
Follow = Annotated[bool, Query(description="Keep streaming new output until the job is done")]


async def _log_slot(
    request: Request, state: dependencies.StateDep, caller: CallerDep, follow: Follow = False
) -> AsyncIterator[None]:
    if not follow:
        yield
        return
    with streaming.open_stream(request, state, caller):
        yield


@router.get(
    "/{job_id}/logs",
    operation_id="getLogs",
    summary="Read or follow a job's log",
    response_class=PlainTextResponse,
    dependencies=[Depends(_log_slot)],
    responses={
        200: {"description": "The log, at most its last 256 KiB", "content": _LOG_TEXT},
        **problems.documented("job-not-found", "too-many-streams"),
    },
)
@requires(READ, OWN)
async def logs(
    job_id: dependencies.JobId, state: dependencies.StateDep, caller: CallerDep, follow: Follow = False
) -> Response:
    """Read what the job's runners wrote to stdout and stderr, in all attempts and runs.

    The log of a running job lags by up to 2 s. Failed, killed and canceled jobs have logs, too. A log is deleted with
    its job.
    """
    part = await _log_part(state, job_id)
    if follow:
        pieces = streaming.while_allowed(state, caller, _followed(state, job_id, part))
        return streaming.TimedStream(pieces, headers=streaming.STREAM_HEADERS, media_type="text/plain")
    return PlainTextResponse(part.text, headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"})


async def _log_part(state: State, job_id: str, start: int = 0) -> LogPart:
    return await read_log(state.client, state.settings, job_id, start, state.jobs.viewer)


async def _followed(state: State, job_id: str, part: LogPart) -> AsyncGenerator[str, None]:
    with state.watch.listening(job_id) as news:
        for piece in _log_pieces(part.text):
            yield piece
        while not (part.done or state.stopping.is_set()):
            news.clear()
            try:
                part = await asyncio.shield(_log_part(state, job_id, part.following))  # as in dyno/store/events.py
            except UnknownJob:
                return
            except StoreUnavailable:
                await streaming.wait_for_news(state, news, streaming.RETRY_S)
                continue
            for piece in _log_pieces(part.text):
                yield piece
            if not (part.text or part.done):
                await streaming.wait_for_news(state, news, streaming.LOOK_EVERY_S)
                yield ""


def _log_pieces(text: str) -> Iterator[str]:
    return (text[start : start + PIECE_CHARACTERS] for start in range(0, len(text), PIECE_CHARACTERS))
