"""The exceptions that Dyno raises on purpose, and the exit codes of its processes.

DynoError
├── InvalidSpec        Dyno can't run the spec; lists every wrong field
│   ├── DoesNotFit     the spec needs more memory than the devices have; lists the fields to change, with the figures
│   ├── ExceedsTimeout the spec needs more time than its timeout allows; lists the fields to change, with the figures
│   ├── Unsupported    the matching devices lack its framework, or there are too few matching devices
│   ├── InvalidComparison  a request for a comparison has a wrong field
│   ├── InvalidBaseline    a request to save a baseline has a wrong field
│   ├── InvalidSchedule    a request to save a schedule has a wrong field
│   ├── InvalidSweep   a request for a sweep, or one of its points, has a wrong field
│   ├── InvalidImport  a line of results to import has a wrong field
│   └── InvalidKey     a request for a key has a wrong field
├── NotComparable      the results share no metric that can be compared; names the fields in which they differ
├── NoDeviceFits       no known worker can run the job
├── UnknownJob, UnknownWorkload, UnknownComparison, UnknownBaseline, UnknownSchedule, UnknownAlarm, UnknownSweep,
│   UnknownDevice, UnknownKey, UnknownDelivery
├── JobFinished        the transition isn't possible, since the job is done
├── SweepFinished      the sweep can't be canceled, since all its jobs are done
├── JobLive            the request is for done jobs, and the job isn't done
├── ResultNotReady
│   └── NoResult       the job failed or was canceled, so it will never have a result
├── IdempotencyKeyReused
├── JobExpired         the job of an idempotency key is gone, and Dyno makes no second job for the key
├── KeyExpired         the caller's API key has expired
├── PriorityNotAllowed the caller's API key may not submit jobs of this priority
├── LimitReached       the caller's API key has used up one of its limits for now
│   └── QueueFull      the queue is full for every key: the maximum number of jobs is queued
├── StaleToken         another attempt owns the job now
├── StoreUnavailable   Redis is unreachable, full or read-only
├── RecordUnreadable   a stored document is damaged, or was written by another version of Dyno
├── StoreUnfit         Redis runs, but its configuration may lose jobs (eviction) or prevents the scripts (cluster)
├── DeviceUnavailable  the device isn't on this host; says where Dyno looked
│   └── DeviceBusy     another process uses the device; says which one
├── HostNameTaken      another machine's workers have this host's name
├── FrameworkMissing   the framework isn't installed here
├── TracingMissing     tracing is on, and OpenTelemetry isn't installed here
├── DatasetDamaged     a data file exists, but its contents are wrong
├── WorkloadFault      a workload file is broken, so the process doesn't start
├── ArtifactNotFound   the job has no such file, or its file is gone
├── ArtifactTooLarge   a file has more bytes than the settings allow
├── ArtifactStoreUnavailable  the artifact store can't be read or written now
├── ArtifactStoreUnfit DYNO_ARTIFACT_URL or DYNO_ARTIFACT_DIR can't be an artifact store
├── RunFailed          a run ended without a result; carries the failure's class and reason
└── ServerUnavailable  Dyno could not find or start a Redis-compatible server

Each class has a stable `code` that callers may depend on. `service/problems.py` gives each code its HTTP status.

`CommandExit` and `WorkerExit` are the exit codes that scripts and service managers rely on. 0, 1 (failed) and 2 (wrong
usage) mean the same everywhere.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class DynoError(Exception):
    """Base of all Dyno errors. `detail` is for people, `code` for programs."""

    code: ClassVar[str] = "dyno-error"

    def __init__(self, detail: str) -> None:
        super().__init__(detail)
        self.detail = detail


@dataclass(frozen=True)
class FieldError:
    """One wrong field: JSON pointer (RFC 6901), stable code, a sentence."""

    pointer: str
    code: str
    detail: str


class InvalidSpec(DynoError):
    code = "invalid-spec"

    def __init__(self, errors: list[FieldError]) -> None:
        super().__init__("; ".join(f"{e.pointer or '/'}: {e.detail}" for e in errors))
        self.errors = errors


class DoesNotFit(InvalidSpec):
    code = "does-not-fit"


class ExceedsTimeout(InvalidSpec):
    code = "exceeds-timeout"


class Unsupported(InvalidSpec):
    code = "unsupported"


class InvalidComparison(InvalidSpec):
    code = "invalid-comparison"


class InvalidBaseline(InvalidSpec):
    code = "invalid-baseline"


class InvalidSchedule(InvalidSpec):
    code = "invalid-schedule"


class InvalidSweep(InvalidSpec):
    code = "invalid-sweep"


class InvalidImport(InvalidSpec):
    code = "invalid-import"


class InvalidKey(InvalidSpec):
    code = "invalid-key"


class NotComparable(DynoError):
    """`fields` maps the JSON pointer of each difference to the results' values, in the order of the request."""

    code = "not-comparable"

    def __init__(self, detail: str, fields: Mapping[str, Sequence[object]]) -> None:
        super().__init__(detail)
        self.fields = fields


