"""Events of jobs, as streams send them: one model per kind of event."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from dyno.models.job import Holder, Progress, Status, Stored, WorkerRef
from dyno.models.result import Metric, Verdict


class _EventOfJob(Stored):
    """`id` is where whoever has read this goes on; events of a job's record have its `version`, one more each.

    `owner`: the API key whose job it is. Null where it is nobody's, or a worker from before there were keys told it.
    """

    id: Annotated[str, Field(exclude=True)]  # it is sent beside the rest, and so is the kind
    job: str
    version: int
    at: AwareDatetime
    owner: str | None = None


class StatusEvent(_EventOfJob):
    """The job's status now, and the event of `dyno.models.job.Event` that brought it there."""

    kind: Annotated[Literal["status"], Field(exclude=True)] = "status"
    event: str
    status: Status
    done: bool
    reason: str | None = Field(None, description="`status_reason`, where it has one")
    worker: WorkerRef | None = Field(None, description="Who has claimed it; with `claim`")
    held_by: Holder | None = Field(None, description="Who uses the device that it waits for; with `device_busy`")


class ProgressEvent(_EventOfJob):
    kind: Annotated[Literal["progress"], Field(exclude=True)] = "progress"
    progress: Progress


class MetricEvent(_EventOfJob):
    """One figure of the result, before the status that ends the job."""

    kind: Annotated[Literal["metric"], Field(exclude=True)] = "metric"
    verdict: Verdict
    metric: Metric


class LogEvent(_EventOfJob):
    """What the runner printed since the last one; null where it isn't kept any more."""

    kind: Annotated[Literal["log"], Field(exclude=True)] = "log"
    text: str | None


class GapEvent(Stored):
    """Events behind `after`, which was asked for, may be missing: the oldest kept is `oldest`."""

    kind: Annotated[Literal["gap"], Field(exclude=True)] = "gap"
    id: Annotated[str, Field(exclude=True)]
    after: str
    oldest: str


JobEvent = StatusEvent | ProgressEvent | MetricEvent | LogEvent
AnyEvent = JobEvent | GapEvent
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])
