"""The checks find what they are for: faults planted into sound streams, records, indexes and responses."""

import asyncio

import pytest

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
from dyno.models.job import Failure, FailureClass, WorkerRef
from dyno.models.spec import Spec
from dyno.store.leases import Leases
from dyno.store.maintenance import expire_leases
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script
from service.app import create_app
from tests.bench.measure.conftest import make_record
from tests.life.faults import FAULTS
from tests.results import a_result
from tests.service.conftest import serving
from tests.workers.conftest import Store

ONE, OTHER = "cpu:0-0@here", "cpu:1-1@here"
# Redis' order of events: job, event, status, and the device of a claim.
SOUND = [
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
]
ACCEPTED = {f"key-{job}": {job} for job in "abcd"}
CANCELING = {"c", "d"}


def streams(rows):
    """The streams that Redis has after these events: versions by job, and attempts by claim."""
    general = []
    by_job = {}
    claims = {}
    for number, (job, event, status, *device) in enumerate(rows):
        events = by_job.setdefault(job, [])
        if device:
            lost = sum(each.event == "expire" for each in events)
            claims[job] = Attempt(lost + 1, device[0], f"claim {number}")
        attempt = claims.get(job) if event == "claim" or event in ENDS_ATTEMPT else None
        events.append(Event(1000.0 + number, job, event, status, len(events) + 1, attempt=attempt, at=f"{number}.5"))
        general.append(events[-1])
    return Streams(general, by_job)


def texts(history, accepted=ACCEPTED, canceling=CANCELING):
    return [f"{kind}: {what}" for kind, what in stream_violations(accepted, canceling, history)]


def replaced(row, *instead):
    place = SOUND.index(row)
    return [*SOUND[:place], *instead, *SOUND[place + 1 :]]


NEXT_CLAIMS = [
    *(("z", "submit", "queued"), ("z", "claim", "running", ONE)),
    *(("y", "submit", "queued"), ("y", "claim", "running", OTHER)),
]
BROKEN = [
    (replaced(("b", "succeed", "succeeded")), "lost jobs: b was accepted and never ended: its last event is heartbeat"),
    ([*SOUND, ("b", "fail", "failed")], "double finishes: b: fail to failed after it was succeeded"),
    ([*SOUND, ("b", "claim", "running", OTHER)], "illegal transitions: b: claim to running after it was succeeded"),
    (replaced(("b", "claim", "running", OTHER)), "illegal transitions: b: heartbeat from queued to running"),
    (replaced(("b", "succeed", "succeeded"), ("b", "succeed", "failed")), "b: succeed from running to failed"),
    (replaced(("b", "heartbeat", "running"), ("b", "dance", "running")), "b: dance from running to running"),
    (replaced(("b", "claim", "running", OTHER), ("b", "claim", "running", ONE)), f"b was given {ONE} while a had it"),
    ([*replaced(("a", "expire", "queued")), *NEXT_CLAIMS], "overlapping leases: c was given"),
    ([*replaced(("b", "succeed", "succeeded")), *NEXT_CLAIMS], "overlapping leases: a was given"),
    ([*replaced(("a", "requeue", "queued")), *NEXT_CLAIMS], "overlapping leases: y was given"),
]


def test_sound_streams_have_no_violation():
    assert texts(streams(SOUND)) == []


@pytest.mark.parametrize(("rows", "violation"), BROKEN)
def test_a_broken_life_is_found(rows, violation):
    assert any(violation in text for text in texts(streams(rows)))


@pytest.mark.parametrize(
    ("accepted", "canceling", "violation"),
    [
        (ACCEPTED | {"key-e": {"e"}}, CANCELING, "lost jobs: e was accepted and never ended: it has no event"),
        (ACCEPTED, {"c"}, "unrequested cancels: d was canceled without a request"),
        (ACCEPTED | {"key-a": {"a", "b"}}, CANCELING, "jobs made twice: the API accepted key key-a as a, b"),
        ({f"key-{job}": {job} for job in "abc"}, CANCELING, "jobs made twice: no response has d"),
    ],
)
def test_responses_that_the_streams_contradict_are_found(accepted, canceling, violation):
    assert texts(streams(SOUND), accepted, canceling) == [violation]


def test_an_event_in_one_stream_alone_is_found_unless_it_is_the_progress_of_a_done_job():
    def without(event, history):
        by_job = {job: [each for each in of if each.event != event] for job, of in history.by_job.items()}
        return {kind for kind, _ in stream_violations(ACCEPTED, CANCELING, Streams(history.general, by_job))}

    whole = streams(SOUND)
    assert without("expire", whole) == {ViolationKind.ILLEGAL, ViolationKind.DIFFER}
    assert without("heartbeat", whole) == set()
    assert ViolationKind.DIFFER in without("heartbeat", streams(SOUND[:5]))


