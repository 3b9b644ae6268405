"""Monitor a runner from its start to its last byte of output, and stop it if necessary.

A cancel or a timeout sends TERM, then KILL. Other reasons send KILL at once. If KILL has no effect, the monitor ends
the zygote. `failure_of` classifies a run that ended without a record.
"""

import math
import os
import select
import selectors
import signal
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from itertools import chain, repeat
from signal import Signals
from typing import Literal, Protocol

from dyno.bench.runner import launcher
from dyno.bench.runner.limits import Excess, oom_kills
from dyno.logging import event
from dyno.models.job import NO_SUCH_DEVICE, Failure, FailureClass
from dyno.models.runner_protocol import DoneFrame, FailedFrame, FirstOpFrame, ProgressFrame, RunRecord


class StopReason(StrEnum):
    """Why the supervisor ended a runner."""

    SUPERSEDED = "superseded"  # another attempt owns the job
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    STALL = "stall"
    EXCESS = "excess"  # the runner exceeded a limit; see `RunEnd.excess`
    SHUTDOWN = "shutdown"


class StopSwitch:
    """Lets a signal handler stop the supervisor, with a list and a file descriptor, because a lock could deadlock.

    `fileno` becomes readable with the first `stop`. `deadline_s`: when the supervisor hands back a job that still runs.
    """

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._deadlines_s = [math.inf]

    @property
    def deadline_s(self) -> float:
        return min(self._deadlines_s)

    @property
    def stopping(self) -> bool:
        return self.deadline_s < math.inf

    def comes_within(self, patience_s: float) -> bool:
        """Wait at most `patience_s` for a stop. Returns whether a stop has been requested."""
        return bool(select.select([self._fd], [], [], patience_s)[0])

    def stop(self, deadline_s: float) -> None:
        """Request the end by `deadline_s` (the supervisor's clock). A deadline after the current one has no effect.

        Appending is atomic. Comparing first and then writing could overwrite a deadline that another signal's handler
        set in between.
        """
        self._deadlines_s.append(deadline_s)
        os.eventfd_write(self._fd, 1)

    def fileno(self) -> int:
        return self._fd

    def close(self) -> None:
        os.close(self._fd)


def shutdown_handler(
    patience_s: float, stop: Callable[[float], None], hear_no_more: Callable[[], None]
) -> Callable[[Signals], None]:
    """The signal handler: the first signal gives the current job `patience_s` to finish. The second signal hands the
    job back at once.

    `next` picks the first signal atomically, because a signal may interrupt another signal's handler anywhere.
    """
    patiences_s = chain([patience_s], repeat(0.0))

    def end(number: Signals) -> None:
        within_s = next(patiences_s)
        stop(within_s)
        hear_no_more()
        event("stopping", signal=number.name, within_s=within_s)

    return end


KILL_TIMEOUT_S = 10.0  # if a runner survives KILL for longer, it or its zygote hangs in the kernel


class HeartbeatSource(Protocol):
    """Sends heartbeats; see `workers.heartbeat.Heartbeat`."""

    due_s: float

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None: ...


class LimitCheck(Protocol):
    """Checks a runner's limits; see `dyno.bench.runner.limits.RunnerLimits`."""

    def exceeded(self, zygote_pid: int | None) -> Excess | None: ...

    def counted(self) -> Excess | None: ...


@dataclass(frozen=True)
class RunLimits:
    """Time limits of a run. `deadline_s` is a time on the monitor's clock; the other limits are durations."""

    stall_s: float
    term_grace_s: float
    deadline_s: float


@dataclass(frozen=True)
class RunEnd:
    """The outcome of a run."""

    start: Literal["forked", "spawned"]
    exit: launcher.RunnerExit
    first_op_at_s: float | None  # time.time() at the end of the device's first operation
    record: RunRecord | None
    failed: FailedFrame | None
    stopped_for: StopReason | None
    log_tail: str | None
    oom_killed: bool
    excess: Excess | None = None  # a run that exceeded a limit may still have a record


