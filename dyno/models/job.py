"""The job: its id, its states, the one table of transitions, and the record that callers see.

Ids are ULIDs (https://github.com/ulid/spec): they sort by creation, also within one millisecond.
"""

from __future__ import annotations

import secrets
import threading
import time
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, BeforeValidator, ConfigDict, Field

from dyno.models.spec import InterleavedSpec, Model, Spec, spec_without_unknown_fields

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_RANDOM_BITS = 80

_turn = threading.Lock()
_last = 0


def new_ulid(now_s: float | None = None) -> str:
    """48 bits of milliseconds, 80 random bits, in Crockford's base 32.

    now_s: seconds since 1970, the system's clock where it is None. In one process an id of the same millisecond as
    the last is the last plus one, as the specification's monotonic ids are, so lists keep the order of creation.
    """
    global _last
    millis = int((time.time() if now_s is None else now_s) * 1000)
    with _turn:
        _last = _last + 1 if _last >> _RANDOM_BITS == millis else (millis << _RANDOM_BITS) | secrets.randbits(80)
        return "".join(_CROCKFORD[(_last >> shift) & 31] for shift in range(125, -1, -5))


SCHEMA = 1  # a new one comes with a new version, whose devices have profiles of their own (dyno/store/placement.py)
MAX_ATTEMPTS = 2


class Status(StrEnum):
    """Closed: a caller may switch over these five."""

    QUEUED = "queued"  # waits in exactly one queue
    RUNNING = "running"  # a worker holds a lease for it
    SUCCEEDED = "succeeded"  # has a result
    FAILED = "failed"  # `failure` says why
    CANCELED = "canceled"  # by its caller


class Event(StrEnum):
    """What can happen to a job; each is one Lua script (or one outcome of it)."""

    SUBMIT = "submit"  # submit.lua
    CLAIM = "claim"  # claim.lua
    PASS_OVER = "pass_over"  # claim.lua: the worker that would take it doesn't know its schema, or waits for its device
    HEARTBEAT = "heartbeat"  # heartbeat.lua: extends the lease, carries progress
    SUCCEED = "succeed"  # finish.lua
    FAIL = "fail"  # finish.lua
    STOP = "stop"  # finish.lua: the supervisor has obeyed a cancel
    CANCEL = "cancel"  # cancel.lua, asked by a caller
    REQUEUE = "requeue"  # requeue.lua: handed back, or an infrastructure failure with an attempt left
    EXPIRE = "expire"  # expire.lua: the lease ran out, an attempt is left
    EXHAUST = "exhaust"  # expire.lua: the lease ran out on the last attempt


# (state, event) -> state; a pair that isn't here is refused and changes nothing. None: no record yet.
TRANSITIONS: dict[tuple[Status | None, Event], Status] = {
    (None, Event.SUBMIT): Status.QUEUED,
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
    """Only `infrastructure` is retried."""

    BENCHMARK = "benchmark"
    INFRASTRUCTURE = "infrastructure"
    RESOURCE = "resource"
    TIMEOUT = "timeout"
    UNSUPPORTED = "unsupported"


NO_SUCH_DEVICE = "no_such_device"  # a `Failure.reason` that a worker acts on
DEVICE_BUSY = "device_busy"  # a `status_reason`: another process uses the device


class Stored(Model):
    """Base of what is read back from the store: a newer version's unknown fields are kept out, not refused."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Failure(Stored):
    """Why there is no result; `log_tail` holds the last lines the runner wrote."""

    model_config = ConfigDict(extra="ignore", frozen=True, serialize_by_alias=True, validate_by_name=True)

    failure_class: Annotated[FailureClass, Field(alias="class")]
    reason: str
    message: str
    exit_code: int | None = None
    signal: int | None = None
    log_tail: str | None = None


class Progress(Stored):
    """Where a running job stands, and how far one got that is done; `fraction` is 0 to 1 over all runs.

    `eta_s` is null below 5 %. Of a job that succeeded `fraction` is 1 and `eta_s` 0; of one that failed or was
    canceled `eta_s` is null.
    """

    phase: str
    run: int
    runs: int
    completed: int = 0
    total: int | None = None
    unit: str = "samples"
    fraction: float | None = None
    eta_s: float | None = None


class WorkerRef(Stored):
    """Who runs it: the worker's id and its device on its host."""

    id: str
    device: str
    host: str


class Holder(Stored):
    """The process that uses a device while a worker of another Dyno on the same host waits for it.

    `command` and `job` (what it runs) are null if the device's lock file doesn't name them.
    """

    device: str = Field(description="The device that waits, with its host")
    pid: int | None
    command: str | None = None
    job: str | None = None

    def __str__(self) -> str:
        command = f" ({self.command})" if self.command else ""
        job = f", which runs {self.job}" if self.job else ""
        return f"{self.device} is held by process {self.pid or 'unknown'}{command}{job}"


class QueuePlace(Stored):
    """Where a queued job waits: `position` jobs are before it. Computed when read, no part of the version.

    `passed_over`: a device of the queue was free in the last minute, but the job doesn't fit it and waits for one that
    it fits; jobs behind it may go first. `held_by`: a worker would run the job now, and a process of another Dyno uses
    the worker's device; `status_reason` is `device_busy` meanwhile.
    """

    name: str
    position: int | None = None
    passed_over: bool = False
    eta_s: float | None = Field(
        None,
        description="Seconds until a device is likely to take it, as of the last second: from what jobs of the same "
        "workload took on such devices, for what runs there and what is before it in any queue that they serve. Null "
        "where nobody can tell: fewer than 3 of those have succeeded, or no device takes it now; and once it runs.",
    )
    held_by: Holder | None = None


class SpecWarning(Stored):
    """What the linter says of a spec before it runs."""

    code: str
    message: str
    evidence: dict[str, Any] = {}


class Urls(Stored):
    """Relative links; null where the feature is not there yet."""

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
    rerun_of: str | None = None
    urls: Urls
    owner: str | None = None
    schema_version: Annotated[int, Field(alias="schema")] = SCHEMA
    version: int


class JobEstimate(Stored):
    """What the job would take on the fitting device that is expected to be done first."""

    device: str
    time_s: float = Field(description="All runs together, honest to a factor of about 3")
    memory_bytes: int = Field(description="The most that is held at once: host memory on a CPU, else the device's")


class Validation(Stored):
    """What `validate_only` answers: the spec as it would run. Nothing was queued."""

    spec: Annotated[Spec, BeforeValidator(spec_without_unknown_fields)]
    estimate: JobEstimate | None = Field(description="Null where no device is there to estimate for")
    warnings: list[SpecWarning]


FinishEvent = Literal["succeed", "fail", "stop"]


def new_job_id(now_s: float | None = None) -> str:
    """`job_` and a ULID."""
    return f"job_{new_ulid(now_s)}"


def new_token() -> str:
    """A random attempt token; compared for equality only, so a restored counter can't issue it twice."""
    return secrets.token_hex(16)
