"""What a receiver is told: that a job is done, with what of it others may ask for by its links."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from dyno.job import FailureClass, Job, Urls


class _Told(BaseModel):
    model_config = ConfigDict(from_attributes=True, serialize_by_alias=True)


class DoneSpec(_Told):
    """What was asked for; where a webhook leads is not told."""

    workload: str
    labels: dict[str, str]


class DoneFailure(_Told):
    """Why there is no result, without what the runner wrote."""

    failure_class: Annotated[FailureClass, Field(serialization_alias="class")]
    reason: str


class DoneJob(_Told):
    """As `GET /v1/jobs/{id}` has it, as far as these fields go; links are relative to the API."""

    id: str
    status: Literal["succeeded", "failed", "canceled"]
    status_reason: str | None
    attempt: int
    version: int
    rerun_of: str | None
    created_at: AwareDatetime
    started_at: AwareDatetime | None
    finished_at: AwareDatetime
    failure: DoneFailure | None
    spec: DoneSpec
    urls: Urls


class JobDone(_Told):
    """The event. `timestamp` is when the job ended; when an attempt was sent is in its `webhook-timestamp`."""

    type: Literal["job.succeeded", "job.failed", "job.canceled"]
    timestamp: AwareDatetime
    data: DoneJob


def text_of(job: Job) -> str:
    """The same for each attempt: nothing of a done job changes."""
    event = {"type": f"job.{job.status}", "timestamp": job.finished_at, "data": DoneJob.model_validate(job)}
    return JobDone.model_validate(event).model_dump_json()
