"""How an attempt can end, and telling the store so until it has heard."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

from dyno.errors import StoreUnavailable
from dyno.job import Failure, FailureClass
from dyno.peers import Headline
from dyno.result import Result
from dyno.samples import RunSamples
from dyno.store.leases import Claim, Leases
from workers.log import event
from workers.stop import StopSwitch

_FIRST_PAUSE_S = 0.1
_LONGEST_PAUSE_S = 2.0


@dataclass(frozen=True)
class Succeeded:
    result: Result
    samples: list[RunSamples]
    headline: Headline | None = None

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.finish(claim, "succeed", result=self.result, samples=self.samples, headline=self.headline)


@dataclass(frozen=True)
class Failed:
    """An infrastructure failure goes back to the queue while attempts are left; the others would only repeat."""

    failure: Failure

    def write(self, leases: Leases, claim: Claim) -> bool:
        reason = self.failure.reason
        if self.failure.failure_class is FailureClass.INFRASTRUCTURE:
            return leases.requeue(claim, reason=reason, counts_attempt=True, failure=self.failure)
        return leases.finish(claim, "fail", status_reason=reason, failure=self.failure)


@dataclass(frozen=True)
class Stopped:
    """A cancel was obeyed."""

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.finish(claim, "stop")


@dataclass(frozen=True)
class HandedBack:
    """For no fault of the job: costs no attempt."""

    reason: str

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.requeue(claim, reason=self.reason, counts_attempt=False)


@dataclass(frozen=True)
class Dropped:
    """Another attempt owns the job: nothing that is said here counts."""

    def write(self, leases: Leases, claim: Claim) -> bool:
        return False


Ending = Succeeded | Failed | Stopped | HandedBack | Dropped


def tell(ending: Ending, claim: Claim, leases: Leases, stop: StopSwitch, clock: Callable[[], float]) -> bool:
    """Write the ending, again and again while Redis is away; False: it didn't count, or the worker had to end first."""
    pause_s = _FIRST_PAUSE_S
    while True:
        try:
            return ending.write(leases, claim)
        except StoreUnavailable as error:
            event("ending-not-written", logging.WARNING, job=claim.job_id, why=error.detail, again_s=pause_s)
        if clock() + pause_s >= stop.deadline_s:
            event("ending-lost", logging.ERROR, job=claim.job_id, ending=type(ending).__name__)
            return False
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
