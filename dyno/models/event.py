"""Job events, as streams send them: one model per kind of event."""

from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, TypeAdapter

from dyno.models.job import Holder, Progress, Status, Stored, WorkerRef
from dyno.models.result import Metric, VariantName, Verdict


class _EventOfJob(Stored):
    """`id` is the position to resume a stream from. `version` is the version of the job's record, which grows by one.

    `owner`: the API key that owns the job. Null if no key owns it, or if the worker is older than API keys.
    """

    id: Annotated[str, Field(exclude=True)]  # the stream sends id and kind as SSE fields, outside the JSON
    job: str
    version: int
    at: AwareDatetime
    owner: str | None = None


class StatusEvent(_EventOfJob):
    """The job's new status, and the event of `dyno.models.job.Event` that caused it."""

    kind: Annotated[Literal["status"], Field(exclude=True)] = "status"
    event: str
    status: Status
    done: bool
    reason: str | None = Field(None, description="The job's `status_reason`, if it has one")
    worker: WorkerRef | None = Field(None, description="The worker that claimed the job; only with the event `claim`")
    held_by: Holder | None = Field(
        None, description="The process that uses the device that the job waits for; only with the reason `device_busy`"
    )


class ProgressEvent(_EventOfJob):
    kind: Annotated[Literal["progress"], Field(exclude=True)] = "progress"
    progress: Progress


class MetricEvent(_EventOfJob):
    """One figure of the result, sent before the status event that ends the job."""

    kind: Annotated[Literal["metric"], Field(exclude=True)] = "metric"
    verdict: Verdict
    metric: Metric


class PartialMetricEvent(_EventOfJob):
    """A figure over the first `run` runs, sent after each run except the last. Later, `metric` has the final figure.

    `runs`: the maximum number of runs. If two specs run in turns, `arm` names the figure's spec. Once the job is done,
    these events are no longer sent.
    """

    kind: Annotated[Literal["partial_metric"], Field(exclude=True)] = "partial_metric"
    run: int
    runs: int
    arm: VariantName | None = None
    metric: Metric


class LogEvent(_EventOfJob):
    """The runner's output since the last log event; null if it is no longer stored."""

    kind: Annotated[Literal["log"], Field(exclude=True)] = "log"
    text: str | None


class GapEvent(Stored):
    """Events after the requested position `after` may be missing; `oldest` is the oldest stored event."""

    kind: Annotated[Literal["gap"], Field(exclude=True)] = "gap"
    id: Annotated[str, Field(exclude=True)]
    after: str
    oldest: str


JobEvent = StatusEvent | ProgressEvent | PartialMetricEvent | MetricEvent | LogEvent
AnyEvent = JobEvent | GapEvent
EVENT: TypeAdapter[AnyEvent] = TypeAdapter(Annotated[AnyEvent, Field(discriminator="kind")])
