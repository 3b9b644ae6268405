"""Webhooks: the event that Dyno sends to a receiver, and the record of its delivery."""

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from dyno.models.job import FailureClass, Job, Stored, Urls

DELIVERY_ID = re.compile(r"msg_[0-9A-HJKMNP-TV-Z]{26}")  # derived from the job's id, as a job has one delivery at most


class DeliveryStatus(StrEnum):
    """The status of a delivery. The list is closed, so clients may switch over these values."""

    PENDING = "pending"  # an attempt is in progress or due later
    DELIVERED = "delivered"  # the receiver answered 2xx
    FAILED = "failed"  # no attempt is left, or the receiver answered 410


class Outcome(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # the receiver answered with another status than 2xx, such as a redirect
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"  # no public address, a failed connection, or an invalid certificate
    BLOCKED = "blocked"  # the URL is forbidden, for example because its host isn't allowed any more
    ERROR = "error"  # an error in Dyno, for example because it can't read the job


class Ended(Stored):
    """How an attempt ended. `status_code` is the response's status, null without a response."""

    outcome: Outcome
    status_code: int | None = None
    detail: str | None = None
    duration_s: float


class Attempt(Stored):
    """One attempt. `ended` is null while it is in progress, and stays null if Dyno crashed during the attempt."""

    at: AwareDatetime
    ended: Ended | None = None


class Delivery(Stored):
    """The delivery of a job's event. `id` is the `webhook-id` of every attempt."""

    id: str
    job: str
    type: str = Field(description="`job.succeeded`, `job.failed` or `job.canceled`")
    url: str
    status: DeliveryStatus
    attempts_made: int
    attempts: Annotated[list[Attempt], Field(description="The latest attempts, oldest first")]
    next_attempt_at: AwareDatetime | None = Field(None, description="Null if no attempt is due")
    created_at: AwareDatetime
    owner: str | None = None


def delivery_of(job_id: str) -> str:
    return f"msg_{job_id.removeprefix('job_')}"


def job_of(delivery_id: str) -> str:
    return f"job_{delivery_id.removeprefix('msg_')}"


class _Payload(BaseModel):
    model_config = ConfigDict(from_attributes=True, serialize_by_alias=True)


class DoneSpec(_Payload):
    """The part of the job's spec that receivers see. It omits the webhook's URL."""

    workload: str
    labels: dict[str, str]


class DoneFailure(_Payload):
    """Why the job has no result, without the runner's output."""

    failure_class: Annotated[FailureClass, Field(serialization_alias="class")]
    reason: str


class DoneJob(_Payload):
    """Fields of the job, as in `GET /v1/jobs/{id}`. Links are relative to the API."""

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


class JobDone(_Payload):
    """The event. `timestamp` is when the job ended. The header `webhook-timestamp` is when the attempt was sent."""

    type: Literal["job.succeeded", "job.failed", "job.canceled"]
    timestamp: AwareDatetime
    data: DoneJob


def payload_of(job: Job) -> str:
    """The event of a done job as JSON. It is the same for every attempt, since a done job doesn't change."""
    event = {"type": f"job.{job.status}", "timestamp": job.finished_at, "data": DoneJob.model_validate(job)}
    return JobDone.model_validate(event).model_dump_json()
