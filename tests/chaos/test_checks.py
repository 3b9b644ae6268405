"""The checks find what they are for: faults planted into sound streams, records, indexes and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

import pytest
import redis

from chaos import clients
from chaos.checks import (
    CAUSES,
    DONE,
    ENDS_ATTEMPT,
    MOST_ATTEMPTS,
    STATUSES,
    TRANSITIONS,
    all_violations,
    cancel_violations,
    state_violations,
    stream_violations,
    unexplained_failures,
    view_violations,
)
from chaos.clients import CancelResponse, Responses
from chaos.plan import FaultKind, PlannedJob, Span
from chaos.snapshot import Attempt, Event, Streams, read
from chaos.violations import Violation, ViolationKind
from dyno.models import job as product
from dyno.models.api_key import Viewer
from dyno.models.job import Failure, FailureClass, FinishEvent, WorkerRef
from dyno.models.result import Phases, RunSummary
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.compression import decompress, execute_raw
from dyno.store.jobs import Jobs
from dyno.store.leases import Claim, Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, async_client
from service.app import create_app
from tests.life.faults import FAULTS
from tests.results import a_result
from tests.service.conftest import serving

ONE, OTHER = "cpu:0-0@here", "cpu:1-1@here"
Told = tuple[str, str, str] | tuple[str, str, str, str]
# What happens, in Redis' order: job, event, status, and of a claim the device.
ORDERLY: Sequence[Told] = (
    ("a", "submit", "queued"),
    ("a", "claim", "running", ONE),
    ("b", "submit", "queued"),
    ("b", "claim", "running", OTHER),
    ("b", "heartbeat", "running"),
    ("c", "submit", "queued"),
    ("a", "expire", "queued"),
    ("c", "claim", "running", ONE),
    ("b", "succeed", "succeeded"),
    ("a", "claim", "running", OTHER),
    ("c", "cancel", "running"),
    ("c", "stop", "canceled"),
    ("a", "requeue", "queued"),
    ("a", "claim", "running", ONE),
    ("a", "exhaust", "failed"),
    ("d", "submit", "queued"),
    ("d", "cancel", "canceled"),
)
ACCEPTED = {f"key-{job}": {job} for job in "abcd"}
CANCELING = {"c", "d"}


def streams(told: Sequence[Told]) -> Streams:
    """As Redis would have them: a version for each event of a job, its attempt, and all in two streams."""
    general: list[Event] = []
    by_job: dict[str, list[Event]] = {}
    claims: dict[str, Attempt] = {}
    for number, (job, event, status, *device) in enumerate(told):
        own = by_job.setdefault(job, [])
        lost = sum(each.event == "expire" for each in own)
        if device:
            claims[job] = Attempt(lost + 1, device[0], f"claim {number}")
        attempt = claims.get(job) if event == "claim" or event in ENDS_ATTEMPT else None
        own.append(Event(1000.0 + number, job, event, status, len(own) + 1, attempt=attempt, at=f"{1000 + number}.5"))
        general.append(own[-1])
    return Streams(general, by_job)


def found(
    told: Sequence[Told],
    accepted: Mapping[str, set[str]] = ACCEPTED,
    canceling: set[str] = CANCELING,
) -> list[Violation]:
    return list(stream_violations(accepted, canceling, streams(told)))


def kinds(told: Sequence[Told]) -> set[ViolationKind]:
    return {violation.kind for violation in found(told)}


def changed(at: Told, *instead: Told) -> list[Told]:
    place = ORDERLY.index(at)
    return [*ORDERLY[:place], *instead, *ORDERLY[place + 1 :]]


def test_lives_in_order_break_nothing() -> None:
    assert found(ORDERLY) == []


def test_a_job_that_never_ended_is_lost() -> None:
    [violation] = found(changed(("b", "succeed", "succeeded")))[:1]
    assert violation.kind is ViolationKind.LOST
    assert "b was accepted and never ended: its last event is heartbeat" in violation.what


def test_a_job_without_any_event_is_lost() -> None:
    [violation] = found(ORDERLY, {**ACCEPTED, "key-e": {"e"}})
    assert violation == Violation(ViolationKind.LOST, "e was accepted and never ended: it has no event")


@pytest.mark.parametrize("again", [("b", "succeed", "succeeded"), ("b", "fail", "failed")])
def test_a_second_end_is_a_double_finish(again: Told) -> None:
    assert ViolationKind.TWICE in kinds([*ORDERLY, again])


@pytest.mark.parametrize(
    "late", [("b", "heartbeat", "running"), ("b", "expire", "queued"), ("b", "claim", "running", OTHER)]
)
def test_nothing_may_come_after_the_end(late: Told) -> None:
    assert ViolationKind.ILLEGAL in kinds([*ORDERLY, late])


@pytest.mark.parametrize(
    ("at", "instead"),
    [
        (("b", "claim", "running", OTHER), ("b", "heartbeat", "running")),  # runs unclaimed
        (("d", "cancel", "canceled"), ("d", "stop", "canceled")),  # stopped though it never ran
        (("b", "succeed", "succeeded"), ("b", "succeed", "failed")),  # says another state than the table
        (("b", "heartbeat", "running"), ("b", "dance", "running")),  # no event at all
    ],
)
def test_a_step_that_is_not_in_the_table_is_illegal(at: Told, instead: Told) -> None:
    assert ViolationKind.ILLEGAL in kinds(changed(at, instead))


def test_a_step_that_is_missing_from_a_stream_is_found() -> None:
    whole = streams(ORDERLY)
    cut = {job: [event for event in events if event.event != "expire"] for job, events in whole.by_job.items()}
    kinds = {v.kind for v in stream_violations(ACCEPTED, CANCELING, Streams(whole.general, cut))}
    assert {ViolationKind.ILLEGAL, ViolationKind.DIFFER} <= kinds  # its version is, and the general stream still has it


def test_the_progress_of_a_done_job_may_be_missing_from_its_own_stream() -> None:
    whole = streams(ORDERLY)
    cut = {job: [event for event in events if event.event != "heartbeat"] for job, events in whole.by_job.items()}
    assert list(stream_violations(ACCEPTED, CANCELING, Streams(whole.general, cut))) == []
    running = ORDERLY[:5]
    whole, accepted = streams(running), {"key-a": {"a"}, "key-b": {"b"}}
    cut = {job: [event for event in events if event.event != "heartbeat"] for job, events in whole.by_job.items()}
    assert ViolationKind.DIFFER in {v.kind for v in stream_violations(accepted, [], Streams(whole.general, cut))}


def test_a_device_given_away_while_it_is_held_is_an_overlap() -> None:
    early = changed(("b", "claim", "running", OTHER), ("b", "claim", "running", ONE))
    [violation] = found(early)[:1]
    assert violation == Violation(ViolationKind.OVERLAP, f"b was given {ONE} while a had it")


@pytest.mark.parametrize(
    "end",
    [
        ("a", "expire", "queued"),
        ("b", "succeed", "succeeded"),
        ("c", "stop", "canceled"),
        ("a", "requeue", "queued"),
    ],
)
def test_without_its_end_a_lease_goes_on(end: Told) -> None:
    told = [*changed(end), ("z", "submit", "queued"), ("z", "claim", "running", ONE)]
    told += [("y", "submit", "queued"), ("y", "claim", "running", OTHER)]
    assert ViolationKind.OVERLAP in kinds(told)


def replaced(job: str, event: str, nth: int, **fields: object) -> list[Violation]:
    """What is found where that event of a job, in both streams, has other fields."""
    whole = streams(ORDERLY)
    old = [each for each in whole.by_job[job] if each.event == event][nth]
    new = old._replace(**fields)
    changed = [[new if each is old else each for each in events] for events in (whole.general, whole.by_job[job])]
    return list(stream_violations(ACCEPTED, CANCELING, Streams(changed[0], {**whole.by_job, job: changed[1]})))


FIRST, SECOND, THIRD = (each.attempt for each in streams(ORDERLY).by_job["a"] if each.event == "claim")


@pytest.mark.parametrize(
    "attempt", [None, THIRD._replace(claim=FIRST.claim), THIRD._replace(number=1), THIRD._replace(device=OTHER)]
)
def test_the_attempt_that_ends_a_job_is_the_one_that_was_claimed_last(attempt: Attempt | None) -> None:
    [violation] = replaced("a", "exhaust", 0, attempt=attempt)
    assert violation.kind is ViolationKind.ATTEMPT


def test_a_zombie_that_finishes_while_another_attempt_has_the_job_is_found() -> None:
    [violation] = replaced("a", "requeue", 0, attempt=FIRST)
    assert violation == Violation(
        ViolationKind.ATTEMPT,
        f"a: requeue by attempt 1 on {ONE} ({FIRST.claim}); the claim was by attempt 2 on {OTHER} ({SECOND.claim})",
    )


def test_an_attempt_too_many_and_one_that_costs_nothing_though_its_lease_ran_out_are_found() -> None:
    whole = streams(ORDERLY)
    for old, new in [(THIRD, THIRD._replace(number=3)), (SECOND, SECOND._replace(number=1))]:
        changed = [
            [each._replace(attempt=new) if each.attempt == old else each for each in events]
            for events in (whole.general, whole.by_job["a"])
        ]
        [violation] = stream_violations(ACCEPTED, CANCELING, Streams(changed[0], {**whole.by_job, "a": changed[1]}))
        assert violation.kind is ViolationKind.ATTEMPT
        assert f"claim by attempt {new.number} " in violation.what


def test_a_claim_by_nobody_is_found() -> None:
    assert ViolationKind.ATTEMPT in {each.kind for each in replaced("a", "claim", 0, attempt=None)}


def test_its_own_table_is_that_of_the_product() -> None:
    ours = {(before, event): after for before, events in TRANSITIONS.items() for event, after in events.items()}
    assert {(before, event.value): after.value for (before, event), after in product.TRANSITIONS.items()} == ours
    assert tuple(product.Status) == STATUSES
    assert product.DONE == DONE
    assert product.MAX_ATTEMPTS == MOST_ATTEMPTS


def test_a_key_with_two_jobs_and_a_job_without_a_key_were_made_twice() -> None:
    assert {v.kind for v in found(ORDERLY, {"key-a": {"a", "b"}, "key-c": {"c"}, "key-d": {"d"}})} == {
        ViolationKind.DOUBLED
    }
    assert {v.kind for v in found(ORDERLY, {f"key-{job}": {job} for job in "abc"})} == {ViolationKind.DOUBLED}


def test_a_job_that_nobody_wanted_to_cancel_is_not_to_be_canceled() -> None:
    [violation] = found(ORDERLY, canceling={"c"})
    assert violation == Violation(ViolationKind.UNASKED, "d was canceled without a request")


def test_what_only_the_general_stream_tells_is_found() -> None:
    whole = streams(ORDERLY)
    extra = Event(2000.0, "b", "heartbeat", "running", 4)
    kinds = {v.kind for v in stream_violations(ACCEPTED, CANCELING, Streams([*whole.general, extra], whole.by_job))}
    assert kinds == {ViolationKind.DIFFER}


def life(event: str, status: str, reason: str | None) -> Mapping[str, Sequence[Event]]:
    return {"a": [Event(1.0, "a", "claim", "running", 2), Event(2.0, "a", event, status, 3, reason)]}


@pytest.mark.parametrize(
    ("event", "status", "reason"),
    [
        ("fail", "failed", "disk_full"),
        ("exhaust", "failed", "worker_lost"),
        ("expire", "queued", "worker_lost"),
        ("requeue", "queued", "worker_shutdown"),
    ],
)
def test_a_reason_is_explained_by_its_own_faults_and_by_no_others(event: str, status: str, reason: str) -> None:
    by_job = life(event, status, reason)
    assert list(unexplained_failures(by_job, CAUSES[reason], ())) == []
    [violation] = unexplained_failures(by_job, set(FaultKind) - set(CAUSES[reason]), ())
    assert violation.kind is ViolationKind.REASON
    assert reason in violation.what


@pytest.mark.parametrize("reason", ["newer_schema", "internal", "workload_error", "worker_error", "stalled", None])
def test_no_fault_explains_what_is_a_bug(reason: str | None) -> None:
    for event, status in [("fail", "failed"), ("exhaust", "failed"), ("requeue", "queued")]:
        assert len([*unexplained_failures(life(event, status, reason), set(FaultKind), ["a"])]) == 1


def test_a_timeout_is_for_jobs_that_ask_for_too_little_time() -> None:
    assert list(unexplained_failures(life("fail", "failed", "timeout"), (), ["a"])) == []
    assert len([*unexplained_failures(life("fail", "failed", "timeout"), set(FaultKind), ["b"])]) == 1


def test_jobs_that_succeed_or_are_canceled_need_no_reason() -> None:
    assert list(unexplained_failures(life("succeed", "succeeded", None), (), ())) == []
    assert list(unexplained_failures(life("stop", "canceled", "worker_lost"), (), ())) == []


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

    def submitted(self, owner: str | None = None) -> str:
        return str(self._do(lambda jobs: jobs.seen_by(Viewer(owner)).submit(SPEC)).job.id)

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

    def violations(self, canceling: set[str] | None = None) -> list[Violation]:
        snapshot = read(self.client, self.keys)
        accepted = {job: {job} for job in snapshot.jobs}
        return [*stream_violations(accepted, canceling or set(), snapshot.streams), *state_violations(snapshot)]

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
    assert lives.violations({in_a_queue, handed_back, running}) == []


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
    assert ViolationKind.ATTEMPT in {violation.kind for violation in lives.violations()}


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [
        ("status", "failed", "the record's status is failed; expected: succeeded"),
        ("attempt", "2", "the record's attempt is 2; expected: 1"),
        ("finished_at", "1.5", "the record's end is 1.5; expected: "),
        ("last_token", "another", "the record's last attempt is "),
    ],
)
def test_a_record_that_differs_from_its_stream_is_found(field: str, value: str, what: str, lives: Lives) -> None:
    job = lives.submitted()
    lives.ended(lives.claimed())
    lives.client.hset(lives.keys.job(job), field, value)
    assert [each.what for each in lives.violations() if each.kind is ViolationKind.RECORD and what in each.what]


def test_a_record_that_failed_for_another_reason_is_found(lives: Lives) -> None:
    job = lives.submitted()
    lives.ended(lives.claimed(), "fail")
    lives.client.hset(lives.keys.job(job), "status_reason", "stalled")
    [violation] = lives.violations()
    assert "the record's reason is stalled; expected: timeout" in violation.what


def test_a_stream_without_a_record_and_a_record_without_a_stream_are_found(lives: Lives) -> None:
    first, second = lives.submitted(), lives.submitted()
    for _ in range(2):
        lives.ended(lives.claimed())
    lives.client.delete(lives.keys.job(first))
    lives.client.delete(lives.keys.job_events(second))
    found = {violation.what for violation in lives.violations() if violation.kind is ViolationKind.RECORD}
    assert found == {f"{first} has a stream and no record", f"{second} has a record and no stream"}


OWNER, OTHER_OWNER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"
OWNERS = (OWNER, None, OTHER_OWNER, OWNER, OTHER_OWNER)


@pytest.fixture
def ids(lives: Lives) -> list[str]:
    """Jobs that succeeded, failed, run, wait, and were canceled, in this order; the second is no API key's."""
    made = [lives.submitted(owner) for owner in OWNERS]
    lives.ended(lives.claimed())
    lives.ended(lives.claimed(), "fail")
    lives.claimed(DEVICES[1])
    lives.canceled(made[4])
    return made