FIRST, SECOND, THIRD = (each.attempt for each in streams(SOUND).by_job["a"] if each.event == "claim")


@pytest.mark.parametrize(
    ("events", "old", "new", "violation"),
    [
        ({"exhaust"}, THIRD, None, "a: exhaust by no attempt; the claim was by attempt 2"),
        ({"exhaust"}, THIRD, THIRD._replace(claim=FIRST.claim), f"a: exhaust by attempt 2 on {ONE} ({FIRST.claim})"),
        ({"requeue"}, SECOND, FIRST, f"a: requeue by attempt 1 on {ONE} ({FIRST.claim}); the claim was by attempt 2"),
        ({"claim"}, FIRST, None, "a: claim by no attempt after 0 lost attempts"),
        ({"claim", "exhaust"}, THIRD, THIRD._replace(number=3), "a: claim by attempt 3"),
        ({"claim", "requeue"}, SECOND, SECOND._replace(number=1), "a: claim by attempt 1"),
    ],
)
def test_an_attempt_that_may_not_claim_or_end_the_job_is_found(events, old, new, violation):
    general, by_job = streams(SOUND)
    by_job["a"] = [
        each._replace(attempt=new) if each.attempt == old and each.event in events else each for each in by_job["a"]
    ]
    assert any(text.startswith(f"ends by another attempt: {violation}") for text in texts(Streams(general, by_job)))


def test_its_own_table_is_that_of_the_product():
    ours = {(before, event): after for before, events in TRANSITIONS.items() for event, after in events.items()}
    assert {(before, event.value): after.value for (before, event), after in product.TRANSITIONS.items()} == ours
    assert (tuple(product.Status), product.DONE, product.MAX_ATTEMPTS) == (STATUSES, DONE, MOST_ATTEMPTS)


def unexplained(event, status, reason, kinds, short=""):
    return len([*unexplained_failures({"a": [Event(2.0, "a", event, status, 3, reason)]}, kinds, short)])


@pytest.mark.parametrize(("event", "status"), [("fail", "failed"), ("requeue", "queued"), ("expire", "queued")])
def test_a_failure_is_explained_by_its_own_faults_alone(event, status):
    for reason, faults in CAUSES.items():
        assert unexplained(event, status, reason, faults) == 0
        assert unexplained(event, status, reason, set(FaultKind) - set(faults)) == 1
    for bug in ("internal", "stalled", "timeout", None):
        assert unexplained(event, status, bug, set(FaultKind)) == 1
    assert unexplained(event, status, "timeout", (), short="a") == 0  # its timeout is too short on purpose


LATE = Failure(failure_class=FailureClass.TIMEOUT, reason="timeout", message="it took too long")
SPEC = Spec.model_validate({"workload": "matmul", "device": "cpu", "labels": {"order": "x"}})
LABEL_DIGEST = "8071cdfaf92564c2"  # of "order=x"


class Lives(Store):
    """One job after the other, on either device."""

    def __init__(self, client, settings):
        super().__init__(settings)
        self.client = client
        self.keys, self.leases = Keys(settings.namespace), Leases(client, settings)

    def submitted(self, owner=None):
        return str(self._do(lambda jobs: jobs.seen_by(Viewer(owner)).submit(SPEC)).job.id)

    def canceled(self, job):
        self.cancel(job)
        return job

    def claimed(self, device=ONE):
        claim = self.leases.claim(device, ["cpu"], WorkerRef(id="w", device=device, host="here"))
        assert claim is not None
        return claim

    def lost(self):
        self.client.hset(self.keys.lease(ONE), "expires_at_ms", 1)
        self.client.zadd(self.keys.leases, {ONE: 1})
        expire_leases(self.client, self.settings.model_copy(update={"lease_s": 0.0}))

    def ended(self, claim, outcome="succeed"):
        if outcome == "succeed":
            result = a_result(claim.job_id).model_copy(update={"runs": [make_record([0.1]).summary]})
            return self.leases.finish(claim, outcome, result=result, samples=[])
        failure = {"status_reason": LATE.reason, "failure": LATE} if outcome == "fail" else {}
        return self.leases.finish(claim, outcome, **failure)

    def handed_back(self, claim):
        assert self.leases.requeue(claim, reason="worker_shutdown", counts_attempt=False)

    def snapshot(self):
        return read(self.client, self.keys)

    def violations(self, canceling=()):
        snapshot = self.snapshot()
        accepted = {job: {job} for job in snapshot.jobs}
        return [*stream_violations(accepted, canceling, snapshot.streams), *state_violations(snapshot)]


@pytest.fixture
def lives(client, settings):
    return Lives(client, settings)


