"""The heartbeat of an attempt: extends the lease over all runs, sends progress and log, returns cancel requests.

`background_call` runs a long blocking call, such as a transfer, on its own thread. Meanwhile heartbeats continue and a
cancel takes effect.
"""

import codecs
import logging
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import NamedTuple, TypeVar

from dyno.errors import StoreUnavailable
from dyno.models.job import WORKER_SHUTDOWN, Progress
from dyno.models.result import PartialMetrics, Phases
from dyno.models.runner_protocol import ProgressFrame
from dyno.store.leases import Claim, Leases, LogPiece
from workers import log, monitor
from workers.outcome import Dropped, Ending, HandedBack, Stopped

_LEAST_FRACTION = 0.05  # below, the first run's startup distorts the ETA (measured: 237 s when 10 s were left)
_MOST_FRACTION = 0.99  # of a job that isn't done
_LEAST_ETA_S = 0.1
FIRST_BEAT = 0.25  # of the time between two heartbeats: short jobs have progress, too
_OVERDUE = 0.05  # the rest of a run that takes longer than expected, as a share of the expected time
_TRAINED = ("evaluation", "generation", "warmup", "sampling")  # phases after the training
_SAMPLED = ("latency", "verify", "artifacts", "second_look")  # phases after the samples


class RunTimes(NamedTuple):
    """Expected or actual times of one run: `run_s` without its full training, which takes `train_s`."""

    run_s: float
    train_s: float = 0.0

    @property
    def all_s(self) -> float:
        return self.run_s + self.train_s


