"""Webhooks: the event that a receiver is sent, and the record of its delivery."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated, Literal

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from dyno.models.job import FailureClass, Job, Stored, Urls

DELIVERY_ID = re.compile(r"msg_[0-9A-HJKMNP-TV-Z]{26}")  # that of its job, which has one at most


class DeliveryStatus(StrEnum):
    """Closed, as that of a job is."""

    PENDING = "pending"  # is being tried, or will be
    DELIVERED = "delivered"  # the receiver answered 2xx
    FAILED = "failed"  # no attempt is left, or the receiver answered 410


class Outcome(StrEnum):
    """How one attempt ended."""

    DELIVERED = "delivered"
    REFUSED = "refused"  # any other answer than 2xx; a redirect, too
    TIMEOUT = "timeout"
    UNREACHABLE = "unreachable"  # no such name, no connection, no TLS that can be trusted
    BLOCKED = "blocked"  # the name leads to an address that isn't public
    ERROR = "error"  # Dyno's own: it can't read the job, say


class Ended(Stored):
    """`status_code` is that of the answer, null without one."""

    outcome: Outcome
    status_code: int | None = None
    detail: str | None = None
    duration_s: float


class Attempt(Stored):
    """`ended` is null while it is under way, and for good where whoever made it died before they could say."""

    at: AwareDatetime
    ended: Ended | None = None


class Delivery(Stored):
    """`id` is the `webhook-id` of every attempt."""

    id: str
    job: str
    type: str = Field(description="`job.succeeded`, `job.failed` or `job.canceled`")
    url: str
    status: DeliveryStatus
    attempts_made: int
    attempts: Annotated[list[Attempt], Field(description="The last ones, the oldest first")]
    next_attempt_at: AwareDatetime | None = Field(None, description="Null unless it waits for one")
    created_at: AwareDatetime
    owner: str | None = None


def delivery_of(job_id: str) -> str:
    return f"msg_{job_id.removeprefix('job_')}"


def job_of(delivery_id: str) -> str:
    return f"job_{delivery_id.removeprefix('msg_')}"


class _Payload(BaseModel):
    model_config = ConfigDict(from_attributes=True, serialize_by_alias=True)


class DoneSpec(_Payload):
    """What was asked for; where a webhook leads is not told."""

    workload: str
    labels: dict[str, str]


class DoneFailure(_Payload):
    """Why there is no result, without what the runner wrote."""

    failure_class: Annotated[FailureClass, Field(serialization_alias="class")]
    reason: str


class DoneJob(_Payload):
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


class JobDone(_Payload):
    """The event. `timestamp` is when the job ended; when an attempt was sent is in its `webhook-timestamp`."""

    type: Literal["job.succeeded", "job.failed", "job.canceled"]
    timestamp: AwareDatetime
    data: DoneJob


def payload_of(job: Job) -> str:
    """The same for each attempt: nothing of a done job changes."""
    event = {"type": f"job.{job.status}", "timestamp": job.finished_at, "data": DoneJob.model_validate(job)}
    return JobDone.model_validate(event).model_dump_json()
