"""Claims jobs for one device and runs each of them to its end. This module never imports a framework."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Protocol

from dyno.bench import contract
from dyno.bench.devices.locks import DeviceTurn, HeldLocks
from dyno.bench.registry import resolve_stored
from dyno.bench.runner.monitor import has_lost_device
from dyno.errors import DeviceUnavailable, InvalidSpec, StoreUnavailable, UnknownWorkload
from dyno.logging import WORKER_LOG, event, log_context_of_job
from dyno.models.device import Device
from dyno.models.inventory import WorkerState
from dyno.models.job import DEVICE_BUSY, WORKER_SHUTDOWN, Holder, WorkerRef
from dyno.models.spec import Spec
from dyno.store import leases, placement
from dyno.tracing import Carrier, Span, SpanAttributes, Tracer
from workers.attempt import JobAttempt, WorkerContext
from workers.outbox import Outbox, deliver_outcome, deliver_waiting
from workers.outcome import Failed, HandedBack, Outcome


def claim_filter(device: Device, workloads: Mapping[str, contract.Workload]) -> placement.ClaimFilter:
    """The filter for claims on `device`. It accepts invalid jobs, so that their attempts report the error."""

    def fits(spec: Spec) -> bool:
        has_all = all(arm.framework in device.frameworks for arm in spec.arms[1:])  # the queue implies it for arms[0]
        return has_all and all(_fits(arm, device, workloads) for arm in spec.arms)

    return placement.ClaimFilter(placement.profile(device), fits)


def _fits(spec: Spec, device: Device, workloads: Mapping[str, contract.Workload]) -> bool:
    try:
        return resolve_stored(spec, workloads).can_run(device)
    except (UnknownWorkload, InvalidSpec):
        return True
    except Exception:  # noqa: BLE001 - a bug in the workload must not block the next jobs
        WORKER_LOG.exception("fit-unknown workload=%s", spec.workload)
        return True


_TURN_POLL_S = 0.1  # a poll takes 30 microseconds, on cores that run another worker's benchmark
_HUNG_POLL_S = 1.0
_LOOK_AGAIN_S = 5.0  # between checks for queued, claimed or canceled jobs, while another process holds the device
# The pause after an attempt whose device was in use by another process although this worker held the device's lock.
# Each further such attempt doubles the pause.
_LEAST_REST_S, _MOST_REST_S = 5.0, 300.0


class ShowState(Protocol):
    """Publishes the worker's state."""

    def __call__(self, state: WorkerState, job: str | None = None, held_by: Holder | None = None) -> object: ...