class JobProgress:
    """Progress over all runs. `plan`: expected times of each run, in order; only their ratios matter.

    The fraction is that of the planned time. It falls only if the plan grows: if a baseline requires more runs.
    `likely_s`: the duration of the whole job, by earlier jobs; None if unknown. The remaining time moves from there to
    what the job's own steps and runs tell.
    """

    def __init__(self, plan: Sequence[RunTimes], likely_s: float | None = None) -> None:
        self._plan, self._likely_s = plan, likely_s
        self._took: list[RunTimes] = []
        self._is_first: list[bool] = []  # of each run that has ended
        self._began_s = 0.0  # of the current run
        self._trained_from: tuple[float, float] | None = None  # first time in the current run's training, and its share
        self._training_s = self._training_ends_s = 0.0  # of the current run, by its steps so far; 0 if unknown

    def replan(self, plan: Sequence[RunTimes]) -> None:
        """Replace the plan by one that begins alike."""
        self._plan = plan

    def run_ended(self, elapsed_s: float, training_s: float = 0.0, first_only_s: float = 0.0) -> None:
        """Note that a run has ended `elapsed_s` after the claim. Its full training took `training_s`.

        `first_only_s`: time that further runs don't take, such as checks and choices; 0 for a further run.
        """
        self._took.append(RunTimes(max(0.0, elapsed_s - self._began_s - training_s - first_only_s), training_s))
        self._is_first.append(training_s + first_only_s > 0)
        self._began_s, self._trained_from, self._training_s = elapsed_s, None, 0.0

    def of(self, frame: ProgressFrame | None, run: int, elapsed_s: float) -> Progress | None:
        """The progress to report; None before the first frame of run 0.

        `run` counts from 0, `elapsed_s` from the claim.
        """
        if frame is None and run == 0:
            return None
        frame, run = frame or ProgressFrame(phase="starting"), min(run, len(self._plan) - 1)
        within = _within(frame, self._plan[run])
        if frame.phase == "training":
            self._note_training(frame, elapsed_s)
        made_s = _all_s(self._plan[:run]) + within * self._plan[run].all_s
        fraction = min(made_s / _all_s(self._plan), _MOST_FRACTION)
        eta_s = self._eta_s(within, run, fraction, elapsed_s)
        return Progress(  # rounded: streams keep thousands of them
            phase=frame.phase,
            run=run + 1,
            runs=len(self._plan),
            completed=frame.completed,
            total=frame.total,
            unit=frame.unit,
            fraction=round(fraction, 4),
            eta_s=None if eta_s is None else round(eta_s, 3),
            elapsed_s=round(elapsed_s, 3),
        )

    def _note_training(self, frame: ProgressFrame, elapsed_s: float) -> None:
        """All steps of a training take about as long, so the time of a share of them tells that of all."""
        share = _share(frame)
        from_s, from_share = self._trained_from = self._trained_from or (elapsed_s, share)
        if share - from_share >= _LEAST_FRACTION:
            self._training_s = (elapsed_s - from_s) / (share - from_share)
            self._training_ends_s = elapsed_s + (1 - share) * self._training_s

    def _eta_s(self, within: float, run: int, fraction: float, elapsed_s: float) -> float | None:
        """A mean of two forecasts of the whole time: that of earlier jobs, and that of this job so far.

        The second one counts for the share of the time or of the runs that is over, or that the training takes.
        """
        whole_s = self._whole_s(within, run, fraction, elapsed_s)
        weight = max(fraction, run / (run + 1), self._training_s / whole_s if whole_s else 0.0)
        if self._likely_s is not None:
            whole_s = self._likely_s if whole_s is None else weight * whole_s + (1 - weight) * self._likely_s
        if whole_s is None:
            return None
        return max(whole_s - elapsed_s, _OVERDUE * (1 - fraction) * elapsed_s, _LEAST_ETA_S)

    def _whole_s(self, within: float, run: int, fraction: float, elapsed_s: float) -> float | None:
        """The time of the whole job by this job alone; None below 5 %."""
        if not self._took:
            if self._training_s:
                return max(self._training_ends_s, elapsed_s) + self._after_training_s(within)
            return elapsed_s / fraction if fraction >= _LEAST_FRACTION else None
        planned = self._plan[: len(self._took)]
        rate = self._rate(planned)
        planned_s, trained_s = sum(each.train_s for each in planned), sum(took.train_s for took in self._took)
        train_rate = trained_s / planned_s if planned_s else rate
        current, *later = (RunTimes(rate * each.run_s, train_rate * each.train_s) for each in self._plan[run:])
        left_s = max(current.all_s - (elapsed_s - self._began_s), _OVERDUE * current.all_s, 0.0)
        return elapsed_s + (left_s if within < 1 else 0.0) + _all_s(later)

    def _rate(self, planned: Sequence[RunTimes]) -> float:
        """The time of runs to the planned time: of further runs, if one has ended."""
        each = zip(self._is_first, self._took, planned, strict=True)
        pairs = [
            (took.run_s, plan.run_s) for is_first, took, plan in each if not (is_first and not all(self._is_first))
        ]
        return sum(took_s for took_s, _ in pairs) / sum(planned_s for _, planned_s in pairs)

    def _after_training_s(self, within: float) -> float:
        """The time of all that follows the first run's training: as planned, or longer if earlier jobs were longer."""
        rest_s = (self._plan[0].run_s if within < 1 else 0.0) + _all_s(self._plan[1:])
        return rest_s if self._likely_s is None else rest_s * self._likely_s / _all_s(self._plan)


def _all_s(times: Sequence[RunTimes]) -> float:
    return math.fsum(each.all_s for each in times)


def _share(frame: ProgressFrame) -> float:
    return min(1.0, frame.completed / frame.total) if frame.total else 0.0


def _within(frame: ProgressFrame, planned: RunTimes) -> float:
    """The share of a run's planned time that is over."""
    share, training = _share(frame), planned.train_s / planned.all_s
    if frame.phase == "training":
        return training * share
    if frame.phase in _SAMPLED:
        return 1.0
    after = training if frame.phase in _TRAINED else 0.0
    return after + (1 - after) * share if frame.phase == "sampling" else after


PIECE_BYTES = 16 * 1024  # per heartbeat; of more output, only the end is kept


class JobLog:
    """Buffers the runners' output for heartbeats. It is bounded: one pending piece, and the output since."""

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
        """The piece to send; the same one, with the same number, until `sent` is called."""
        if self._piece is None and self._waiting:
            text = self._decoder.decode(self._waiting)
            if self._left_out_bytes:
                text = f"[{self._left_out_bytes} bytes left out]\n{text}"
            self._piece = LogPiece(self._number, text)
            self._waiting, self._left_out_bytes = b"", 0
        return self._piece

    def sent(self) -> None:
        """Drop the piece: the store has it, or has rejected it because another attempt owns the job."""
        self._number += 1
        self._piece = None