def test_after_real_lives_all_checks_pass_except_for_jobs_that_have_not_ended(lives: Lives, ids: list[str]) -> None:
    responses = Responses(canceling={ids[4]}, unexpected=["a response"])
    for job in ids:
        responses.accepted[job].add(job)
    failing = PlannedJob(ids[1], 0.0, "failing", {}, twice=False, cancel_after_s=None)
    snapshot = read(lives.client, lives.keys)
    found = all_violations(snapshot, responses, {}, [failing], [])
    assert [violation.what.split()[0] for violation in found] == [*sorted(ids[2:4]), DEVICES[1], "a"]
    assert [violation.kind for violation in found] == [
        *[ViolationKind.LOST] * 2,
        ViolationKind.HELD,
        ViolationKind.STRANGE,
    ]


Damage = Callable[[redis.Redis, Keys, list[str]], object]
DAMAGES: dict[str, Damage] = {
    "not in the list of all jobs": lambda r, k, ids: r.zrem(k.jobs, ids[0]),
    "a job that isn't there": lambda r, k, ids: r.zadd(k.jobs, {"job_x": 1}),
    "two statuses": lambda r, k, ids: r.zadd(k.jobs_with_status("queued"), {ids[0]: 1}),
    "no status": lambda r, k, ids: r.zrem(k.jobs_with_status("failed"), ids[1]),
    "another workload": lambda r, k, ids: r.zadd(k.jobs_of_workload("other"), {ids[1]: 1}),
    "not in its owner's list": lambda r, k, ids: r.zrem(k.jobs_of_owner(OWNER), ids[0]),
    "in another owner's list": lambda r, k, ids: r.zadd(k.jobs_of_owner(OTHER_OWNER), {ids[1]: 1}),
    "in the list of an owner of nothing": lambda r, k, ids: r.zadd(k.jobs_of_owner("key_c"), {ids[1]: 1}),
    "not among those of its owner that wait": lambda r, k, ids: r.zrem(k.queued_of_owner(OWNER), ids[3]),
    "among those of its owner that wait though it runs": lambda r, k, ids: r.zadd(
        k.queued_of_owner(OTHER_OWNER), {ids[2]: 1}
    ),
    "a record that has lost its owner": lambda r, k, ids: r.hdel(k.job(ids[2]), "owner"),
    "out of the queue": lambda r, k, ids: r.zrem(k.queue("cpu"), ids[3]),
    "in the queue though it runs": lambda r, k, ids: r.zadd(k.queue("cpu"), {ids[2]: 1}),
    "in a queue that nobody serves": lambda r, k, ids: r.zadd(k.queue("gpu"), {ids[3]: 1}),
    "a queue that isn't listed": lambda r, k, ids: r.srem(k.queues, "cpu"),
    "a done job that never goes": lambda r, k, ids: r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}"),
    "a done job that goes without its owner": lambda r, k, ids: (
        r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}")
        and r.zadd(k.expiring, {f"{ids[0]}:succeeded:matmul": 1})
    ),
    "a record that never goes": lambda r, k, ids: r.persist(k.job(ids[0])),
    "no result": lambda r, k, ids: r.delete(k.result(ids[0])),
    "a result without success": lambda r, k, ids: r.set(k.result(ids[1]), "{}"),
    "a token after the end": lambda r, k, ids: r.hset(k.job(ids[0]), "token", "t"),
    "an event too many": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"job": ids[0]}),
    "a run without its lease": lambda r, k, ids: r.delete(k.lease(DEVICES[1])),
    "a lease of nobody": lambda r, k, ids: r.hset(k.lease(DEVICES[0]), mapping={"job": ids[0], "token": "t"}),
    "a lease of another attempt": lambda r, k, ids: r.hset(k.lease(DEVICES[1]), "token", "t"),
    "a run without any lease": lambda r, k, ids: r.zrem(k.leases, DEVICES[1]) and r.delete(k.lease(DEVICES[1])),
    "a record without a status": lambda r, k, ids: r.hdel(k.job(ids[0]), "status"),
    "a record that doesn't know its own id": lambda r, k, ids: r.hdel(k.job(ids[0]), "id"),
    "a record without its time": lambda r, k, ids: r.hdel(k.job(ids[0]), "created_ms"),
    "a lease without its worker": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "worker"),
    "a record without a queue": lambda r, k, ids: r.hdel(k.job(ids[3]), "queue"),
    "a record without a workload": lambda r, k, ids: r.hdel(k.job(ids[1]), "workload"),
    "a record with nothing of its own": lambda r, k, ids: r.delete(k.job(ids[1])) and r.hset(k.job(ids[1]), "x", "y"),
    "a version that is no number": lambda r, k, ids: r.hset(k.job(ids[0]), "version", "new"),
    "a status that there isn't": lambda r, k, ids: r.hset(k.job(ids[0]), "status", "dancing"),
    "an attempt that there can't be": lambda r, k, ids: r.hset(k.job(ids[0]), "attempt", "-1"),
    "a lease without its job": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "job"),
    "a lease without its token": lambda r, k, ids: r.hdel(k.lease(DEVICES[1]), "token"),
    "an event that says nothing": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"x": "y"}),
    "a lease that isn't due": lambda r, k, ids: r.zrem(k.leases, DEVICES[1]),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_any_damage_to_redis_is_found(what: str, lives: Lives, ids: list[str]) -> None:
    assert list(state_violations(read(lives.client, lives.keys))) == []
    DAMAGES[what](lives.client, lives.keys, ids)
    found = {violation.kind for violation in state_violations(read(lives.client, lives.keys))}
    assert found
    assert found <= {ViolationKind.RECORD, ViolationKind.INDEX}