def test_every_way_that_a_real_job_can_end_breaks_nothing(lives):
    for outcome in ("succeed", "fail"):
        lives.submitted()
        lives.handed_back(lives.claimed())
        assert lives.ended(lives.claimed(OTHER), outcome)
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
    lives.claimed(OTHER)
    assert not lives.ended(zombie)
    script, sound, broken = FAULTS["a finish doesn't look at the token"]
    assert script is Script.FINISH
    lives.leases._scripts[script] = lives.client.register_script(SCRIPT_SOURCES[script].replace(sound, broken))
    assert lives.ended(zombie)
    assert ViolationKind.ATTEMPT in {kind for kind, _ in lives.violations()}


OWNER, OTHER_OWNER = "key_aaaaaaaaaaaaaaaa", "key_bbbbbbbbbbbbbbbb"


@pytest.fixture
def ids(lives):
    """Jobs that succeeded, failed, run, wait, and were canceled, in this order; the second is no API key's."""
    made = [lives.submitted(owner) for owner in (OWNER, None, OTHER_OWNER, OWNER, OTHER_OWNER)]
    lives.ended(lives.claimed())
    lives.ended(lives.claimed(), "fail")
    lives.claimed(OTHER)
    lives.canceled(made[4])
    return made


def test_after_real_lives_all_checks_pass_except_for_jobs_that_have_not_ended(lives, ids):
    responses = Responses(canceling={ids[4]}, unexpected=["a response"])
    for job in ids:
        responses.accepted[job].add(job)
    failing = PlannedJob(ids[1], 0.0, "failing", {}, twice=False, cancel_after_s=None)
    found = all_violations(lives.snapshot(), responses, {}, [failing], [])
    assert [what.split()[0] for _, what in found] == [*sorted(ids[2:4]), OTHER, "a"]
    kinds = [kind for kind, _ in found]
    assert kinds == [ViolationKind.LOST, ViolationKind.LOST, ViolationKind.HELD, ViolationKind.STRANGE]


