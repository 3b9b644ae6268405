"""The possible outcomes of an attempt; each writes itself to the store."""

from dataclasses import dataclass

from dyno.bench.measure.warnings import warning
from dyno.models.job import Failure, FailureClass
from dyno.models.result import Headline, Result, RunSamples
from dyno.store.eta import ExpectedDuration
from dyno.store.leases import Claim, Leases


@dataclass(frozen=True)
class Succeeded:
    result: Result
    samples: list[RunSamples]
    headline: Headline | None = None
    pace: ExpectedDuration | None = None

    def write(self, leases: Leases, claim: Claim) -> bool:
        warnings = [*self.result.warnings, warning("SAMPLES_NOT_STORED")]
        return leases.finish(
            claim,
            "succeed",
            result=self.result,
            samples=self.samples,
            unsampled=self.result.model_copy(update={"warnings": warnings}),
            headline=self.headline,
            pace=self.pace,
        )


@dataclass(frozen=True)
class Failed:
    """After an infrastructure failure, the store requeues the job if attempts are left.

    After other failures, a second attempt would fail, too.
    """

    failure: Failure

    def write(self, leases: Leases, claim: Claim) -> bool:
        reason = self.failure.reason
        if self.failure.failure_class is FailureClass.INFRASTRUCTURE:
            return leases.requeue(claim, reason=reason, counts_attempt=True, failure=self.failure)
        return leases.finish(claim, "fail", status_reason=reason, failure=self.failure)


@dataclass(frozen=True)
class Stopped:
    """The attempt was stopped because of a cancel."""

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.finish(claim, "stop")


@dataclass(frozen=True)
class HandedBack:
    """The store requeues the job for a reason outside the job. Up to ten hand-backs at shutdowns use up no attempt."""

    reason: str

    def write(self, leases: Leases, claim: Claim) -> bool:
        return leases.requeue(claim, reason=self.reason, counts_attempt=False)


@dataclass(frozen=True)
class Dropped:
    """Another attempt owns the job, so this one writes nothing."""

    def write(self, leases: Leases, claim: Claim) -> bool:
        return False


Outcome = Succeeded | Failed | Stopped | HandedBack | Dropped
