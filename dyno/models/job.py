"""The job: its id, its states, the table of transitions, and the record that callers see.

Ids are ULIDs (https://github.com/ulid/spec), which sort by creation, even within one millisecond.
"""

import hashlib
import secrets
import threading
import time
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, Field, JsonValue

from dyno.models.spec import InterleavedSpec, Model, Spec, spec_without_unknown_fields

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = [high + low for high in _CROCKFORD for low in _CROCKFORD]  # two digits at a time: every request takes an id
_RANDOM_BITS = 80

_turn = threading.Lock()
_last = 0


def new_ulid(now_s: float | None = None) -> str:
    """48 bits of milliseconds, 80 random bits, in Crockford's base 32.

    now_s: seconds since 1970; None uses the system's clock. Within a millisecond, a process increments its last id by
    one, like the specification's monotonic ids, so lists keep the order of creation.
    """
    global _last
    millis = int((time.time() if now_s is None else now_s) * 1000)
    with _turn:
        _last = _last + 1 if _last >> _RANDOM_BITS == millis else (millis << _RANDOM_BITS) | secrets.randbits(80)
        return "".join([_PAIRS[(_last >> shift) & 1023] for shift in range(120, -1, -10)])


SCHEMA = 1  # a new schema needs a new version of Dyno: each version has its own profiles (dyno/store/placement.py)
MAX_ATTEMPTS = 2
MAX_HAND_BACKS = 10  # hand-backs of a job by workers that shut down; each further hand-back counts as an attempt


class Status(StrEnum):
    """The status of a job. The list is closed, so clients may switch over these five values."""

    QUEUED = "queued"  # waits in exactly one queue
    RUNNING = "running"  # a worker holds a lease for it
    SUCCEEDED = "succeeded"  # has a result
    FAILED = "failed"  # `failure` says why
    CANCELED = "canceled"  # by a caller


class Event(StrEnum):
    """What can happen to a job. Each event is one Lua script, or one outcome of a script."""

    SUBMIT = "submit"  # submit.lua
    IMPORT = "import"  # import.lua: the job ran in another Dyno
    CLAIM = "claim"  # claim.lua
    PASS_OVER = "pass_over"  # claim.lua: the worker doesn't know the job's schema, or its device is in use
    HEARTBEAT = "heartbeat"  # heartbeat.lua: extends the lease, carries progress
    SUCCEED = "succeed"  # finish.lua
    FAIL = "fail"  # finish.lua
    STOP = "stop"  # finish.lua: the supervisor stopped the run because of a cancel
    CANCEL = "cancel"  # cancel.lua, requested by a caller
    REQUEUE = "requeue"  # requeue.lua: the worker handed the job back, or infrastructure failed with an attempt left
    EXPIRE = "expire"  # expire.lua: the lease ran out, an attempt is left
    EXHAUST = "exhaust"  # expire.lua: the lease ran out on the last attempt


# (state, event) -> state. The store refuses all other pairs and changes nothing. None: no record yet.
TRANSITIONS: dict[tuple[Status | None, Event], Status] = {
    (None, Event.SUBMIT): Status.QUEUED,
    (None, Event.IMPORT): Status.SUCCEEDED,
    (Status.QUEUED, Event.CLAIM): Status.RUNNING,
    (Status.QUEUED, Event.PASS_OVER): Status.QUEUED,
    (Status.QUEUED, Event.CANCEL): Status.CANCELED,
    (Status.RUNNING, Event.HEARTBEAT): Status.RUNNING,
    (Status.RUNNING, Event.CANCEL): Status.RUNNING,  # with cancel_requested_at
    (Status.RUNNING, Event.SUCCEED): Status.SUCCEEDED,
    (Status.RUNNING, Event.FAIL): Status.FAILED,
    (Status.RUNNING, Event.STOP): Status.CANCELED,
    (Status.RUNNING, Event.REQUEUE): Status.QUEUED,
    (Status.RUNNING, Event.EXPIRE): Status.QUEUED,
    (Status.RUNNING, Event.EXHAUST): Status.FAILED,
    (Status.CANCELED, Event.CANCEL): Status.CANCELED,
}
DONE = frozenset({Status.SUCCEEDED, Status.FAILED, Status.CANCELED})


