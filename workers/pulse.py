"""The heartbeat of an attempt: it keeps the lease over all runs, carries the progress, and brings back orders."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dyno.errors import StoreUnavailable
from dyno.models.runner_protocol import ProgressFrame
from dyno.store.leases import Claim, Leases
from workers.job_log import JobLog
from workers.log import event
from workers.progress import JobProgress
from workers.stop import StopReason


class Pulse:
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
