"""The heartbeat of an attempt: extends the lease during all runs, sends progress and log, returns cancel requests.

`background_call` runs a long blocking call, such as a transfer, on its own thread. During the call, heartbeats continue
and a cancel takes effect.
"""

import codecs
import logging
import math
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

from dyno.bench.runner import monitor
from dyno.bench.runner.progress import JobProgress, RunTimes
from dyno.errors import StoreUnavailable
from dyno.logging import event
from dyno.models.job import WORKER_SHUTDOWN
from dyno.models.result import PartialMetrics, Phases
from dyno.models.runner_protocol import ProgressFrame
from dyno.store.leases import Claim, Leases, LogPiece
from workers.outcome import Dropped, HandedBack, Outcome, Stopped

FIRST_BEAT = 0.25  # the first heartbeat comes after this share of `heartbeat_s`: short jobs have progress, too


PIECE_BYTES = 16 * 1024  # limit per heartbeat; only the end of longer output is kept


class JobLog:
    """Buffers the runners' output for heartbeats: one pending piece and at most 16 KiB of newer output."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._begins = b""  # header, added before the first output of a run
        self._waiting = b""
        self._left_out_bytes = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._piece: LogPiece | None = None
        self._number = 0

    def begin(self, run: int) -> None:
        """Start the output of a run; `run` counts from 0."""
        self._begins = f"[attempt {self._attempt}, run {run + 1}]\n".encode()

    def add(self, data: bytes) -> None:
        waiting = self._waiting + self._begins + data
        self._begins = b""
        self._left_out_bytes += max(0, len(waiting) - PIECE_BYTES)
        self._waiting = waiting[-PIECE_BYTES:]

    def piece(self) -> LogPiece | None:
        """The piece to send. Returns the same piece, with the same number, until `sent` is called."""
        if self._piece is None and self._waiting:
            text = self._decoder.decode(self._waiting)
            if self._left_out_bytes:
                text = f"[{self._left_out_bytes} bytes left out]\n{text}"
            self._piece = LogPiece(self._number, text)
            self._waiting, self._left_out_bytes = b"", 0
        return self._piece

    def sent(self) -> None:
        """Drop the piece. The store has stored it, or has rejected it because another attempt owns the job."""
        self._number += 1
        self._piece = None


class Heartbeat:
    """The heartbeat of one attempt. One object serves all runs, so that many short runs can't delay a heartbeat.

    `due_s` is the time of the next heartbeat on `clock`. `heard`: whether the last heartbeat reached the store.
    The caller replaces `progress` once it has estimated the duration of the runs.
    """

    def __init__(
        self, claim: Claim, leases: Leases, heartbeat_s: float, clock: Callable[[], float], stop: monitor.StopSwitch
    ) -> None:
        self._claim, self._leases, self._heartbeat_s = claim, leases, heartbeat_s
        self.clock, self.stop = clock, stop
        self.progress = JobProgress([RunTimes(1.0)] * claim.spec.most_runs)
        self.log = JobLog(claim.attempt)
        self._claimed_s = clock()
        self.heard = True
        self.due_s = self._claimed_s + heartbeat_s * FIRST_BEAT

    def beat(self, frame: ProgressFrame | None, run: int) -> monitor.StopReason | None:
        """Send a heartbeat. Returns a reason to stop the run, or None. If Redis is unreachable, the run continues."""
        progress = self.progress.of(frame, run, self.clock() - self._claimed_s)
        piece = self.log.piece()
        try:
            orders = self._leases.heartbeat(self._claim, progress, piece)
        except StoreUnavailable as error:
            event("heartbeat-missed", logging.WARNING, job=self._claim.job_id, why=error.detail)
            self.heard = False
            return None
        finally:
            self.due_s = self.clock() + self._heartbeat_s
        self.heard = True
        if piece is not None:
            self.log.sent()
        if orders.superseded:
            return monitor.StopReason.SUPERSEDED
        return monitor.StopReason.CANCEL if orders.cancel_requested else None

    def run_begins(self, number: int) -> None:
        self.log.begin(number)

    def add_log(self, data: bytes) -> None:
        self.log.add(data)

    def run_ended(self, phases: Phases, *, is_first: bool) -> None:
        self.progress.note_end(phases, self.clock() - self._claimed_s, is_first=is_first)

    def send_metrics(self, metrics: PartialMetrics) -> None:
        """Send the figures of the runs so far. If Redis is unreachable, they are lost; the next run sends new ones."""
        try:
            self._leases.heartbeat(self._claim, None, so_far=metrics)
        except StoreUnavailable as error:
            event("metrics-not-sent", logging.WARNING, job=self._claim.job_id, why=error.detail)

    def send_log(self) -> None:
        """Send the last output, before the outcome is written.

        While Redis is unreachable, the output is kept; call again later.
        """
        while piece := self.log.piece():
            try:
                self._leases.heartbeat(self._claim, None, piece)
            except StoreUnavailable:
                return
            self.log.sent()


T = TypeVar("T")


class AttemptEnded(Exception):
    """Raised to end the attempt before it has a result. `outcome`: the outcome of the attempt."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(type(outcome).__name__)
        self.outcome = outcome


class CallTimedOut(Exception):
    """The call didn't return in time, for example because of a mount that hangs forever."""


def background_call(
    work: Callable[[threading.Event], T], phase: str, run: int, heartbeat: Heartbeat, within_s: float = math.inf
) -> T:
    """Run `work(abandoned)` on a thread, and return its value or raise its error.

    Raises AttemptEnded if the job is canceled, lost or handed back before `work` returns, and CallTimedOut after
    `within_s`. In these cases `abandoned` is set, and the value of `work` is ignored.
    """
    abandoned, future = threading.Event(), Future[T]()
    deadline_s = heartbeat.clock() + within_s
    threading.Thread(target=_run_call, args=(future, work, abandoned), name=phase, daemon=True).start()
    try:
        while not future.done():
            wait([future], max(0.0, min(heartbeat.due_s, deadline_s) - heartbeat.clock()))
            if heartbeat.clock() >= heartbeat.due_s:
                _beat(phase, run, heartbeat)
            if not future.done() and heartbeat.clock() >= heartbeat.stop.deadline_s:
                raise AttemptEnded(HandedBack(WORKER_SHUTDOWN))
            if not future.done() and heartbeat.clock() >= deadline_s:
                raise CallTimedOut(f"timed out after {within_s:.0f} s")
        return future.result()
    finally:
        abandoned.set()


def _run_call(future: Future[T], work: Callable[[threading.Event], T], abandoned: threading.Event) -> None:
    try:
        future.set_result(work(abandoned))
    except BaseException as error:  # noqa: BLE001 - the thread that waits for the call raises it again
        future.set_exception(error)


def _beat(phase: str, run: int, heartbeat: Heartbeat) -> None:
    order = heartbeat.beat(ProgressFrame(phase=phase), run)
    if order is monitor.StopReason.SUPERSEDED:
        raise AttemptEnded(Dropped())
    if order is monitor.StopReason.CANCEL:
        raise AttemptEnded(Stopped())
