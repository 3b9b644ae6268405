"""Claims jobs for one device and sees each of them through. Never imports a framework."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from dyno import logs
from dyno.errors import StoreUnavailable
from dyno.fleet import WorkerState
from dyno.job import WorkerRef
from dyno.store.leases import Claim
from dyno.store.queues import queues_served
from workers.attempt import Attempt
from workers.ending import Failed, HandedBack
from workers.equipment import Equipment
from workers.log import event
from workers.outcome import has_lost_device
from workers.spool import Spool
from workers.taking import taker
from workers.telling import catch_up, tell
from workers.traced import note, traced


class Supervisor:
    """`wake(queue)` calls the next worker; `show(state, job_id)` is for whoever publishes what this worker does.

    `leave` is called when the device is gone: there is nothing left to serve.
    """

    def __init__(
        self,
        equipment: Equipment,
        worker: WorkerRef,
        wake: Callable[[str], object],
        show: Callable[[WorkerState, str | None], None] = lambda state, job: None,
        leave: Callable[[], None] = lambda: None,
    ) -> None:
        self._equipment, self._worker, self._wake, self._show = equipment, worker, wake, show
        self._leave = leave
        self._queues = queues_served(equipment.device)
        self._taker = taker(equipment.device, equipment.workloads)
        self._spool = Spool(equipment.settings.spool_dir, equipment.settings.namespace)
        self._serving = threading.Lock()

    def serve(self) -> int:
        """Run jobs until none is left that fits this device; returns how many. What a wake-up calls, and a start."""
        served = 0
        with self._serving:
            try:
                while not self._equipment.stop.stopping and (claim := self._claim()):
                    served += 1
                    with logs.about_job(claim.job_id):
                        self._show("busy", claim.job_id)
                        if not self._see_through(claim):
                            break
            finally:
                self._show("draining" if self._equipment.stop.stopping else "idle", None)
        return served

    def catch_up(self) -> None:
        """Write what a worker of this host has spooled, unless a job runs here: no benchmark is to notice that."""
        if self._serving.acquire(blocking=False):
            try:
                catch_up(self._spool, self._equipment.leases)
            finally:
                self._serving.release()

    def stop(self, within_s: float) -> None:
        """Claim nothing more, and hand back what still runs after `within_s`. Safe to call from a signal handler."""
        self._equipment.stop.stop(self._equipment.clock() + within_s)

    def _claim(self) -> Claim | None:
        catch_up(self._spool, self._equipment.leases)  # first: it may end a lease that this device still has
        try:
            claim = self._equipment.leases.claim(
                self._equipment.device.full_id, self._queues, self._worker, self._taker
            )
        except StoreUnavailable as error:
            event("claim-failed", logging.WARNING, why=error.detail)
            return None
        if claim is None:
            self._pass_on()
            return None
        event("claimed", job=claim.job_id, attempt=claim.attempt, queue=claim.queue, left_behind=claim.left_behind)
        if claim.left_behind:
            self._call_next(claim.queue)
        return claim

    def _pass_on(self) -> None:
        """Jobs may wait that don't fit this device: call those resting workers that haven't looked at them."""
        try:
            queues = self._equipment.leases.unaware(self._equipment.device)
        except StoreUnavailable as error:
            event("pass-on-failed", logging.WARNING, why=error.detail)
            return
        for queue in queues:
            event("passed-on", queue=queue)
            self._call_next(queue)

    def _call_next(self, queue: str) -> None:
        try:
            self._wake(queue)
        except Exception as error:  # noqa: BLE001 - a lost wake-up is sent again by the reconciler; the job at hand goes first
            event("wake-failed", logging.WARNING, queue=queue, why=repr(error))

    def _see_through(self, claim: Claim) -> bool:
        """Run the job to its end; False: don't claim again now, what was handed back would come back at once.

        At a shutdown another worker is called to it. A job whose device is busy waits for the reconciler's slower
        wake-up: one sent now would come straight back here.
        """
        equipment = self._equipment
        attempt = Attempt(claim, equipment)
        with traced(claim, equipment) as span:
            ending = attempt.run()
            counted = tell(
                ending, claim, equipment.leases, self._spool, equipment.stop, equipment.clock, attempt.tell_log
            )
            note(span, ending, counted)
        event("ended", job=claim.job_id, attempt=claim.attempt, ending=type(ending).__name__, counted=counted)
        if isinstance(ending, Failed) and has_lost_device(ending.failure):
            event("device-gone", logging.ERROR, device=equipment.device.full_id, why=ending.failure.message)
            self.stop(0)
            self._leave()
            self._call_next(claim.queue)
            return False
        if not isinstance(ending, HandedBack):
            return True
        if ending.reason == "worker_shutdown":
            self._call_next(claim.queue)
        return False
