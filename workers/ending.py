"""How an attempt can end, and what the store is told of it."""

from __future__ import annotations

from dataclasses import dataclass

from dyno.models.job import Failure, FailureClass
from dyno.models.result import Headline, Result, RunSamples
from dyno.store.leases import Claim, Leases
from dyno.store.paces import Pace


@dataclass(frozen=True)
class Succeeded:
    result: Result
    samples: list[RunSamples]
    headline: Headline | None = None
    pace: Pace | None = None

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.finish(
            claim, "succeed", result=self.result, samples=self.samples, headline=self.headline, pace=self.pace
        )


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
