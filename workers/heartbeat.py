"""The heartbeat of an attempt: keeps the lease over all runs, carries progress and log, brings back orders.

`background_call` runs what blocks for long, such as a transfer, on a thread of its own, while heartbeats go on and a
cancel is obeyed. `WorkerContext` holds what a supervisor shares with its attempts.
"""

from __future__ import annotations

import codecs
import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from typing import TypeVar

from dyno.devices.device import Device
from dyno.errors import StoreUnavailable
from dyno.logging import Tracer
from dyno.models.job import Progress
from dyno.models.runner_protocol import ProgressFrame
from dyno.settings import Settings
from dyno.store.leases import Claim, Leases, LogPiece
from dyno.workloads.contract import Workload
from workers.launcher import Launcher
from workers.log import event
from workers.monitor import StopReason, StopSwitch
from workers.outcome import Dropped, Ending, HandedBack, Stopped

_LEAST_FRACTION = 0.05  # before that the start of the first run weighs too much: measured, 237 s for the last 10
_TRAINING_SHARE = 0.5  # of a run that trains in full before it samples: a guess that only the bar sees


class JobProgress:
    """Fraction over all runs, never falling within a run. `runs` is the most there may be."""

    def __init__(self, runs: int) -> None:
        self._runs = runs
        self._trained: int | None = None  # the last run that did

    def of(self, frame: ProgressFrame | None, run: int, elapsed_s: float) -> Progress | None:
        """`run` counts from 0, `elapsed_s` from the claim; None before the first frame of all."""
        if frame is None and run == 0:
            return None
        frame = frame or ProgressFrame(phase="starting")
        fraction = (run + self._within(frame, run)) / self._runs
        return Progress(
            phase=frame.phase,
            run=run + 1,
            runs=self._runs,
            completed=frame.completed,
            total=frame.total,
            unit=frame.unit,
            fraction=fraction,
            eta_s=elapsed_s * (1 - fraction) / fraction if fraction >= _LEAST_FRACTION else None,
        )

    def _within(self, frame: ProgressFrame, run: int) -> float:
        share = min(1.0, frame.completed / frame.total) if frame.total else 0.0
        if frame.phase == "training":
            self._trained = run
            return _TRAINING_SHARE * share
        before = _TRAINING_SHARE if self._trained == run else 0.0
        if frame.phase == "sampling":
            return before + (1 - before) * share
        return 1.0 if frame.phase in ("verify", "artifacts", "second_look") else before


PIECE_BYTES = 16 * 1024  # in one heartbeat; of a flood only the end is kept


class JobLog:
    """Bounded: one piece that is on its way, and what has come since."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._begins = b""  # said before the first word of a run
        self._waiting = b""
        self._left_out_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._piece: LogPiece | None = None
        self._number = 0

    def begin(self, run: int) -> None:
        """What comes now is of this run, from 0."""
        self._begins = f"[attempt {self._attempt}, run {run + 1}]\n".encode()

    def add(self, data: bytes) -> None:
        waiting = self._waiting + self._begins + data
        self._begins = b""
        self._left_out_bytes += max(0, len(waiting) - PIECE_BYTES)
        self._waiting = waiting[-PIECE_BYTES:]

    def piece(self) -> LogPiece | None:
        """What to send now: the same, under the same number, until it is `sent`."""
        if self._piece is None and self._waiting:
            text = self._decoder.decode(self._waiting)
            if self._left_out_bytes:
                text = f"[{self._left_out_bytes} bytes left out]\n{text}"
            self._piece = LogPiece(self._number, text)
            self._waiting, self._left_out_bytes = b"", 0
        return self._piece

    def sent(self) -> None:
        """The store has it, or has another attempt's."""
        self._number += 1
        self._piece = None


