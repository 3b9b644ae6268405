"""The exceptions that Dyno raises on purpose, and the exit codes of its processes.

DynoError
├── InvalidSpec        the request can't be run; lists every wrong field
│   ├── DoesNotFit     … for want of memory; the fields to change, with the figures
│   ├── ExceedsTimeout … in the time allowed; the same
│   ├── Unsupported    … with what the fitting devices have: no such framework beside them, too few of them
│   ├── InvalidComparison  a comparison was requested with a wrong field
│   └── InvalidKey     a key was requested with a wrong field
├── NotComparable      the results are not of the same work, or not all of real devices; names every field
├── NoDeviceFits       no known worker can run it
├── UnknownJob, UnknownWorkload, UnknownComparison, UnknownDevice, UnknownKey, UnknownDelivery
├── JobFinished        a transition came after the end
├── JobLive            the job isn't done yet, and the request is for done jobs only
├── ResultNotReady
│   └── NoResult       … nor ever will be: the job failed, or was canceled
├── IdempotencyKeyReused
├── JobExpired         the job that an idempotency key made is gone, and the key makes no second one
├── LimitReached       the caller's key has no more of something, for now
│   └── QueueFull      … and neither has any other key: as many jobs wait as the settings allow
├── StaleToken         another attempt owns the job now
├── StoreUnavailable   Redis is away, full or read-only
├── RecordUnreadable   a stored job, or a record of its, is damaged, or of a version unknown here
├── StoreUnfit         Redis is there, but not set up to keep jobs (evicting, cluster)
├── DeviceUnavailable  the device isn't on this host; says where Dyno looked
│   └── DeviceBusy     … it is, and another process uses it; says which one
├── FrameworkMissing   the framework isn't installed here
├── TracingMissing     tracing is on, and OpenTelemetry isn't installed here
├── DatasetDamaged     a data file is there, but not what it should be
├── WorkloadFault      a workload file is broken; the start fails
├── ArtifactNotFound   no such file of the job, or its file is gone
├── ArtifactTooLarge   a file has more bytes than the settings allow
├── ArtifactStoreUnavailable  the artifact store can't be read or written now
├── ArtifactStoreUnfit DYNO_ARTIFACT_URL or DYNO_ARTIFACT_DIR can't be an artifact store
├── RunFailed          a run ended without a result; carries the failure's class and reason
└── ServerUnavailable  no Redis-compatible server could be found or started

Each class has a stable `code`, the identity that callers may depend on. The service maps codes to HTTP statuses.

`CommandExit` and `WorkerExit` are the exit codes that scripts and service managers rely on. 0, 1 (it broke) and 2
(wrong usage) mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar


class DynoError(Exception):
    """Base of all; `detail` is for a person, `code` for a program."""

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


class InvalidKey(InvalidSpec):
    code = "invalid-key"


class NotComparable(DynoError):
    """`fields`: what differs, by JSON pointer, with the value of each result in the order they were named."""

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


class UnknownDevice(DynoError):
    code = "device-not-found"


class UnknownKey(DynoError):
    code = "key-not-found"


class UnknownDelivery(DynoError):
    code = "delivery-not-found"


class JobFinished(DynoError):
    code = "job-finished"


class JobLive(DynoError):
    code = "job-live"


class ResultNotReady(DynoError):
    """`job_status`: the status of the job now, where it is known."""

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


class LimitReached(DynoError):
    """Of `quota` of the `policy` (in `window_s`, where it is a rate) nothing is left for `retry_after_s`."""

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
    """`pid`, `command` and `job`: of the process that uses it, each null where its lock file doesn't say."""

    code = "device-busy"

    def __init__(self, detail: str, pid: int | None, command: str | None, job: str | None) -> None:
        super().__init__(detail)
        self.pid, self.command, self.job = pid, command, job


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
    """Of `dyno …`, where it asks an API."""

    FAILED = 1
    REFUSED = 3
    UNREACHABLE = 4
    SLOWER = 5  # `dyno compare`: than the first


class WorkerExit(IntEnum):
    """Of `dyno worker`, which becomes a worker."""

    NOT_STARTED = 3
    DEVICE_GONE = 4  # it was there at the start