RUN = RunSummary(
    process_start="forked",
    pid=1,
    median=None,
    samples=1,
    executions_per_sample=1,
    warmup_samples=0,
    steady=True,
    stopped_because="tested",
    phases=Phases(),
    started_at_s=1.0,
).model_dump_json()


def test_what_the_api_returns_is_compared_with_the_streams(client: redis.Redis, settings: Settings) -> None:
    lives = Lives(client, settings)
    ids = [lives.submitted() for _ in range(6)]
    for _ in ids[:3]:
        lives.ended(lives.claimed())
    for _ in ids[3:5]:
        lives.ended(lives.claimed(), "fail")
    lives.canceled(ids[5])
    for job in ids[:3]:
        text = decompress(execute_raw(client, "GET", lives.keys.result(job)))
        client.set(lives.keys.result(job), text.replace('"runs":[]', f'"runs":[{RUN}]'))
    by_job = read(client, lives.keys).streams.by_job

    with serving(create_app(settings)) as http:
        url = str(http.base_url)
        sound = asyncio.run(clients.read_jobs(url, ids, 60))
        assert list(view_violations(sound, by_job)) == []
        client.delete(lives.keys.result(ids[0]))
        client.hset(lives.keys.job(ids[1]), "status", "failed")
        client.delete(lives.keys.job(ids[2]))
        client.hdel(lives.keys.job(ids[3]), "failure")
        client.hset(lives.keys.job(ids[4]), "finished_at", "1000.000000")
        client.copy(lives.keys.result(ids[1]), lives.keys.result(ids[5]))
        found = list(view_violations(asyncio.run(clients.read_jobs(url, ids, 60)), by_job))

    assert {violation.kind for violation in found} == {ViolationKind.VIEW}
    wrong = ["409", "'failed'", "GET returned 404", "None, 409", "1000.000000", "200"]
    for job, what in zip(ids, wrong, strict=True):
        [text] = [each.what for each in found if job in each.what]
        assert what in text.partition("; its stream")[0]