class Supervisor:
    """Claims and runs jobs. `wake(queue)` wakes the next worker.

    `leave` is called when the device is gone, so that the worker can end. `prepare` is called once before the first
    job, while no other process uses the device; it returns the updated device.
    """

    def __init__(
        self,
        context: WorkerContext,
        worker: WorkerRef,
        wake: Callable[[str], object],
        show: ShowState = lambda state, job=None, held_by=None: None,
        leave: Callable[[], None] = lambda: None,
        prepare: Callable[[], Device] | None = None,
    ) -> None:
        self._context, self._worker, self._wake, self._show = context, worker, wake, show
        self._leave, self._prepare = leave, prepare
        self._turn = DeviceTurn(context.device, context.settings)
        self._queues = placement.queues_served(context.device)
        self._taker = claim_filter(context.device, context.workloads)
        self._outbox = Outbox(context.settings.spool_dir, context.settings.namespace)
        self._serving = threading.Lock()
        self._hung: Holder | None = None
        self._rest_s, self._rests_until_s = 0.0, -math.inf
        self._is_claim_unanswered = False  # if True, Redis may have made the claim, and `serve` must claim again

    def serve(self) -> int:
        """Run all waiting jobs that fit this device. Returns their number. Called at each wake-up."""
        served = 0
        with self._serving:
            if self._context.clock() < self._rests_until_s:
                return 0
            try:
                while turn := self._take_turn():
                    with turn:
                        if not (claim := self._claim()):
                            break
                        turn.note(claim.job_id)
                        served += 1
                        with log_context_of_job(claim.job_id):
                            self._show("busy", claim.job_id)
                            if not self._see_through(claim):
                                break
            finally:
                self._turn.leave()
                self._show_without_job()
        return served

    def catch_up(self) -> None:
        """Write the outcomes in this host's outbox, and check whether a hung runner has ended.

        Does neither while a job runs here, since both could disturb the benchmark. If the last claim had no response,
        wakes this worker, because Redis may have assigned a job to it, and no other worker would run this job.
        """
        if self._serving.acquire(blocking=False):
            try:
                deliver_waiting(self._outbox, self._context.leases)
                if self._hung is not None:
                    self._look_whether_free()
            finally:
                self._serving.release()
            if self._is_claim_unanswered:
                self._wake_next(self._queues[0])

    def _look_whether_free(self) -> None:
        held = self._turn.take()
        self._turn.leave()
        if isinstance(held, HeldLocks):
            held.release()
            event("device-free", device=self._context.device.full_id)
            self._hung = None
            self._show_without_job()

    def _show_without_job(self) -> None:
        if self._context.stop.stopping:
            self._show("draining")
        elif self._hung is not None:
            self._show("busy", held_by=self._hung)
        else:
            self._show("idle")

    def stop(self, within_s: float) -> None:
        """Stop claiming, and hand back a job that still runs after `within_s`. Safe to call from a signal handler."""
        self._context.stop.stop(self._context.clock() + within_s)

    def _take_turn(self) -> HeldLocks | None:
        """Lock the device, after a wait if necessary. Returns None if no job waits, or if this worker is stopping."""
        holder: Holder | None = None
        while not self._context.stop.stopping:
            deliver_waiting(self._outbox, self._context.leases)  # an outcome in the outbox may free this device's lease
            try:
                held = self._look_at_device(unlike=holder)
            except DeviceUnavailable as error:
                event("claim-failed", logging.WARNING, why=error.detail)
                return None
            if isinstance(held, HeldLocks):
                self._hung = None
                self._get_ready()
                return held
            self._hung = held if held.hung else None
            if (queue := self._pass_over(held)) is None:
                return None
            if held != holder:
                name, level = ("device-hung", logging.ERROR) if held.hung else ("device-held", logging.WARNING)
                event(name, level, why=str(held))
                self._show("busy", held_by=held)
                self._wake_next(queue)  # another device may take the job
            holder = held
        return None

    def _look_at_device(self, unlike: Holder | None) -> HeldLocks | Holder:
        """This worker's lock, or the device's holder. Waits up to 5 s for a holder that differs from `unlike`."""
        until_s = time.monotonic() + (_LOOK_AGAIN_S if unlike else 0)
        while True:
            held = self._turn.take()
            if held != unlike or time.monotonic() >= until_s or self._context.stop.stopping:
                return held
            time.sleep(_TURN_POLL_S if self._hung is None else _HUNG_POLL_S)

    def _pass_over(self, held_by: Holder) -> str | None:
        """Record the device's holder in a job that waits for the device. Returns the job's queue, or None."""
        try:
            return self._context.leases.pass_over(held_by, self._queues, self._taker)
        except StoreUnavailable as error:
            event("claim-failed", logging.WARNING, why=error.detail)
            return None

    def _get_ready(self) -> None:
        if self._prepare is not None:
            device = self._prepare()
            self._context, self._prepare = replace(self._context, device=device), None

    def _claim(self) -> leases.Claim | None:
        try:
            claim = self._context.leases.claim(self._context.device.full_id, self._queues, self._worker, self._taker)
        except StoreUnavailable as error:
            event("claim-failed", logging.WARNING, why=error.detail)
            self._is_claim_unanswered = True
            return None
        self._is_claim_unanswered = False
        if claim is None:
            self._pass_on()
            return None
        event("claimed", job=claim.job_id, attempt=claim.attempt, queue=claim.queue, left_behind=claim.left_behind)
        if claim.left_behind:
            self._wake_next(claim.queue)
        return claim

    def _pass_on(self) -> None:
        """Forward the wake-up: if jobs wait that don't fit this device, wake idle workers that haven't checked them."""
        try:
            queues = self._context.leases.queues_to_notify(self._context.device)
        except StoreUnavailable as error:
            event("pass-on-failed", logging.WARNING, why=error.detail)
            return
        for queue in queues:
            event("passed-on", queue=queue)
            self._wake_next(queue)

    def _wake_next(self, queue: str) -> None:
        try:
            self._wake(queue)
        except Exception as error:  # noqa: BLE001 - the current job must go on; maintenance repeats a lost wake-up
            event("wake-failed", logging.WARNING, queue=queue, why=repr(error))

    def _see_through(self, claim: leases.Claim) -> bool:
        """Run the job to its end. Returns False if this worker must not claim now: it could get the same job at once.

        At a shutdown, wakes another worker for the job. If a process uses the device without the device's
        lock, this worker pauses, each time longer. Then maintenance wakes a worker for the job, because a wake-up sent
        now would come to this worker.
        """
        context = self._context
        attempt = JobAttempt(claim, context)
        with _attempt_span(claim, context.leases, context.traces) as span:
            outcome = attempt.run()
            counted = deliver_outcome(
                outcome, claim, context.leases, self._outbox, context.stop, context.clock, attempt.send_log
            )
            _note_attempt(span, outcome, counted)
        event("ended", job=claim.job_id, attempt=claim.attempt, ending=type(outcome).__name__, counted=counted)
        if isinstance(outcome, Failed) and has_lost_device(outcome.failure):
            event("device-gone", logging.ERROR, device=context.device.full_id, why=outcome.failure.message)
            self.stop(0)
            self._leave()
            self._wake_next(claim.queue)
            return False
        if not isinstance(outcome, HandedBack):
            self._rest_s = 0.0
            return True
        if outcome.reason == WORKER_SHUTDOWN:
            self._wake_next(claim.queue)
        elif outcome.reason == DEVICE_BUSY:
            self._rest_s = min(2 * self._rest_s, _MOST_REST_S) or _LEAST_REST_S
            self._rests_until_s = context.clock() + self._rest_s
        return False


