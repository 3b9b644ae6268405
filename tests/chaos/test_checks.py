"""The checks find what they are for: faults planted into sound streams, records, indexes and responses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
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
    ViolationKind,
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
from dyno.models import job as product
from dyno.models.api_key import Viewer
from dyno.models.job import Failure, FailureClass, FinishEvent, WorkerRef
from dyno.models.result import Phases, RunSummary
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.leases import Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, async_client
from dyno.store.results import compress, decompress, execute_raw
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


def streams(told):
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


def found(told, accepted=ACCEPTED, canceling=CANCELING):
    """The violations as "<kind>: <text>"."""
    return shown(stream_violations(accepted, canceling, streams(told)))


def shown(violations):
    return [f"{violation.kind}: {violation.what}" for violation in violations]


def changed(at, *instead):
    place = ORDERLY.index(at)
    return [*ORDERLY[:place], *instead, *ORDERLY[place + 1 :]]


BOTH_CLAIMED_AGAIN: Sequence[Told] = (
    ("z", "submit", "queued"),
    ("z", "claim", "running", ONE),
    ("y", "submit", "queued"),
    ("y", "claim", "running", OTHER),
)
# What happens instead, and a violation that it must be.
BROKEN: Sequence[tuple[Sequence[Told], str]] = (
    (changed(("b", "succeed", "succeeded")), "lost jobs: b was accepted and never ended: its last event is heartbeat"),
    ([*ORDERLY, ("b", "succeed", "succeeded")], "double finishes: b: succeed to succeeded after it was succeeded"),
    ([*ORDERLY, ("b", "fail", "failed")], "double finishes: b: fail to failed after it was succeeded"),
    ([*ORDERLY, ("b", "heartbeat", "running")], "illegal transitions: b: heartbeat to running after it was succeeded"),
    ([*ORDERLY, ("b", "expire", "queued")], "illegal transitions: b: expire to queued after it was succeeded"),
    ([*ORDERLY, ("b", "claim", "running", OTHER)], "illegal transitions: b: claim to running after it was succeeded"),
    (changed(("b", "claim", "running", OTHER), ("b", "heartbeat", "running")), "heartbeat from queued to running"),
    (changed(("d", "cancel", "canceled"), ("d", "stop", "canceled")), "transitions: d: stop from queued to canceled"),
    (
        changed(("b", "succeed", "succeeded"), ("b", "succeed", "failed")),
        "transitions: b: succeed from running to failed",
    ),
    (
        changed(("b", "heartbeat", "running"), ("b", "dance", "running")),
        "transitions: b: dance from running to running",
    ),
    (
        changed(("b", "claim", "running", OTHER), ("b", "claim", "running", ONE)),
        f"leases: b was given {ONE} while a had it",
    ),
    ([*changed(("a", "expire", "queued")), *BOTH_CLAIMED_AGAIN], "overlapping leases: c was given"),
    ([*changed(("b", "succeed", "succeeded")), *BOTH_CLAIMED_AGAIN], "overlapping leases: a was given"),
    ([*changed(("c", "stop", "canceled")), *BOTH_CLAIMED_AGAIN], "overlapping leases: a was given"),
    ([*changed(("a", "requeue", "queued")), *BOTH_CLAIMED_AGAIN], "overlapping leases: y was given"),
)


def test_lives_in_order_break_nothing():
    assert found(ORDERLY) == []


@pytest.mark.parametrize(("told", "violation"), BROKEN)
def test_a_broken_life_is_found(told, violation):
    assert any(violation in text for text in found(told)), found(told)


@pytest.mark.parametrize(
    ("accepted", "canceling", "violation"),
    [
        (ACCEPTED | {"key-e": {"e"}}, CANCELING, "lost jobs: e was accepted and never ended: it has no event"),
        (ACCEPTED, {"c"}, "unrequested cancels: d was canceled without a request"),
        (
            {"key-a": {"a", "b"}, "key-c": {"c"}, "key-d": {"d"}},
            CANCELING,
            "jobs made twice: the API accepted key key-a as a, b",
        ),
        ({f"key-{job}": {job} for job in "abc"}, CANCELING, "jobs made twice: no response has d"),
    ],
)
def test_responses_that_the_streams_contradict_are_found(accepted, canceling, violation):
    assert found(ORDERLY, accepted, canceling) == [violation]


def test_an_event_in_one_stream_alone_is_found():
    whole = streams(ORDERLY)
    cut = {job: [event for event in events if event.event != "expire"] for job, events in whole.by_job.items()}
    extra = [*whole.general, Event(2000.0, "b", "heartbeat", "running", 4)]
    kinds = [
        {violation.kind for violation in stream_violations(ACCEPTED, CANCELING, each)}
        for each in (Streams(whole.general, cut), Streams(extra, whole.by_job))
    ]
    assert kinds == [{ViolationKind.ILLEGAL, ViolationKind.DIFFER}, {ViolationKind.DIFFER}]


def test_the_progress_of_a_done_job_may_be_missing_from_its_own_stream():
    whole = streams(ORDERLY)
    cut = {job: [event for event in events if event.event != "heartbeat"] for job, events in whole.by_job.items()}
    assert list(stream_violations(ACCEPTED, CANCELING, Streams(whole.general, cut))) == []
    running = ORDERLY[:5]
    whole, accepted = streams(running), {"key-a": {"a"}, "key-b": {"b"}}
    cut = {job: [event for event in events if event.event != "heartbeat"] for job, events in whole.by_job.items()}
    assert ViolationKind.DIFFER in {v.kind for v in stream_violations(accepted, [], Streams(whole.general, cut))}


FIRST, SECOND, THIRD = (each.attempt for each in streams(ORDERLY).by_job["a"] if each.event == "claim")


@pytest.mark.parametrize(
    ("event", "old", "new", "violation"),
    [
        ("exhaust", THIRD, None, "a: exhaust by no attempt; the claim was by attempt 2"),
        ("exhaust", THIRD, THIRD._replace(claim=FIRST.claim), f"a: exhaust by attempt 2 on {ONE} ({FIRST.claim})"),
        ("exhaust", THIRD, THIRD._replace(number=1), "a: exhaust by attempt 1"),
        ("exhaust", THIRD, THIRD._replace(device=OTHER), f"a: exhaust by attempt 2 on {OTHER}"),
        ("requeue", SECOND, FIRST, f"a: requeue by attempt 1 on {ONE} ({FIRST.claim}); the claim was by attempt 2"),
        ("claim", FIRST, None, "a: claim by no attempt after 0 lost attempts"),
        (None, THIRD, THIRD._replace(number=3), "a: claim by attempt 3"),
        (None, SECOND, SECOND._replace(number=1), "a: claim by attempt 1"),
    ],
)
def test_an_attempt_that_may_not_claim_or_end_the_job_is_found(event, old, new, violation):
    """`event`: the one that names another attempt; None: all of them."""
    whole = streams(ORDERLY)

    def replaced(events):
        return [
            each._replace(attempt=new) if each.attempt == old and event in (None, each.event) else each
            for each in events
        ]

    told = Streams(replaced(whole.general), {**whole.by_job, "a": replaced(whole.by_job["a"])})
    texts = shown(stream_violations(ACCEPTED, CANCELING, told))
    assert any(text.startswith(f"ends by another attempt: {violation}") for text in texts), texts


def test_its_own_table_is_that_of_the_product():
    ours = {(before, event): after for before, events in TRANSITIONS.items() for event, after in events.items()}
    assert {(before, event.value): after.value for (before, event), after in product.TRANSITIONS.items()} == ours
    assert (tuple(product.Status), product.DONE, product.MAX_ATTEMPTS) == (STATUSES, DONE, MOST_ATTEMPTS)


ENDS = [("fail", "failed"), ("exhaust", "failed"), ("requeue", "queued"), ("expire", "queued")]


def unexplained(event, status, reason, kinds, short=""):
    by_job = {"a": [Event(1.0, "a", "claim", "running", 2), Event(2.0, "a", event, status, 3, reason)]}
    return len([*unexplained_failures(by_job, kinds, short)])


@pytest.mark.parametrize(("event", "status"), ENDS)
def test_a_failure_is_explained_by_its_own_faults_alone(event, status):
    for reason, faults in CAUSES.items():
        assert unexplained(event, status, reason, faults) == 0
        assert unexplained(event, status, reason, set(FaultKind) - set(faults)) == 1
    for bug in ("newer_schema", "internal", "workload_error", "worker_error", "stalled", None):
        assert unexplained(event, status, bug, set(FaultKind), "a") == 1


def test_a_timeout_is_for_jobs_that_ask_for_too_little_time():
    assert unexplained("fail", "failed", "timeout", (), "a") == 0
    assert unexplained("fail", "failed", "timeout", set(FaultKind), "b") == 1
    assert unexplained("succeed", "succeeded", None, ()) == unexplained("stop", "canceled", "worker_lost", ()) == 0


DEVICES = ("cpu:0-0@here", "cpu:1-1@here")
LATE = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="it took too long")
SPEC = Spec.model_validate({"workload": "matmul", "device": "cpu", "labels": {"order": "x"}})
LABEL_DIGEST = "8071cdfaf92564c2"  # of "order=x"


@dataclass
class Lives:
    """One job after the other, on either device."""

    client: redis.Redis
    settings: Settings

    def __post_init__(self):
        self.keys, self.leases = Keys(self.settings.namespace), Leases(self.client, self.settings)

    def submitted(self, owner=None):
        return str(self._do(lambda jobs: jobs.seen_by(Viewer(owner)).submit(SPEC)).job.id)

    def canceled(self, job):
        self._do(lambda jobs: jobs.cancel(job))
        return job

    def claimed(self, device=DEVICES[0]):
        claim = self.leases.claim(device, ["cpu"], WorkerRef(id="w", device=device, host="here"))
        assert claim is not None
        return claim

    def lost(self, device=DEVICES[0]):
        self.client.hset(self.keys.lease(device), "expires_at_ms", 1)
        self.client.zadd(self.keys.leases, {device: 1})
        expire_leases(self.client, self.settings.model_copy(update={"lease_s": 0.0}))

    def ended(self, claim, outcome="succeed"):
        result = a_result(claim.job_id) if outcome == "succeed" else None
        if outcome == "fail":
            return self.leases.finish(claim, outcome, status_reason=LATE.reason, failure=LATE)
        return self.leases.finish(claim, outcome, result=result, samples=[] if result else None)

    def handed_back(self, claim):
        assert self.leases.requeue(claim, reason="worker_shutdown", counts_attempt=False)

    def violations(self, canceling=None):
        snapshot = read(self.client, self.keys)
        accepted = {job: {job} for job in snapshot.jobs}
        return [*stream_violations(accepted, canceling or set(), snapshot.streams), *state_violations(snapshot)]

    def _do(self, call):
        async def done():
            async with async_client(self.settings) as client:
                return await call(Jobs(client, self.settings))

        return asyncio.run(done())


@pytest.fixture
def lives(client, settings):
    return Lives(client, settings)


def test_every_way_that_a_real_job_can_end_breaks_nothing(lives):
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


def test_a_zombie_that_a_broken_script_lets_finish_is_found(lives):
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


OWNER, OTHER_OWNER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"
OWNERS = (OWNER, None, OTHER_OWNER, OWNER, OTHER_OWNER)


@pytest.fixture
def ids(lives):
    """Jobs that succeeded, failed, run, wait, and were canceled, in this order; the second is no API key's."""
    made = [lives.submitted(owner) for owner in OWNERS]
    lives.ended(lives.claimed())
    lives.ended(lives.claimed(), "fail")
    lives.claimed(DEVICES[1])
    lives.canceled(made[4])
    return made