class FailureClass(StrEnum):
    """The kind of a failure. Dyno retries only `infrastructure`."""

    BENCHMARK = "benchmark"
    INFRASTRUCTURE = "infrastructure"
    RESOURCE = "resource"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"


NO_SUCH_DEVICE = "no_such_device"  # a `Failure.reason` that a worker acts on
WORKER_SHUTDOWN = "worker_shutdown"  # a `status_reason`: the worker ended before the job
DEVICE_BUSY = "device_busy"  # a `status_reason`: another process uses the device


class Stored(Model, extra="ignore"):
    """Base of documents that are read back from the store. Unknown fields of a newer version are ignored."""


class Failure(Stored, serialize_by_alias=True, validate_by_name=True):
    """Why the job has no result. `log_tail` holds the last lines that the runner wrote."""

    failure_class: Annotated[FailureClass, Field(alias="class")]
    reason: str
    message: str
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str | None = None


class Progress(Stored):
    """The progress of a running job, or the last progress of a done job. `fraction` is 0 to 1 over all runs.

    `eta_s` is the remaining time, estimated from earlier jobs of this kind and from the runs so far. Without such
    jobs, it is null while `fraction` is below 0.05. It decreases between two reports, without a new `version`.
    `elapsed_s` is the time from the claim of the job to the report. A done job has `fraction` 1 and `eta_s` 0, however
    it ended; its other fields say how far it came.
    """

    phase: str
    run: int
    runs: int
    completed: int = 0
    total: int | None = None
    unit: str = "samples"
    fraction: float | None = None
    eta_s: float | None = None
    elapsed_s: float | None = None


class WorkerRef(Stored):
    """The worker that runs the job: its id, its device and its host."""

    id: str
    device: str
    host: str

    @property
    def full_device(self) -> str:
        """The device's id, with its host."""
        return f"{self.device.partition('@')[0]}@{self.host}"


class Holder(Stored):
    """The process that uses a device while a worker on the same host waits for it.

    `command` and `job` (the job that the process runs) are null if the device's lock file doesn't name them.
    """

    device: str = Field(description="The waiting worker's device, with its host")
    pid: int | None
    command: str | None = None
    job: str | None = None
    hung: bool = Field(
        False,
        description="Whether the process is a runner that still has the device a minute after its attempt ended, for "
        "example because it hangs in the kernel. The device is then cordoned until the process ends",
    )

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        job = f", which runs {self.job}" if self.job and not self.hung else ""
        hung = f", a runner of {self.job or 'a job'} that hangs: end it, or restart the host" if self.hung else ""
        return f"{self.device} is held by process {self.pid or 'unknown'}{command}{job}{hung}"


class QueuePlace(Stored):
    """Where a queued job waits: `position` jobs are before it. Computed on read, so it doesn't change the version.

    `passed_over`: a device of the queue was free in the last minute, but the job doesn't fit it. Later jobs may go
    first. `held_by`: a worker would run the job now, but this process uses the worker's device; `status_reason` is then
    `device_busy`.
    """

    name: str
    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = Field(
        None,
        description="Estimated seconds until a device takes the job, at most one second old. The estimate uses the "
        "progress of the running jobs. For each job ahead in the queues of the same devices, it uses the durations of "
        "earlier jobs on such devices: jobs of equal params and settings, or else of the same workload. Null if no "
        "equal job and fewer than 3 of the workload have succeeded, if no device takes this job now, or once it runs.",
    )
    held_by: Holder | None = None


class SpecWarning(Stored):
    """A warning about a spec, found before the job runs."""

    code: str
    message: str
    evidence: dict[str, Any] = {}


class BaselineDifference(Stored):
    """A field that differs between the baseline's job and this one, and may explain the ratio."""

    field: str = Field(description='A JSON pointer: "/params/n", "/context_id"')
    baseline: JsonValue
    job: JsonValue