@contextmanager
def _attempt_span(claim: leases.Claim, store: leases.Leases, traces: Tracer) -> Iterator[Span]:
    """The span of an attempt, after a span of the job's time in the queue. Spans are sent after the attempt, so that
    sending can't disturb a run.
    """
    if not traces.on:
        yield Span()
        return
    follows = _waited(claim, store, traces)
    facts: SpanAttributes = {
        "dyno.job": claim.job_id,
        "dyno.workload": claim.spec.workload,
        "dyno.device": claim.device,
        "dyno.attempt": claim.attempt,
    }
    with traces.span("attempt", facts, follows=follows, kind="consumer") as span:
        yield span
    traces.flush()


def _note_attempt(span: Span, outcome: Outcome, counted: bool) -> None:
    """Add the outcome to the span. `counted`: whether the store accepted it; False if another attempt owned the job."""
    failure = outcome.failure if isinstance(outcome, Failed) else None
    span.note(
        {
            "dyno.ending": type(outcome).__name__.lower(),
            "dyno.counted": counted,
            "dyno.reason": failure.reason if failure else None,
        },
        failed=failure.message if failure else None,
    )


def _waited(claim: leases.Claim, store: leases.Leases, traces: Tracer) -> Carrier:
    try:
        origin = store.origin(claim)
    except StoreUnavailable:  # only the link to the request's trace is lost
        return {}
    follows = {"traceparent": origin.traceparent} if origin.traceparent else {}
    facts = {"dyno.job": claim.job_id, "dyno.queue": claim.queue}
    if origin.queued_at_s is not None and origin.started_at_s is not None:
        traces.past("queued", facts, follows=follows, began_s=origin.queued_at_s, ended_s=origin.started_at_s)
    return follows