def test_after_real_lives_all_checks_pass_except_for_jobs_that_have_not_ended(lives, ids):
    responses = Responses(canceling={ids[4]}, unexpected=["a response"])
    for job in ids:
        responses.accepted[job].add(job)
    failing = PlannedJob(ids[1], 0.0, "failing", {}, twice=False, cancel_after_s=None)
    snapshot = read(lives.client, lives.keys)
    found = all_violations(snapshot, responses, {}, [failing], [])
    assert [violation.what.split()[0] for violation in found] == [*sorted(ids[2:4]), DEVICES[1], "a"]
    kinds = [violation.kind for violation in found]
    assert kinds == [ViolationKind.LOST, ViolationKind.LOST, ViolationKind.HELD, ViolationKind.STRANGE]


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
    "not among those with its label": lambda r, k, ids: r.zrem(k.jobs_with_label(LABEL_DIGEST), ids[0]),
    "among those with another label": lambda r, k, ids: r.zadd(k.jobs_with_label("0" * 16), {ids[0]: 1}),
    "not among those of its owner that wait": lambda r, k, ids: r.zrem(k.queued_of_owner(OWNER), ids[3]),
    "among those of its owner that wait though it runs": lambda r, k, ids: r.zadd(
        k.queued_of_owner(OTHER_OWNER), {ids[2]: 1}
    ),
    "out of the queue": lambda r, k, ids: r.zrem(k.queue("cpu"), ids[3]),
    "in the queue though it runs": lambda r, k, ids: r.zadd(k.queue("cpu"), {ids[2]: 1}),
    "in a queue that nobody serves": lambda r, k, ids: r.zadd(k.queue("gpu"), {ids[3]: 1}),
    "a queue that isn't listed": lambda r, k, ids: r.srem(k.queues, "cpu"),
    "a done job that never goes": lambda r, k, ids: r.zrem(
        k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}:{LABEL_DIGEST}"
    ),
    "a done job that goes without its owner": lambda r, k, ids: (
        r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}:{LABEL_DIGEST}")
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
    "a record with nothing of its own": lambda r, k, ids: r.delete(k.job(ids[1])) and r.hset(k.job(ids[1]), "x", "y"),
    "a version that is no number": lambda r, k, ids: r.hset(k.job(ids[0]), "version", "new"),
    "a status that there isn't": lambda r, k, ids: r.hset(k.job(ids[0]), "status", "dancing"),
    "an attempt that there can't be": lambda r, k, ids: r.hset(k.job(ids[0]), "attempt", "-1"),
    "an event that says nothing": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"x": "y"}),
    "a lease that isn't due": lambda r, k, ids: r.zrem(k.leases, DEVICES[1]),
    "a stream without its record": lambda r, k, ids: r.delete(k.job(ids[0])),
    "a record without its stream": lambda r, k, ids: r.delete(k.job_events(ids[0])),
    "a record with another status": lambda r, k, ids: r.hset(k.job(ids[0]), "status", "failed"),
    "a record with another attempt": lambda r, k, ids: r.hset(k.job(ids[0]), "attempt", "2"),
    "a record with another end": lambda r, k, ids: r.hset(k.job(ids[0]), "finished_at", "1.5"),
    "a record with another last attempt": lambda r, k, ids: r.hset(k.job(ids[0]), "last_token", "another"),
    "a record with another reason": lambda r, k, ids: r.hset(k.job(ids[1]), "status_reason", "stalled"),
    "damage that was repaired": lambda r, k, ids: r.hincrby(k.counts, "repaired wrong_status", 1),
}
for number, field in ((0, "id"), (0, "status"), (0, "created_ms"), (1, "workload"), (2, "owner"), (3, "queue")):
    DAMAGES[f"a record without {field}"] = lambda r, k, ids, n=number, f=field: r.hdel(k.job(ids[n]), f)