class RunnerMonitor:
    """Monitors one run. `run`: the run's number in the job, for heartbeats.

    `bounds`: limits to check with each heartbeat.
    """

    def __init__(
        self,
        runner: launcher.RunnerProcess,
        run: int,
        limits: RunLimits,
        heartbeat: HeartbeatSource,
        stop: StopSwitch,
        clock: Callable[[], float],
        bounds: LimitCheck | None = None,
    ) -> None:
        self._runner, self._run, self._limits, self._heartbeat = runner, run, limits, heartbeat
        self._bounds = bounds
        self._excess: Excess | None = None
        self._switch, self._clock = stop, clock
        self._last_frame_s = clock()
        self._kill_at_s = self._give_up_at_s = math.inf
        self._stopped_for: StopReason | None = None
        self._progress: ProgressFrame | None = None
        self._first_op_at_s: float | None = None
        self._last: DoneFrame | FailedFrame | None = None

    def until_ended(self) -> RunEnd:
        """Wait until the runner has ended, and read its frames and log to the end."""
        oom_kills_before = oom_kills()
        with selectors.DefaultSelector() as selector:
            selector.register(self._runner.frames_fd, selectors.EVENT_READ, self._on_frames)
            selector.register(self._runner.log.read_fd, selectors.EVENT_READ, self._on_log)
            selector.register(self._runner.status_fd, selectors.EVENT_READ, self._on_status)
            selector.register(self._switch, selectors.EVENT_READ, lambda: False)  # once; then the deadline is polled
            while self._runner.exit is None:
                for key, _ in selector.select(self._rest_s()):
                    if not key.data():
                        selector.unregister(key.fileobj)
                self._look_around()
        return self._ended(oom_kills() > oom_kills_before)

    def _rest_s(self) -> float | None:
        due_s = [self._heartbeat.due_s, self._kill_at_s, self._give_up_at_s]
        if self._stopped_for is None and self._last is None:
            due_s += [self._limits.deadline_s, self._last_frame_s + self._limits.stall_s, self._switch.deadline_s]
        rest_s = min(due_s) - self._clock()
        return None if rest_s == math.inf else max(0.0, rest_s)

    def _on_status(self) -> bool:
        self._runner.read_status()
        return True

    def _on_log(self) -> bool:
        return self._runner.log.read() != 0

    def _on_frames(self) -> bool:
        frames = self._runner.read_frames()
        for frame in frames or []:
            self._take(frame)
        return self._runner.frames_open

    def _take(self, frame: launcher.AnyFrame) -> None:
        self._last_frame_s = self._clock()
        if isinstance(frame, ProgressFrame):
            self._progress = frame
        elif isinstance(frame, FirstOpFrame):
            self._first_op_at_s = frame.at_s
        elif isinstance(frame, DoneFrame | FailedFrame):
            self._last = frame
            # This is the last frame. A process that hangs after it must not block the device.
            self._kill_at_s = min(self._kill_at_s, self._last_frame_s + self._limits.term_grace_s)

    def _look_around(self) -> None:
        now_s = self._clock()
        if now_s >= self._kill_at_s:
            self._kill()
        if now_s >= self._give_up_at_s:
            self._give_up_at_s = math.inf
            self._runner.give_up()
        reason = self._on_beat() if now_s >= self._heartbeat.due_s else None
        reason = reason or self._due(now_s)
        if reason and self._stopped_for is None:
            self._stop(reason)

    def _on_beat(self) -> StopReason | None:
        """Check the limits, then send a heartbeat: a slow store mustn't delay the check."""
        if self._bounds is not None and self._stopped_for is None and self._last is None:
            self._excess = self._bounds.exceeded(self._runner.zygote_pid)
            if self._excess is not None:
                self._stop(StopReason.EXCESS)
        return self._heartbeat.beat(self._progress, self._run)

    def _due(self, now_s: float) -> StopReason | None:
        if self._last is not None:
            return None
        if now_s >= self._limits.deadline_s:
            return StopReason.TIMEOUT
        if now_s >= self._last_frame_s + self._limits.stall_s:
            return StopReason.STALL
        return StopReason.SHUTDOWN if now_s >= self._switch.deadline_s else None

    def _stop(self, reason: StopReason) -> None:
        self._stopped_for = reason
        if reason not in (StopReason.CANCEL, StopReason.TIMEOUT):
            self._kill()
            return
        self._kill_at_s = self._clock() + self._limits.term_grace_s
        self._runner.send(signal.SIGTERM)

    def _kill(self) -> None:
        self._kill_at_s = math.inf
        self._give_up_at_s = self._clock() + KILL_TIMEOUT_S
        self._runner.send(signal.SIGKILL)

    def _ended(self, oom_killed: bool) -> RunEnd:
        while (frames := self._runner.read_frames()) is not None:
            for frame in frames:
                self._take(frame)
        self._runner.log.drain()
        assert self._runner.exit is not None
        return RunEnd(
            start=self._runner.start,
            exit=self._runner.exit,
            first_op_at_s=self._first_op_at_s,
            record=self._last.record if isinstance(self._last, DoneFrame) else None,
            failed=self._last if isinstance(self._last, FailedFrame) else None,
            stopped_for=self._stopped_for,
            log_tail=self._runner.log.text(),
            oom_killed=oom_killed,
            excess=self._excess or (self._bounds.counted() if self._bounds is not None else None),
        )


# Signals from outside the runner. If the supervisor sent the signal, `RunEnd.stopped_for` is set.
_FROM_OUTSIDE = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def failure_of(ended: RunEnd, timeout_s: float, stall_s: float) -> Failure | None:
    """The failure of a run without a record; None if the run has a record.

    Cancel, shutdown and a lost lease aren't failures; the caller handles these cases first.
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
        return _of_signal(ended, Signals(ended.exit.signal))
    if ended.exit.code:
        message = f"the runner exited with code {ended.exit.code}"
        return _failure(ended, FailureClass.BENCHMARK, "runner_crashed", message)
    return _failure(ended, FailureClass.BENCHMARK, "no_result", "the runner ended without a result")


def _of_signal(ended: RunEnd, number: Signals) -> Failure:
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
