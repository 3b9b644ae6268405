"""Classify the failure of a run without a record."""

import signal

from dyno.bench.runner.monitor import RunEnd, StopReason
from dyno.models.job import NO_SUCH_DEVICE, Failure, FailureClass

# Signals from outside the runner. If the supervisor sent the signal, `RunEnd.stopped_for` is set.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def failure_of(ended: RunEnd, timeout_s: float, stall_s: float) -> Failure | None:
    """The failure of a run without a record; None if the run has a record.

    Cancel, shutdown and a lost lease aren't failures; the caller handles them before.
    """
    if ended.record is not None:
        return None
    if ended.stopped_for is StopReason.TIMEOUT:
        return _failure(ended, FailureClass.TIMEOUT, "timeout", f"the job exceeded its timeout of {timeout_s:g} s")
    if ended.stopped_for is StopReason.STALL:
        return _failure(ended, FailureClass.BENCHMARK, "stalled", f"the runner sent nothing for {stall_s:g} s")
    if ended.excess is not None:  # checked before the runner's own error, which is only a consequence
        return _failure(ended, FailureClass.RESOURCE, ended.excess.reason, ended.excess.message)
    if ended.failed is not None:
        return _failure(ended, ended.failed.failure_class, ended.failed.reason, ended.failed.message)
    return _of_exit(ended)


def lost_device(why: str, failure: Failure) -> Failure:
    """`failure` as an infrastructure failure, because the run's device is gone and another device may run the job."""
    message = f"the device is gone: {why}. The run on it failed: {failure.reason}: {failure.message}"
    lost = {"failure_class": FailureClass.INFRASTRUCTURE, "reason": NO_SUCH_DEVICE, "message": message}
    return failure.model_copy(update=lost)


def has_lost_device(failure: Failure) -> bool:
    """Whether the device is gone. If only a framework doesn't find it, the failure is `unsupported` instead."""
    return (failure.failure_class, failure.reason) == (FailureClass.INFRASTRUCTURE, NO_SUCH_DEVICE)


def _of_exit(ended: RunEnd) -> Failure:
    if ended.exit.refused is not None:
        return _failure(ended, FailureClass.INFRASTRUCTURE, "runner_not_started", ended.exit.refused)
    if ended.exit.lost:
        return _failure(ended, FailureClass.INFRASTRUCTURE, "runner_killed", "the zygote died and the runner with it")
    if ended.exit.signal is not None:
        return _of_signal(ended, signal.Signals(ended.exit.signal))
    if ended.exit.code:
        message = f"the runner exited with code {ended.exit.code}"
        return _failure(ended, FailureClass.BENCHMARK, "runner_crashed", message)
    return _failure(ended, FailureClass.BENCHMARK, "no_result", "the runner ended without a result")


def _of_signal(ended: RunEnd, number: signal.Signals) -> Failure:
    if number not in _FROM_OUTSIDE:
        message = f"the runner was killed by {number.name}: {signal.strsignal(number)}"
        return _failure(ended, FailureClass.BENCHMARK, "runner_crashed", message)
    if ended.oom_killed and number is signal.SIGKILL:
        message = "the runner died of SIGKILL, and meanwhile the kernel killed a process because memory ran out"
        return _failure(ended, FailureClass.RESOURCE, "out_of_memory", message)
    message = f"another process ended the runner with {number.name}"
    return _failure(ended, FailureClass.INFRASTRUCTURE, "runner_killed", message)


def _failure(ended: RunEnd, failure_class: FailureClass, reason: str, message: str) -> Failure:
    return Failure(
        failure_class=failure_class,
        reason=reason,
        message=message,
        exit_code=ended.exit.code,
        signal=ended.exit.signal,
        log_tail=ended.log_tail,
    )