class NoDeviceFits(DynoError):
    code = "no-device-fits"


class UnknownJob(DynoError):
    code = "job-not-found"


class UnknownWorkload(DynoError):
    code = "workload-not-found"


class UnknownComparison(DynoError):
    code = "comparison-not-found"


class UnknownBaseline(DynoError):
    code = "baseline-not-found"


class UnknownSchedule(DynoError):
    code = "schedule-not-found"


class UnknownAlarm(DynoError):
    code = "alarm-not-found"


class UnknownSweep(DynoError):
    code = "sweep-not-found"


class UnknownDevice(DynoError):
    code = "device-not-found"


class KeyExpired(DynoError):
    code = "key-expired"


class UnknownKey(DynoError):
    code = "key-not-found"


class UnknownDelivery(DynoError):
    code = "delivery-not-found"


class JobFinished(DynoError):
    code = "job-finished"


class SweepFinished(DynoError):
    code = "sweep-finished"


class JobLive(DynoError):
    code = "job-live"


class ResultNotReady(DynoError):
    """`job_status`: the job's current status, if known."""

    code = "result-not-ready"

    def __init__(self, detail: str, job_status: str | None = None) -> None:
        super().__init__(detail)
        self.job_status = job_status


class NoResult(ResultNotReady):
    code = "no-result"


class IdempotencyKeyReused(DynoError):
    code = "idempotency-key-reused"


class JobExpired(DynoError):
    code = "job-expired"


class PriorityNotAllowed(DynoError):
    code = "priority-not-allowed"


class LimitReached(DynoError):
    """The `quota` of `policy` is used up for `retry_after_s` seconds. `window_s`: the window of a rate limit."""

    code = "limit-reached"

    def __init__(self, detail: str, policy: str, quota: int, window_s: int | None, retry_after_s: int) -> None:
        super().__init__(detail)
        self.policy, self.quota = policy, quota
        self.window_s, self.retry_after_s = window_s, retry_after_s


class QueueFull(LimitReached):
    code = "queue-full"


class StaleToken(DynoError):
    code = "stale-token"


class StoreUnavailable(DynoError):
    code = "store-unavailable"


class RecordUnreadable(DynoError):
    code = "record-unreadable"


class StoreUnfit(DynoError):
    code = "store-unfit"


class DeviceUnavailable(DynoError):
    code = "device-unavailable"


class DeviceBusy(DeviceUnavailable):
    """`pid`, `command` and `job` describe the process that uses the device; None if its lock file doesn't name them."""

    code = "device-busy"

    def __init__(self, detail: str, pid: int | None, command: str | None, job: str | None) -> None:
        super().__init__(detail)
        self.pid, self.command, self.job = pid, command, job


class HostNameTaken(DynoError):
    code = "host-name-taken"


class FrameworkMissing(DynoError):
    code = "framework-missing"


class TracingMissing(DynoError):
    code = "tracing-missing"


class DatasetDamaged(DynoError):
    code = "dataset-damaged"


class WorkloadFault(DynoError):
    code = "workload-fault"


class ArtifactNotFound(DynoError):
    code = "artifact-not-found"


class ArtifactTooLarge(DynoError):
    code = "artifact-too-large"


class ArtifactStoreUnavailable(DynoError):
    code = "artifact-store-unavailable"


class ArtifactStoreUnfit(DynoError):
    code = "artifact-store-unfit"


class ServerUnavailable(DynoError):
    code = "server-unavailable"


class RunFailed(DynoError):
    """A run ended without a result. `failure_class`: a `dyno.models.job.FailureClass`; `reason`: a status_reason."""

    code = "run-failed"

    def __init__(self, failure_class: str, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.failure_class = failure_class
        self.reason = reason


class CommandExit(IntEnum):
    """Exit codes of `dyno` commands that call the API."""

    FAILED = 1
    REFUSED = 3
    UNREACHABLE = 4
    SLOWER = 5  # slower than the base of `dyno compare` (or possibly, with --fail-on), or than the baseline allows
    NOT_JUDGED = 6  # a compared result is untrusted, or its work or hardware differs from the baseline's


class WorkerExit(IntEnum):
    """Exit codes of `dyno worker`, which runs a worker."""

    NOT_STARTED = 3  # or it ended because another machine has taken this host's name
    DEVICE_GONE = 4  # the device disappeared after the start
