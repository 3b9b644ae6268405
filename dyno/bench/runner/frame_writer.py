"""Write a run's frames to its supervisor: one JSON object per line, over a pipe.

The last frame is `done`, or `failed` with the class and reason of the job's `failure`.
"""

import errno
import os
import time
from collections.abc import Callable

from dyno.bench.frameworks.interface import Framework
from dyno.errors import DatasetDamaged, DeviceUnavailable, FrameworkMissing, InvalidSpec, RunFailed, UnknownWorkload
from dyno.models.job import NO_SUCH_DEVICE, FailureClass
from dyno.models.runner_protocol import DoneFrame, FailedFrame, FirstOpFrame, ProgressFrame, StartedFrame

# Only people read progress. A frame costs the runner about 0.1 ms, and wakes the supervisor on the runner's core.
PROGRESS_EVERY_S = 0.5


class FrameWriter:
    """Writes frames to `fd`. Ignores a broken pipe: without a reader, the runner is about to be killed."""

    def __init__(self, fd: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._fd = fd
        self._clock = clock
        self._phase = ""
        self._reported_s = 0.0

    def write(self, frame: StartedFrame | FirstOpFrame | ProgressFrame | DoneFrame | FailedFrame) -> None:
        """Write one whole line, in as many writes as the pipe's buffer needs."""
        line = memoryview(frame.model_dump_json().encode() + b"\n")
        try:
            while line:
                line = line[os.write(self._fd, line) :]
        except BrokenPipeError:
            return

    def report(self, phase: str, completed: int = 0, total: int | None = None, unit: str = "samples") -> None:
        """Write progress, at most every 0.5 s; a new phase is written at once."""
        now_s = self._clock()
        if phase == self._phase and now_s - self._reported_s < PROGRESS_EVERY_S:
            return
        self._phase, self._reported_s = phase, now_s
        self.write(ProgressFrame(phase=phase, completed=completed, total=total, unit=unit))


# The first match applies. All other exceptions are benchmark/workload_error.
_FAILURE_CLASSES: tuple[tuple[type[BaseException], FailureClass, str], ...] = (
    (MemoryError, FailureClass.RESOURCE, "out_of_memory"),
    (DatasetDamaged, FailureClass.BENCHMARK, "dataset_damaged"),
    (FrameworkMissing, FailureClass.UNSUPPORTED, "framework_missing"),
    (DeviceUnavailable, FailureClass.UNSUPPORTED, NO_SUCH_DEVICE),
    (UnknownWorkload, FailureClass.UNSUPPORTED, "unknown_workload"),
    (InvalidSpec, FailureClass.UNSUPPORTED, "invalid_spec"),
)
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


def failure_frame(error: BaseException, framework: Framework | None) -> FailedFrame:
    """The last frame of a run that `error` has ended. A loaded `framework` recognises its own out-of-memory errors."""
    message = f"{error}" or type(error).__name__
    if isinstance(error, RunFailed):
        return FailedFrame(failure_class=FailureClass(error.failure_class), reason=error.reason, message=message)
    if framework is not None and framework.out_of_memory(error):
        return FailedFrame(failure_class=FailureClass.RESOURCE, reason="out_of_memory", message=message)
    if isinstance(error, OSError) and error.errno in _DISK_FULL:
        return FailedFrame(failure_class=FailureClass.RESOURCE, reason="disk_full", message=message)
    for kind, failure_class, reason in _FAILURE_CLASSES:
        if isinstance(error, kind):
            return FailedFrame(failure_class=failure_class, reason=reason, message=message)
    message = f"{type(error).__name__}: {message}"
    return FailedFrame(failure_class=FailureClass.BENCHMARK, reason="workload_error", message=message)