for field in ("job", "token", "worker"):
    DAMAGES[f"a lease without {field}"] = lambda r, k, ids, f=field: r.hdel(k.lease(DEVICES[1]), f)


@pytest.mark.parametrize("what", DAMAGES)
def test_any_damage_to_redis_is_found(what, lives, ids):
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


def test_what_the_api_returns_is_compared_with_the_streams(client, settings):
    lives = Lives(client, settings)
    ids = [lives.submitted() for _ in range(6)]
    for _ in ids[:3]:
        lives.ended(lives.claimed())
    for _ in ids[3:5]:
        lives.ended(lives.claimed(), "fail")
    lives.canceled(ids[5])
    for job in ids[:3]:
        text = decompress(execute_raw(client, "GET", lives.keys.result(job)))
        client.set(lives.keys.result(job), compress(text.replace('"runs":[]', f'"runs":[{RUN}]').encode()))
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


def test_an_api_that_never_responds_is_found():
    views = asyncio.run(clients.read_jobs("http://127.0.0.1:9", ["job"], 0.2))
    [violation] = view_violations(views, {})
    assert violation.what == "job: GET returned 0"


Step = tuple[float, str, str]
RUNS: Sequence[Step] = ((0, "submit", "queued"), (1, "claim", "running"))
ASKED = (2, "cancel", "running")


