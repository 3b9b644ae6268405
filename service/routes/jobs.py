"""Jobs: submit, look, wait, cancel, read the result."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field

from dyno.logging import audit
from dyno.models.job import Job, Status, Validation
from dyno.models.result import Result
from dyno.models.spec import FrameworkName
from service.access import CallerDep
from service.answers import waiting
from service.answers.accepted import POLL_AFTER_S, accepted
from service.answers.conditional import matches
from service.answers.paging import Moment, as_parameters, link_next
from service.dependencies import (
    IdempotencyKey,
    IfNoneMatch,
    JobId,
    JobsDep,
    PreferredWait,
    StateDep,
    Submission,
    Wait,
)
from service.edge import held
from service.problems import documented
from service.requests import submission

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])


class JobList(BaseModel):
    """One page, newest first. Where few jobs match, a page may be short and still have more behind it."""

    data: list[Job]
    next_cursor: str | None
    has_more: bool


class JobFilter(BaseModel):
    """All conditions hold together."""

    model_config = ConfigDict(extra="forbid")

    status: Status | None = None
    workload: Annotated[str, Field(max_length=64)] | None = None
    device: Annotated[str, Field(max_length=200)] | None = Field(
        None, description="A kind, or an id with or without its host: of the selector, or of the worker that runs it"
    )
    framework: FrameworkName | None = None
    label: Annotated[str, Field(max_length=257)] | None = Field(None, description="`name` or `name=value`")
    created_after: Moment | None = None
    created_before: Moment | None = None
    cursor: Annotated[str, Field(max_length=200)] | None = Field(None, description="`next_cursor` of a page")
    limit: Annotated[int, Field(ge=1, le=200)] = 50


@router.post(
    "",
    status_code=202,
    response_model=Job,
    responses={
        200: {"model": Validation, "description": "`validate_only`: the spec can be run"},
        **documented(
            *("malformed-body", "body-timeout", "body-too-large", "unsupported-media-type", "invalid-spec"),
            *("does-not-fit", "exceeds-timeout", "unsupported", "no-device-fits", "idempotency-key-reused"),
            *("invalid-request", "job-expired", "queue-full", "store-unavailable"),
        ),
    },
)
async def submit(
    asked: Submission,
    state: StateDep,
    response: Response,
    preferred_wait_s: PreferredWait,
    validate_only: bool = False,
    idempotency_key: IdempotencyKey = None,
) -> Job | Response:
    """Queue a job; 202 means that it is not lost any more."""
    if validate_only:
        admission = await submission.admitted(state, asked)
        answer = Validation(spec=asked.spec, estimate=admission.estimate, warnings=admission.warnings)
        return Response(answer.model_dump_json(), media_type="application/json")
    submitted = await submission.submit(state, asked, idempotency_key)
    return await accepted(state, submitted, response, preferred_wait_s)


@router.get("", responses=documented("invalid-request", "store-unavailable"))
async def browse(jobs: JobsDep, request: Request, response: Response, wanted: Annotated[JobFilter, Query()]) -> JobList:
    """The jobs, newest first."""
    with as_parameters():
        page = await jobs.list(**{name: getattr(wanted, name) for name in JobFilter.model_fields})
    link_next(request, response, page.next_cursor)
    return JobList(data=page.data, next_cursor=page.next_cursor, has_more=page.has_more)


@router.get(
    "/{job_id}",
    response_model=Job,
    responses={
        304: {"description": "Nothing is newer than the ETag given"},
        **documented("job-not-found", "invalid-request", "record-unreadable", "store-unavailable"),
    },
)
async def show(
    job_id: JobId, state: StateDep, response: Response, if_none_match: IfNoneMatch, wait: Wait = 0
) -> Job | Response:
    """The job as it is. With `wait`: as soon as it is newer than `If-None-Match`, or without that header, done.

    Where too many wait already, it is answered at once, with `Retry-After`.
    """

    def news(job: Job) -> bool:
        return if_none_match is not None and not matches(if_none_match, waiting.etag(job))

    job = await waiting.until(state, job_id, news, wait)
    headers = {"ETag": waiting.etag(job), "Cache-Control": "no-cache"}
    if wait and not (held.get() or job.done):
        headers["Retry-After"] = str(POLL_AFTER_S)
    if matches(if_none_match, waiting.etag(job)):
        return Response(status_code=304, headers=headers)
    response.headers.update(headers)
    return job


@router.post(
    "/{job_id}/cancel",
    responses={
        202: {"model": Job, "description": "It is running; it will be canceled within seconds"},
        **documented("job-not-found", "job-finished", "store-unavailable"),
    },
)
async def cancel(job_id: JobId, jobs: JobsDep, caller: CallerDep, response: Response) -> Job:
    """Cancel a job: a waiting one at once, a running one by its worker. Repeating it changes nothing.

    After 202 the job may still end `succeeded`: where its result was there before its worker heard of the cancel,
    the result wins.
    """
    canceled = await jobs.cancel(job_id)
    job = canceled.job
    if canceled.changed and job.owner != (caller.key and caller.key.id):
        audit("job-canceled", caller.name, job=job_id, owner=job.owner)
    response.status_code = 200 if job.done else 202
    response.headers["ETag"] = waiting.etag(job)
    return job


@router.get(
    "/{job_id}/result",
    responses=documented("job-not-found", "result-not-ready", "no-result", "record-unreadable", "store-unavailable"),
)
async def result(job_id: JobId, jobs: JobsDep) -> Result:
    """The result of a job that succeeded. `result-not-ready`: ask again later; `no-result`: it ended without one."""
    return await jobs.result(job_id)