def test_an_api_that_never_responds_is_found() -> None:
    views = asyncio.run(clients.read_jobs("http://127.0.0.1:9", ["job"], 0.2))
    [violation] = view_violations(views, {})
    assert violation.what == "job: GET returned 0"


Step = tuple[float, str, str]
RUNS: Sequence[Step] = ((0, "submit", "queued"), (1, "claim", "running"))
ASKED = (2, "cancel", "running")


def broken_cancels(code: int, *told: Step, says: str = "running", faults: Sequence[Span] = ()) -> list[str]:
    """`says`: the status in the answer to the cancel."""
    events = [Event(at_s, "a", event, status, 1) for at_s, event, status in told]
    return [
        violation.what for violation in cancel_violations({"a": [CancelResponse(code, says)]}, {"a": events}, faults)
    ]


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (202, [*RUNS, ASKED, (3, "stop", "canceled")]),
        (202, [*RUNS, ASKED, (3, "succeed", "succeeded")]),  # before its worker heard
        (202, [*RUNS, ASKED, (3, "fail", "failed")]),
        (202, [*RUNS, ASKED, (60, "stop", "canceled")]),
        (409, [*RUNS, (3, "succeed", "succeeded")]),
    ],
)
def test_a_cancel_that_was_kept_is_no_violation(code: int, told: list[Step]) -> None:
    assert broken_cancels(code, *told) == []