def broken_cancels(code, told, says="running", faults=()):
    """`says`: the status in the response to the cancel."""
    events = [Event(at_s, "a", event, status, 1) for at_s, event, status in told]
    found = cancel_violations({"a": [CancelResponse(code, says)]}, {"a": events}, faults)
    return "; ".join(violation.what for violation in found)


SUCCEEDS, LATE_SUCCESS, STOPS = (3, "succeed", "succeeded"), (9, "succeed", "succeeded"), (3, "stop", "canceled")
AT_ONCE: Sequence[Step] = (RUNS[0], (1, "cancel", "canceled"))
AGAIN: Sequence[Step] = ((3, "requeue", "queued"), (4, "claim", "running"), (5, "stop", "canceled"))


@pytest.mark.parametrize(
    ("code", "told", "says", "faults"),
    [
        (202, [*RUNS, ASKED, STOPS], "running", []),
        (202, [*RUNS, ASKED, SUCCEEDS], "running", []),  # before its worker got the request
        (202, [*RUNS, ASKED, (3, "fail", "failed")], "running", []),
        (202, [*RUNS, ASKED, (60, "stop", "canceled")], "running", []),
        (202, [*RUNS, ASKED, LATE_SUCCESS], "running", [Span(3.5, 8)]),  # a fault kept it from its worker
        (409, [*RUNS, SUCCEEDS], "", []),
        (200, AT_ONCE, "canceled", []),
        (200, [*RUNS, ASKED, SUCCEEDS], "succeeded", []),
    ],
)
def test_a_cancel_that_was_kept_is_no_violation(code, told, says, faults):
    assert broken_cancels(code, told, says, faults) == ""


@pytest.mark.parametrize(
    ("code", "told", "says", "faults", "what"),
    [
        (202, [*RUNS, ASKED, LATE_SUCCESS], "running", [], "after 7.0 s without a fault"),
        (202, [*RUNS, ASKED, LATE_SUCCESS], "running", [Span(3, 4), Span(3.5, 4), Span(20, 21)], "after 6.0 s"),
        (202, [*RUNS, SUCCEEDS], "running", [], "its stream has no cancel"),
        (202, [*RUNS, ASKED, *AGAIN], "running", [], "requeue came"),
        (202, [*RUNS, ASKED, (3, "exhaust", "failed")], "running", [], "exhaust came"),
        (409, [*RUNS, ASKED, STOPS], "", [], "it ended canceled"),
        (200, [*RUNS, ASKED, SUCCEEDS], "canceled", [], "it was canceled, and ended succeeded"),
        (200, [*RUNS, SUCCEEDS], "succeeded", [], "its stream has no cancel"),
    ],
)
def test_a_cancel_that_was_not_kept_is_found(code, told, says, faults, what):
    assert what in broken_cancels(code, told, says, faults)