class Heartbeat:
    """One per attempt, so that many short runs don't put it off. `due_s` is on `clock`; `heard`: the last one was."""

    def __init__(self, claim: Claim, leases: Leases, heartbeat_s: float, clock: Callable[[], float]) -> None:
        self._claim, self._leases, self._heartbeat_s, self._clock = claim, leases, heartbeat_s, clock
        self._progress = JobProgress(claim.spec.most_runs)
        self.log = JobLog(claim.attempt)
        self._claimed_s = clock()
        self.heard = True
        self.due_s = self._claimed_s + heartbeat_s

    def beat(self, frame: ProgressFrame | None, run: int) -> StopReason | None:
        """Send one; an answer may order a stop. With Redis away the run goes on: only a superseded token ends it."""
        progress = self._progress.of(frame, run, self._clock() - self._claimed_s)
        piece = self.log.piece()
        try:
            orders = self._leases.heartbeat(self._claim, progress, piece)
        except StoreUnavailable as error:
            event("heartbeat-missed", logging.WARNING, job=self._claim.job_id, why=error.detail)
            self.heard = False
            return None
        finally:
            self.due_s = self._clock() + self._heartbeat_s
        self.heard = True
        if piece is not None:
            self.log.sent()
        if orders.superseded:
            return StopReason.SUPERSEDED
        return StopReason.CANCEL if orders.cancel_requested else None

    def tell_log(self) -> None:
        """Send what was printed last, before the end is told. While Redis is away it stays here: call again."""
        while piece := self.log.piece():
            try:
                self._leases.heartbeat(self._claim, None, piece)
            except StoreUnavailable:
                return
            self.log.sent()


@dataclass(frozen=True)
class WorkerContext:
    """`clock` is monotonic, in seconds; the deadlines of `stop` are on it.

    `gone` looks whether the device is still there: why it isn't, or None. It may take as long as a driver does.
    """

    device: Device
    leases: Leases
    launcher: Launcher
    settings: Settings
    workloads: Mapping[str, Workload]
    stop: StopSwitch = field(default_factory=StopSwitch)
    clock: Callable[[], float] = time.monotonic
    gone: Callable[[], str | None] = lambda: None
    traces: Tracer = field(default_factory=Tracer)


T = TypeVar("T")


class AttemptEnded(Exception):
    """The attempt ends before it has a result, and how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class CallTimedOut(Exception):
    """Nothing was heard of it for as long as it may take at most: a mount, for one, can hang for ever."""


def background_call(
    work: Callable[[threading.Event], T],
    phase: str,
    run: int,
    heartbeat: Heartbeat,
    context: WorkerContext,
    within_s: float = math.inf,
) -> T:
    """What `work(abandoned)` returns or raises.

    Raises AttemptEnded where the job is canceled, lost or handed back first, and CallTimedOut after `within_s`: then
    `abandoned` is set, and the outcome of `work` is ignored.
    """
    abandoned, outcome = threading.Event(), Future[T]()
    deadline_s = context.clock() + within_s
    threading.Thread(target=_run_call, args=(outcome, work, abandoned), name=phase, daemon=True).start()
    try:
        while not outcome.done():
            wait([outcome], max(0.0, min(heartbeat.due_s, deadline_s) - context.clock()))
            if context.clock() >= heartbeat.due_s:
                _beat(phase, run, heartbeat)
            if not outcome.done() and context.clock() >= context.stop.deadline_s:
                raise AttemptEnded(HandedBack("worker_shutdown"))
            if not outcome.done() and context.clock() >= deadline_s:
                raise CallTimedOut(f"no end after {within_s:.0f} s")
        return outcome.result()
    finally:
        abandoned.set()


def _run_call(outcome: Future[T], work: Callable[[threading.Event], T], abandoned: threading.Event) -> None:
    try:
        outcome.set_result(work(abandoned))
    except BaseException as error:  # noqa: BLE001 - whoever waits for the outcome raises it
        outcome.set_exception(error)


def _beat(phase: str, run: int, heartbeat: Heartbeat) -> None:
    order = heartbeat.beat(ProgressFrame(phase=phase), run)
    if order is StopReason.SUPERSEDED:
        raise AttemptEnded(Dropped())
    if order is StopReason.CANCEL:
        raise AttemptEnded(Stopped())