# One for each value that the checks compare.
DAMAGES = {
    "no record": lambda r, k, ids: r.delete(k.job(ids[0])),
    "no stream": lambda r, k, ids: r.delete(k.job_events(ids[0])),
    "an event that says nothing": lambda r, k, ids: r.xadd(k.job_events(ids[0]), {"x": "y"}),
    "no id": lambda r, k, ids: r.hdel(k.job(ids[0]), "id"),
    "another status": lambda r, k, ids: r.hset(k.job(ids[0]), "status", "failed"),
    "another attempt": lambda r, k, ids: r.hset(k.job(ids[0]), "attempt", "2"),
    "a version that is no number": lambda r, k, ids: r.hset(k.job(ids[0]), "version", "new"),
    "another end": lambda r, k, ids: r.hset(k.job(ids[0]), "finished_at", "1.5"),
    "no time to live": lambda r, k, ids: r.persist(k.job(ids[0])),
    "a token after the end": lambda r, k, ids: r.hset(k.job(ids[0]), "token", "t"),
    "no result": lambda r, k, ids: r.delete(k.result(ids[0])),
    "a result without success": lambda r, k, ids: r.set(k.result(ids[1]), "{}"),
    "no time of its submit": lambda r, k, ids: r.hdel(k.job(ids[0]), "created_ms"),
    "another reason": lambda r, k, ids: r.hset(k.job(ids[1]), "status_reason", "stalled"),
    "another last attempt": lambda r, k, ids: r.hset(k.job(ids[0]), "last_token", "another"),
    "not in the list of all jobs": lambda r, k, ids: r.zrem(k.jobs, ids[0]),
    "two statuses": lambda r, k, ids: r.zadd(k.jobs_with_status("queued"), {ids[0]: 1}),
    "another workload": lambda r, k, ids: r.zadd(k.jobs_of_workload("other"), {ids[1]: 1}),
    "not in its owner's list": lambda r, k, ids: r.zrem(k.jobs_of_owner(OWNER), ids[0]),
    "in another owner's list": lambda r, k, ids: r.zadd(k.jobs_of_owner(OTHER_OWNER), {ids[1]: 1}),
    "another label": lambda r, k, ids: r.zrem(k.jobs_with_label(LABEL_DIGEST), ids[0]),
    "not among its owner's queued jobs": lambda r, k, ids: r.zrem(k.queued_of_owner(OWNER), ids[3]),
    "not among its owner's done jobs": lambda r, k, ids: r.zrem(k.done_of_owner(OWNER), ids[0]),
    "not in its queue": lambda r, k, ids: r.zrem(k.queue("cpu"), ids[3]),
    "in another queue": lambda r, k, ids: r.zadd(k.queue("gpu"), {ids[3]: 1}),
    "a queue that isn't listed": lambda r, k, ids: r.srem(k.queues, "cpu"),
    "no expiry": lambda r, k, ids: r.zrem(k.expiring, f"{ids[0]}:succeeded:matmul:{OWNER}:{LABEL_DIGEST}"),
    "a lease that isn't listed": lambda r, k, ids: r.zrem(k.leases, OTHER),
    "no lease": lambda r, k, ids: r.zrem(k.leases, OTHER) and r.delete(k.lease(OTHER)),
    "a lease of a done job": lambda r, k, ids: r.hset(k.lease(ONE), mapping={"job": ids[0], "token": "t"}),
    "a lease of another attempt": lambda r, k, ids: r.hset(k.lease(OTHER), "token", "t"),
    "a lease without a worker": lambda r, k, ids: r.hdel(k.lease(OTHER), "worker"),
    "a repair": lambda r, k, ids: r.hincrby(k.counts, "repaired wrong_status", 1),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_any_damage_to_redis_is_found(what, lives, ids):
    assert list(state_violations(lives.snapshot())) == []
    DAMAGES[what](lives.client, lives.keys, ids)
    found = {kind for kind, _ in state_violations(lives.snapshot())}
    assert set() < found <= {ViolationKind.RECORD, ViolationKind.INDEX}


def test_what_the_api_returns_is_compared_with_the_streams(lives, settings):
    keys, ids = lives.keys, [lives.submitted() for _ in range(6)]
    for number in range(5):
        lives.ended(lives.claimed(), "succeed" if number < 3 else "fail")
    lives.canceled(ids[5])
    by_job = lives.snapshot().streams.by_job
    with serving(create_app(settings)) as http:
        url = str(http.base_url)
        assert list(view_violations(asyncio.run(clients.read_jobs(url, ids, 60)), by_job)) == []
        lives.client.delete(keys.result(ids[0]))
        lives.client.hset(keys.job(ids[1]), "status", "failed")
        lives.client.delete(keys.job(ids[2]))
        lives.client.hdel(keys.job(ids[3]), "failure")
        lives.client.hset(keys.job(ids[4]), "finished_at", "1000.000000")
        lives.client.copy(keys.result(ids[1]), keys.result(ids[5]))
        found = list(view_violations(asyncio.run(clients.read_jobs(url, ids, 60)), by_job))
    assert {kind for kind, _ in found} == {ViolationKind.VIEW}
    for job, what in zip(ids, ["409", "'failed'", "GET returned 404", "None, 409", "1000.000000", "200"], strict=True):
        [text] = [text for _, text in found if job in text]
        assert what in text.partition("; its stream")[0]


def test_an_api_that_never_responds_is_found():
    views = asyncio.run(clients.read_jobs("http://127.0.0.1:9", ["job"], 0.2))
    assert list(view_violations(views, {})) == [(ViolationKind.VIEW, "job: GET returned 0")]


RUNS = [(0, "submit", "queued"), (1, "claim", "running")]
CANCELED = [*RUNS, (2, "cancel", "running")]
SUCCEEDS, LATE_SUCCESS, STOPS = (3, "succeed", "succeeded"), (9, "succeed", "succeeded"), (3, "stop", "canceled")
AGAIN = [(3, "requeue", "queued"), (4, "claim", "running"), (5, "stop", "canceled")]


@pytest.mark.parametrize(
    ("code", "status", "rows", "faults", "violation"),
    [
        (202, "running", [*CANCELED, (60, "stop", "canceled")], [], ""),
        (202, "running", [*CANCELED, SUCCEEDS], [], ""),  # before its worker got the request
        (202, "running", [*CANCELED, LATE_SUCCESS], [Span(3.5, 8)], ""),  # a fault kept it from its worker
        (409, "", [*RUNS, SUCCEEDS], [], ""),
        (200, "canceled", [RUNS[0], (1, "cancel", "canceled")], [], ""),
        (200, "succeeded", [*CANCELED, SUCCEEDS], [], ""),
        (202, "running", [*CANCELED, LATE_SUCCESS], [Span(3, 4), Span(20, 21)], "after 6.0 s without a fault"),
        (202, "running", [*RUNS, SUCCEEDS], [], "its stream has no cancel"),
        (202, "running", [*CANCELED, *AGAIN], [], "requeue came"),
        (202, "running", [*CANCELED, (3, "exhaust", "failed")], [], "exhaust came"),
        (409, "", [*CANCELED, STOPS], [], "it ended canceled"),
        (200, "canceled", [*CANCELED, SUCCEEDS], [], "it was canceled, and ended succeeded"),
        (200, "succeeded", [*RUNS, SUCCEEDS], [], "its stream has no cancel"),
    ],
)
def test_only_a_cancel_that_was_not_kept_is_found(code, status, rows, faults, violation):
    events = [Event(at_s, "a", event, after, 1) for at_s, event, after in rows]
    found = [what for _, what in cancel_violations({"a": [CancelResponse(code, status)]}, {"a": events}, faults)]
    assert [violation in what for what in found] == [True] * bool(violation)
