"""Records beside streams, of real lives on a real Redis: they agree, and each thing that doesn't is found."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pytest
import redis

from chaos import indexes, records, streams
from chaos.breach import Breach, Violation
from chaos.checker import violations
from dyno.models.job import Failure, FailureClass, FinishEvent, WorkerRef
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, async_client
from tests.life.faults import FAULTS
from tests.results import a_result

DEVICES = ("cpu:0-0@here", "cpu:1-1@here")
LATE = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="it took too long")
SPEC = Spec.model_validate({"workload": "matmul", "device": "cpu"})


@dataclass
class Lives:
    """One job after the other, on either device."""

    client: redis.Redis
    settings: Settings

    def __post_init__(self) -> None:
        self.keys, self.leases = Keys(self.settings.namespace), Leases(self.client, self.settings)

    def submitted(self) -> str:
        return str(self._do(lambda jobs: jobs.submit(SPEC)).job.id)

    def canceled(self, job: str) -> str:
        self._do(lambda jobs: jobs.cancel(job))
        return job

    def claimed(self, device: str = DEVICES[0]) -> Claim:
        claim = self.leases.claim(device, ["cpu"], WorkerRef(id="w", device=device, host="here"))
        assert claim is not None
        return claim

    def lost(self, device: str = DEVICES[0]) -> None:
        self.client.hset(self.keys.lease(device), "expires_at_ms", 1)
        self.client.zadd(self.keys.leases, {device: 1})
        expire_leases(self.client, self.settings.model_copy(update={"lease_s": 0.0}))

    def ended(self, claim: Claim, outcome: FinishEvent = "succeed") -> bool:
        result = a_result(claim.job_id) if outcome == "succeed" else None
        if outcome == "fail":
            return self.leases.finish(claim, outcome, status_reason=LATE.reason, failure=LATE)
        return self.leases.finish(claim, outcome, result=result, samples=[] if result else None)

    def handed_back(self, claim: Claim) -> None:
        assert self.leases.requeue(claim, reason="worker_shutdown", counts_attempt=False)

    def judged(self, canceling: set[str] | None = None) -> list[Violation]:
        found, seen = streams.read(self.client, self.keys), indexes.look(self.client, self.keys)
        told = {job: kept.record for job, kept in seen.jobs.items()}
        broken = violations({job: {job} for job in told}, canceling or set(), found)
        return broken + list(records.contradictions(told, found.by_job))

    def _do(self, call: Callable[[Jobs], Awaitable[object]]) -> object:
        async def done() -> object:
            async with async_client(self.settings) as client:
                return await call(Jobs(client, self.settings))

        return asyncio.run(done())


@pytest.fixture
def lives(client: redis.Redis, settings: Settings) -> Lives:
    return Lives(client, settings)


def test_every_way_that_a_real_job_can_end_breaks_nothing(lives: Lives) -> None:
    outcomes: tuple[FinishEvent, ...] = ("succeed", "fail")
    for outcome in outcomes:
        lives.submitted()
        lives.handed_back(lives.claimed())
        assert lives.ended(lives.claimed(DEVICES[1]), outcome)
    lives.submitted()
    for _ in range(2):  # worker_lost
        lives.claimed()
        lives.lost()
    in_a_queue, handed_back = lives.canceled(lives.submitted()), lives.submitted()
    lives.handed_back(lives.claimed())
    lives.canceled(handed_back)
    running = lives.submitted()
    claim = lives.claimed()
    lives.canceled(running)
    lives.ended(claim, "stop")
    assert lives.judged({in_a_queue, handed_back, running}) == []


def test_a_zombie_that_a_broken_script_lets_finish_is_found(lives: Lives) -> None:
    lives.submitted()
    zombie = lives.claimed()
    lives.lost()
    lives.claimed(DEVICES[1])
    assert not lives.ended(zombie)
    script, sound, broken = FAULTS["a finish doesn't look at the token"]
    assert script is Script.FINISH
    lives.leases._scripts[script] = lives.client.register_script(SCRIPT_SOURCES[script].replace(sound, broken))
    assert lives.ended(zombie)
    assert Breach.ATTEMPT in {violation.breach for violation in lives.judged()}


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("status", "failed", "its record is failed, its stream succeeded"),
        ("attempt", "2", "its record has attempt 2, its stream 1"),
        ("finished_at", "1.5", "its record ended at 1.5"),
        ("last_token", "another", "another than its stream does"),
    ],
)
def test_a_record_that_says_something_else_than_its_stream_is_found(
    field: str, value: str, told: str, lives: Lives
) -> None:
    job = lives.submitted()
    lives.ended(lives.claimed())
    lives.client.hset(lives.keys.job(job), field, value)
    [violation] = lives.judged()
    assert violation.breach is Breach.RECORD
    assert told in violation.what


def test_a_record_that_failed_for_another_reason_is_found(lives: Lives) -> None:
    job = lives.submitted()
    lives.ended(lives.claimed(), "fail")
    lives.client.hset(lives.keys.job(job), "status_reason", "stalled")
    [violation] = lives.judged()
    assert "its record failed for stalled, its stream for timeout" in violation.what


def test_a_stream_without_a_record_and_a_record_without_a_stream_are_found(lives: Lives) -> None:
    first, second = lives.submitted(), lives.submitted()
    for _ in range(2):
        lives.ended(lives.claimed())
    lives.client.delete(lives.keys.job(first))
    lives.client.delete(lives.keys.job_events(second))
    found = {violation.what for violation in lives.judged() if violation.breach is Breach.RECORD}
    assert found == {f"{first} has a stream and no record", f"{second} has a record and no stream"}