class BaselineOutcome(Stored):
    """A result compared with a baseline.

    `ratio` is above 1 if the result is better than the baseline: 2 means twice as good. On a CPU, it is adjusted to the
    clock of the baseline's job if the clocks differ by at most 10 %. `low` and `high` bound the ratio with a confidence
    of 95 %; if they are null, `reason` says why. `fail`: the whole interval is below 1 / (1 + margin). `pass`: the
    whole interval is above that limit, and the clock is at most 10 % higher than the baseline's. `inconclusive`: all
    other cases.
    """

    name: str
    outcome: Literal["pass", "fail", "inconclusive"]
    metric: str | None = None
    ratio: float | None = None
    ratio_as_measured: float | None = Field(
        None, description="The ratio of the measured figures, without an adjustment to one clock"
    )
    low: float | None = None
    high: float | None = None
    margin: float | None = None
    job: str | None = Field(None, description="The job whose figure is the baseline; null for a limit")
    reason: str | None = Field(
        None, description="Why the outcome is inconclusive, or that another clock may explain the ratio (CLOCK_CHANGED)"
    )
    differences: list[BaselineDifference] = []
    other_work: list[str] = Field(
        [],
        description="The names of `differences` that mean different work or different hardware, and that the spec's "
        "`baseline_allow` doesn't name. If it isn't empty, the outcome is inconclusive",
    )


class Imported(Stored, serialize_by_alias=True, validate_by_name=True):
    """Where an imported job ran: in the Dyno `from`, with the id `job`. `at` is the time of the import."""

    source: Annotated[str, Field(alias="from", max_length=200)]
    at: AwareDatetime
    job: str


class Urls(Stored):
    """Relative links; null if the service doesn't have the feature."""

    self: str
    result: str
    cancel: str
    events: str | None = None


class Job(Stored):
    """The record of one accepted request, as the API shows it."""

    id: str
    status: Status
    status_reason: str | None = None
    done: bool
    attempt: int
    spec: Annotated[InterleavedSpec | Spec, BeforeValidator(spec_without_unknown_fields)]
    warnings: list[SpecWarning] = []
    queue: QueuePlace
    progress: Progress | None = None
    worker: WorkerRef | None = None
    created_at: AwareDatetime
    queued_at: AwareDatetime
    started_at: AwareDatetime | None = None
    finished_at: AwareDatetime | None = None
    cancel_requested_at: AwareDatetime | None = None
    failure: Failure | None = None
    baseline: BaselineOutcome | None = Field(
        None, description="Null until the job has succeeded, and if its spec names no baseline"
    )
    rerun_of: str | None = None
    imported: Imported | None = Field(None, description="The origin of a job that ran in another Dyno; else null")
    urls: Urls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA
    version: int


class JobEstimate(Stored):
    """The job's estimated cost on the matching device that is expected to finish it first."""

    device: str
    time_s: float = Field(description="Time of all runs together, accurate to a factor of about 3")
    memory_bytes: int = Field(description="Peak memory: host memory on a CPU, else device memory")


class Validation(Stored):
    """The response to `validate_only`: the spec with the values that a job would use. Nothing is queued."""

    spec: Annotated[Spec, BeforeValidator(spec_without_unknown_fields)]
    estimate: JobEstimate | None = Field(description="Null if no device is available to estimate for")
    warnings: list[SpecWarning]


FinishEvent = Literal["succeed", "fail", "stop"]


def new_job_id(now_s: float | None = None) -> str:
    """`job_` and a ULID."""
    return f"job_{new_ulid(now_s)}"


def imported_job_id(original: str, owner: str | None) -> str:
    """The id of an imported job: the original id with other random digits.

    It depends only on the original id and the owner, so a second import finds the job of the first.
    """
    digest = hashlib.sha256(f"{owner or ''}\n{original}".encode()).digest()
    bits = int.from_bytes(digest[: _RANDOM_BITS // 8])
    return original[:14] + "".join([_PAIRS[(bits >> shift) & 1023] for shift in range(70, -1, -10)])


def new_token() -> str:
    """A random attempt token. It is compared for equality only. A counter could repeat after Redis is restored."""
    return secrets.token_hex(16)