@pytest.mark.parametrize(
    ("code", "told", "what"),
    [
        (202, [*RUNS, ASKED, (9, "succeed", "succeeded")], "after 7.0 s without a fault"),
        (202, [*RUNS, (3, "succeed", "succeeded")], "its stream has no cancel"),
        (
            202,
            [*RUNS, ASKED, (3, "requeue", "queued"), (4, "claim", "running"), (5, "stop", "canceled")],
            "requeue came",
        ),
        (202, [*RUNS, ASKED, (3, "exhaust", "failed")], "exhaust came"),
        (409, [*RUNS, ASKED, (3, "stop", "canceled")], "it ended canceled"),
    ],
)
def test_a_cancel_that_was_not_kept_is_found(code: int, told: list[Step], what: str) -> None:
    assert what in broken_cancels(code, *told)[0]


def test_a_200_says_how_the_job_has_ended() -> None:
    canceled = [*RUNS[:1], (1, "cancel", "canceled")]
    assert broken_cancels(200, *canceled, says="canceled") == []
    raced = [*RUNS, ASKED, (3, "succeed", "succeeded")]
    assert broken_cancels(200, *raced, says="succeeded") == []
    assert "it was canceled, and ended succeeded" in broken_cancels(200, *raced, says="canceled")[0]
    assert "its stream has no cancel" in broken_cancels(200, *RUNS, (3, "succeed", "succeeded"), says="succeeded")[0]


def test_time_in_which_a_fault_kept_its_worker_from_hearing_does_not_count() -> None:
    late = [*RUNS, ASKED, (9, "succeed", "succeeded")]
    assert broken_cancels(202, *late, faults=[Span(3.5, 8)]) == []
    assert broken_cancels(202, *late, faults=[Span(3, 4)]) != []