class Heartbeat:
    """The heartbeat of one attempt; it spans all runs, so that many short runs can't delay it.

    `due_s`: time of the next one on `clock`. `heard`: whether the last one reached the store. `progress`: replace it
    once the attempt knows how long its runs may take.
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
        """Send a heartbeat; returns the reason if the run has to stop. If Redis is unreachable, the run continues."""
        progress = self.progress.of(frame, run, self.clock() - self._claimed_s)
        piece = self.log.piece()
        try:
            orders = self._leases.heartbeat(self._claim, progress, piece)
        except StoreUnavailable as error:
            log.event("heartbeat-missed", logging.WARNING, job=self._claim.job_id, why=error.detail)
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

    def run_ended(self, phases: Phases, *, is_first: bool) -> None:
        """Note the end of a run for the progress: the first run of a spec trains, chooses and checks."""
        first_only_s = (phases.build_s or 0.0) + (phases.overhead_s or 0.0) if is_first else 0.0
        self.progress.run_ended(self.clock() - self._claimed_s, phases.training_s or 0.0, first_only_s)

    def send_metrics(self, metrics: PartialMetrics) -> None:
        """Send the figures of the runs so far. They are lost if Redis is unreachable: the next run's replace them."""
        try:
            self._leases.heartbeat(self._claim, None, so_far=metrics)
        except StoreUnavailable as error:
            log.event("metrics-not-sent", logging.WARNING, job=self._claim.job_id, why=error.detail)

    def send_log(self) -> None:
        """Send the last output, before the ending is written.

        While Redis is unreachable it is kept; call again then.
        """
        while piece := self.log.piece():
            try:
                self._leases.heartbeat(self._claim, None, piece)
            except StoreUnavailable:
                return
            self.log.sent()


T = TypeVar("T")


class AttemptEnded(Exception):
    """Ends the attempt before it has a result; `ending` says how."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(type(ending).__name__)
        self.ending = ending


class CallTimedOut(Exception):
    """The call didn't return in time. A hanging mount, for example, can block forever."""


def background_call(
    work: Callable[[threading.Event], T], phase: str, run: int, heartbeat: Heartbeat, within_s: float = math.inf
) -> T:
    """Run `work(abandoned)` on a thread, and return its value or raise its error.

    Raises AttemptEnded if the job is canceled, lost or handed back first, and CallTimedOut after `within_s`. In these
    cases `abandoned` is set and the outcome of `work` is ignored.
    """
    abandoned, outcome = threading.Event(), Future[T]()
    deadline_s = heartbeat.clock() + within_s
    threading.Thread(target=_run_call, args=(outcome, work, abandoned), name=phase, daemon=True).start()
    try:
        while not outcome.done():
            wait([outcome], max(0.0, min(heartbeat.due_s, deadline_s) - heartbeat.clock()))
            if heartbeat.clock() >= heartbeat.due_s:
                _beat(phase, run, heartbeat)
            if not outcome.done() and heartbeat.clock() >= heartbeat.stop.deadline_s:
                raise AttemptEnded(HandedBack(WORKER_SHUTDOWN))
            if not outcome.done() and heartbeat.clock() >= deadline_s:
                raise CallTimedOut(f"timed out after {within_s:.0f} s")
        return outcome.result()
    finally:
        abandoned.set()


def _run_call(outcome: Future[T], work: Callable[[threading.Event], T], abandoned: threading.Event) -> None:
    try:
        outcome.set_result(work(abandoned))
    except BaseException as error:  # noqa: BLE001 - raised by the thread that waits for the outcome
        outcome.set_exception(error)


def _beat(phase: str, run: int, heartbeat: Heartbeat) -> None:
    order = heartbeat.beat(ProgressFrame(phase=phase), run)
    if order is monitor.StopReason.SUPERSEDED:
        raise AttemptEnded(Dropped())
    if order is monitor.StopReason.CANCEL:
        raise AttemptEnded(Stopped())
