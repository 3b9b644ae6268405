"""Why a run ended without a result, in the words of a job's `failure`."""

from __future__ import annotations

import errno

from dyno.errors import DatasetDamaged, DeviceUnavailable, FrameworkMissing, InvalidSpec, RunFailed, UnknownWorkload
from dyno.frameworks.contract import Framework
from dyno.models.job import NO_SUCH_DEVICE, FailureClass
from dyno.models.runner_protocol import FailedFrame

# The first that fits counts. Everything else is the workload's own fault: benchmark/workload_error.
_CLASSED: tuple[tuple[type[BaseException], FailureClass, str], ...] = (
    (MemoryError, FailureClass.RESOURCE, "out_of_memory"),
    (DatasetDamaged, FailureClass.BENCHMARK, "dataset_damaged"),
    (FrameworkMissing, FailureClass.UNSUPPORTED, "framework_missing"),
    (DeviceUnavailable, FailureClass.UNSUPPORTED, NO_SUCH_DEVICE),
    (UnknownWorkload, FailureClass.UNSUPPORTED, "unknown_workload"),
    (InvalidSpec, FailureClass.UNSUPPORTED, "invalid_spec"),
)
_FULL = (errno.ENOSPC, errno.EDQUOT)


def failed(error: BaseException, framework: Framework | None) -> FailedFrame:
    """The last frame of a run that `error` ended; `framework` recognises its own out-of-memory, if it got so far."""
    message = f"{error}" or type(error).__name__
    if isinstance(error, RunFailed):
        return FailedFrame(failure_class=FailureClass(error.failure_class), reason=error.reason, message=message)
    if framework is not None and framework.out_of_memory(error):
        return FailedFrame(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message=message)
    if isinstance(error, OSError) and error.errno in _FULL:
        return FailedFrame(failure_class=FailureClass.RESOURCE, reason="disk_full", message=message)
    for kind, failure_class, reason in _CLASSED:
        if isinstance(error, kind):
            return FailedFrame(failure_class=failure_class, reason=reason, message=message)
    message = f"{type(error).__name__}: {message}"
    return FailedFrame(failure_class=FailureClass.BENCHMARK, reason="workload_error", message=message)
