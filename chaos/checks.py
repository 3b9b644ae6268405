"""All checks of a run: Redis' records, streams, indexes and leases, and the API's responses.

They share no rules with the product, so that its errors are found.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain
from typing import Final, NamedTuple

import httpx

from chaos.clients import CancelResponse, JobView, Responses
from chaos.plan import FaultKind, PlannedJob, Span, clear_s
from chaos.snapshot import Attempt, Event, Record, Snapshot, StoredJob, Streams, number

QUEUED, RUNNING = "queued", "running"
SUCCEEDED, FAILED, CANCELED = "succeeded", "failed", "canceled"
STATUSES: Final = (QUEUED, RUNNING, SUCCEEDED, FAILED, CANCELED)
DONE: Final = frozenset({SUCCEEDED, FAILED, CANCELED})
MOST_ATTEMPTS: Final = 2
# status -> event -> next status; any other transition is a violation. None: no record yet.
TRANSITIONS: Final[Mapping[str | None, Mapping[str, str]]] = {
    None: {"submit": QUEUED, "import": SUCCEEDED},
    QUEUED: {"claim": RUNNING, "pass_over": QUEUED, "cancel": CANCELED},
    RUNNING: {
        **{"heartbeat": RUNNING, "cancel": RUNNING, "requeue": QUEUED, "expire": QUEUED},
        **{"succeed": SUCCEEDED, "fail": FAILED, "stop": CANCELED, "exhaust": FAILED},
    },
    CANCELED: {"cancel": CANCELED},
}
_HANDS_BACK: Final = frozenset({"requeue", "expire"})
ENDS_ATTEMPT: Final = _HANDS_BACK | {"succeed", "fail", "stop", "exhaust"}
CANCEL_WITHIN_S = 5.0  # the promised time for a cancel to reach the worker

_ENDED: Final = frozenset({FaultKind.KILL, FaultKind.STOP, FaultKind.TERM})
# Reason of a failure or hand-back -> the faults that can cause it. Any other reason is a violation.
CAUSES: Final[Mapping[str, Collection[FaultKind]]] = {
    "worker_lost": _ENDED,
    "worker_shutdown": {FaultKind.TERM},
    "device_busy": _ENDED,  # held by the runner of a dead or stopped worker
    "runner_killed": _ENDED,
    "runner_not_started": _ENDED,
    "disk_full": {FaultKind.FULL},
    "artifact_store_unavailable": {FaultKind.FULL},  # no folder for the job's files
}


class ViolationKind(StrEnum):
    """The values are keys of recorded results."""

    LOST = "lost jobs"
    TWICE = "double finishes"
    OVERLAP = "overlapping leases"
    ILLEGAL = "illegal transitions"
    ATTEMPT = "ends by another attempt"
    REASON = "unexplained failures"
    DOUBLED = "jobs made twice"
    UNASKED = "unrequested cancels"
    CANCEL = "broken cancels"
    DIFFER = "streams that differ"
    RECORD = "records that differ"
    VIEW = "API reads that differ"
    INDEX = "index mismatches"
    ORPHAN = "orphans"
    HELD = "devices not free"
    DIED = "parts that died or hung"
    STRANGE = "unexpected responses"


class Violation(NamedTuple):
    kind: ViolationKind
    what: str


def all_violations(
    snapshot: Snapshot,
    responses: Responses,
    views: Mapping[str, JobView],
    jobs: Sequence[PlannedJob],
    faults: Sequence[tuple[FaultKind, Span]],
) -> list[Violation]:
    """Call this when all parts have ended: a job without an end is lost, and no device may be leased.

    `faults`: those that occurred, with the time for which each had an effect.
    """
    by_job, leases = snapshot.streams.by_job, snapshot.leases.items()
    short = [responses.accepted.get(job.key, set()) for job in jobs if job.size == "failing"]
    return [
        *stream_violations(responses.accepted, responses.canceling, snapshot.streams),
        *unexplained_failures(by_job, {kind for kind, _ in faults}, set().union(*short)),
        *state_violations(snapshot),
        *view_violations(views, by_job),
        *cancel_violations(responses.cancels, by_job, [span for _, span in faults]),
        *(Violation(ViolationKind.HELD, f"{device} is leased for {lease.get('job')}") for device, lease in leases),
        *(Violation(ViolationKind.STRANGE, what) for what in responses.unexpected),
    ]


def stream_violations(
    accepted: Mapping[str, Collection[str]], canceling: Collection[str], streams: Streams
) -> Iterator[Violation]:
    """`accepted`: the job ids in the 202 responses to each idempotency key.

    `canceling`: the jobs that a client tried to cancel.
    """
    answered = set(chain.from_iterable(accepted.values()))
    for key, ids in accepted.items():
        if len(set(ids)) > 1:
            yield Violation(ViolationKind.DOUBLED, f"the API accepted key {key} as {', '.join(sorted(ids))}")
    for job in sorted(set(streams.by_job) - answered):
        yield Violation(ViolationKind.DOUBLED, f"no response has {job}")
    for job in sorted(answered):
        events = streams.by_job.get(job, ())
        if not any(event.status in DONE for event in events):
            last = f"its last event is {events[-1].event}" if events else "it has no event"
            yield Violation(ViolationKind.LOST, f"{job} was accepted and never ended: {last}")
    streams = _with_dropped_progress(streams)
    for job, events in streams.by_job.items():
        yield from _transitions(job, events, canceling)
        yield from _attempts(job, events)
    yield from _overlaps(streams.general)
    yield from _differences(streams)


def _with_dropped_progress(streams: Streams) -> Streams:
    """A job's own stream loses the progress when the job ends: add it from the general stream."""
    beats = defaultdict[str, dict[int, Event]](dict)
    for event in streams.general:
        if event.event == "heartbeat":
            beats[event.job][event.version] = event
    by_job = dict(streams.by_job)
    for job, events in streams.by_job.items():
        if events and events[-1].status in DONE:
            there = {each.version for each in events}
            missing = [event for version, event in beats[job].items() if version not in there]
            by_job[job] = sorted([*events, *missing], key=lambda each: each.version)
    return Streams(streams.general, by_job)


def _transitions(job: str, events: Sequence[Event], canceling: Collection[str]) -> Iterator[Violation]:
    """Each transition is in the table, none is missing, and the job ends once, with its last event."""
    before: str | None = None
    for count, event in enumerate(events, start=1):
        if before in DONE:
            kind = ViolationKind.TWICE if event.status in DONE else ViolationKind.ILLEGAL
            yield Violation(kind, f"{job}: {event.event} to {event.status} after it was {before}")
        elif TRANSITIONS.get(before, {}).get(event.event) != event.status:
            yield Violation(ViolationKind.ILLEGAL, f"{job}: {event.event} from {before or 'nothing'} to {event.status}")
        if event.version != count:
            yield Violation(ViolationKind.ILLEGAL, f"{job}: event {count} has version {event.version}")
        before = event.status
    if before == CANCELED and job not in canceling:
        yield Violation(ViolationKind.UNASKED, f"{job} was canceled without a request")


def _attempts(job: str, events: Sequence[Event]) -> Iterator[Violation]:
    """Only the attempt claimed last may end the job or hand it back, and the number of attempts is limited."""
    claimed: Attempt | None = None
    least = 1  # least number of the next attempt: a lease that ran out raises it, a hand-back may not
    for event in events:
        if event.event == "claim":
            claimed = event.attempt
            if claimed is None or not least <= claimed.number <= MOST_ATTEMPTS:
                what = f"{job}: claim by {_named(claimed)} after {least - 1} lost attempts"
                yield Violation(ViolationKind.ATTEMPT, what)
        elif event.event in ENDS_ATTEMPT:
            if claimed is None or event.attempt != claimed:
                what = f"{job}: {event.event} by {_named(event.attempt)}; the claim was by {_named(claimed)}"
                yield Violation(ViolationKind.ATTEMPT, what)
            if event.event == "expire" and claimed is not None:
                least = claimed.number + 1
            claimed = None


def _named(attempt: Attempt | None) -> str:
    return f"attempt {attempt.number} on {attempt.device} ({attempt.claim})" if attempt else "no attempt"


def _overlaps(general: Sequence[Event]) -> Iterator[Violation]:
    """A job has its device from the claim to the event that ends the attempt, in Redis' order; no other may overlap."""
    holders: dict[str, str] = {}
    devices: dict[str, str] = {}
    for event in general:
        if event.event == "claim":
            device = event.attempt.device if event.attempt else ""
            if (holder := holders.get(device)) is not None:
                yield Violation(ViolationKind.OVERLAP, f"{event.job} was given {device} while {holder} had it")
            holders[device], devices[event.job] = event.job, device
        elif event.status != RUNNING:
            freed = devices.pop(event.job, "")
            if holders.get(freed) == event.job:
                del holders[freed]


def _differences(streams: Streams) -> Iterator[Violation]:
    """The general stream must have the same events of each job as the job's own stream, in the same order."""
    general = defaultdict[str, list[Event]](list)
    for event in streams.general:
        general[event.job].append(event._replace(at_s=0.0))  # the time comes from the entry's id, which differs
    for job in sorted({*general, *streams.by_job}):
        if general[job] != [event._replace(at_s=0.0) for event in streams.by_job.get(job, ())]:
            yield Violation(ViolationKind.DIFFER, f"the general stream and that of {job} have different events")


def unexplained_failures(
    by_job: Mapping[str, Sequence[Event]], kinds: Collection[FaultKind], short: Collection[str]
) -> Iterator[Violation]:
    """`kinds`: the kinds of faults that occurred. `short`: the jobs whose timeout is too short on purpose."""
    for job, event in ((job, event) for job, events in by_job.items() for event in events):
        if event.status == FAILED or event.event in _HANDS_BACK:
            reason = event.detail or "no reason"
            if not (reason == "timeout" and job in short) and not set(CAUSES.get(reason, ())) & set(kinds):
                what = f"{job}: {event.event} for {reason}, which no fault of this run causes"
                yield Violation(ViolationKind.REASON, what)


def state_violations(snapshot: Snapshot) -> Iterator[Violation]:
    """Each record must agree with the job's stream and keys, and each index and lease with the records.

    They must have agreed all the time, so a repair by Dyno's audit is a violation, too.
    """
    yield from _record_violations(snapshot)
    for kind, count in snapshot.repairs.items():
        yield Violation(ViolationKind.INDEX, f"the audit had to repair {count} times: {kind}")
    records = {job: stored.record for job, stored in snapshot.jobs.items()}
    wanted = _expected_indexes(records, snapshot.leases)
    for index in sorted({*wanted, *snapshot.indexes}):
        if (has := snapshot.indexes.get(index, set())) != (should := wanted.get(index, set())):
            what = f"{index} has unexpected {sorted(has - should)} and lacks {sorted(should - has)}"
            yield Violation(ViolationKind.INDEX, what)
    for device, lease in snapshot.leases.items():
        token = records.get(lease.get("job", ""), {}).get("token", "none")
        if not {"worker", "expires_at_ms"} <= lease.keys() or lease.get("token") != token:
            yield Violation(ViolationKind.INDEX, f"the lease of {device} is {lease}; the job's token is {token}")
    held = {lease.get("job"): lease.get("token") for lease in snapshot.leases.values()}
    for job, record in records.items():
        if record.get("status") == RUNNING and held.get(job) != record.get("token"):
            yield Violation(ViolationKind.INDEX, f"{job} runs without its lease")


def _record_violations(snapshot: Snapshot) -> Iterator[Violation]:
    for job in sorted({*snapshot.jobs, *snapshot.streams.by_job}):
        events = snapshot.streams.by_job.get(job)
        if job not in snapshot.jobs or not events:
            has, lacks = ("record", "stream") if job in snapshot.jobs else ("stream", "record")
            yield Violation(ViolationKind.RECORD, f"{job} has a {has} and no {lacks}")
        else:
            for name, found, expected in _compared(job, snapshot.jobs[job], events):
                if found not in expected:
                    what = f"{job}: {name} is {found}; expected: {' or '.join(map(str, expected))}"
                    yield Violation(ViolationKind.RECORD, what)


def _compared(job: str, stored: StoredJob, events: Sequence[Event]) -> Iterator[tuple[str, object, Sequence[object]]]:
    """Name, value, and the values that the stream allows."""
    record, last, end = stored.record, events[-1], _end(events)
    moves = [event for event in events if event.event in ("claim", "requeue")]
    claims = [event.attempt.number for event in moves if event.event == "claim" and event.attempt]
    attempt = claims[-1] if claims else 0
    # A hand-back may not have counted the last attempt.
    attempts = [attempt - 1, attempt] if moves and moves[-1].event == "requeue" else [attempt]
    yield "the record's id", record.get("id"), [job]
    yield "the record's status", record.get("status"), [last.status]
    yield "the record's attempt", number(record.get("attempt")), attempts
    yield "the record's version", number(record.get("version")), [last.version]
    yield "the record's end", record.get("finished_at"), [end.at if end else None]
    yield "having a TTL", stored.ttl_ms > 0, [last.status in DONE]
    yield "having a token", "token" in record, [last.status == RUNNING]
    yield "the number of results and samples", stored.results, [2 if last.status == SUCCEEDED else 0]
    yield "having workload, queue and time", {"workload", "queue", "created_ms"} <= record.keys(), [True]
    if last.status == FAILED:
        yield "the record's reason", record.get("status_reason"), [last.detail]
    ends = [event.attempt for event in events if event.event in ENDS_ATTEMPT]
    if ends and ends[-1]:  # the digest is that of dyno/store/_ledger.lua
        digest = hashlib.sha1(record.get("last_token", "").encode(), usedforsecurity=False).hexdigest()[:12]
        yield "the record's last attempt", digest, [ends[-1].claim]


def _expected_indexes(records: Mapping[str, Record], leases: Iterable[str]) -> Mapping[str, set[str]]:
    expected = defaultdict[str, set[str]](set, {"jobs": set(records), "leases": set(leases)})
    for job, record in records.items():
        status, workload, queue, owner = (record.get(name, "") for name in ("status", "workload", "queue", "owner"))
        digests = _label_digests(record.get("spec", "{}"))
        queued, done, webhook = status == QUEUED, status in DONE, status in DONE and "webhook" in record
        rows: list[tuple[object, str, str]] = [
            (True, f"jobs:status:{status}", job),
            (True, f"jobs:workload:{workload}", job),
            (owner, f"jobs:owner:{owner}", job),
            (queued and owner, f"jobs:queued:{owner}", job),
            (done, f"jobs:done:{owner}", job),
            (queued, f"queue:{queue}", job),
            (queued, "queues", queue),
            (webhook, "jobs:webhooks", job),
            (webhook and owner, f"jobs:webhooks:owner:{owner}", job),
            *((True, f"jobs:label:{digest}", job) for digest in digests),
            (done, "expiring", ":".join((job, status, workload, owner, ",".join(digests))).rstrip(":")),
        ]
        for belongs, index, member in rows:
            if belongs:
                expected[index].add(member)
    return expected


def _label_digests(spec: str) -> Sequence[str]:
    """As in dyno/store/_ledger.lua; labels that chaos sends have no "=" in their names."""
    labels = (f"{name}={value}" for name, value in json.loads(spec).get("labels", {}).items())
    return sorted(hashlib.sha1(label.encode(), usedforsecurity=False).hexdigest()[:16] for label in labels)


def view_violations(views: Mapping[str, JobView], by_job: Mapping[str, Sequence[Event]]) -> Iterator[Violation]:
    """The API has each job, done and as in its stream: a succeeded job has a result, a failed one a failure."""
    for job, view in views.items():
        if view.code != httpx.codes.OK:
            yield Violation(ViolationKind.VIEW, f"{job}: GET returned {view.code}")
        elif end := _end(by_job.get(job, ())):  # a job without an end is lost, another violation
            succeeded, ended_at = end.status == SUCCEEDED, view.job.get("finished_at")
            seen = (
                *(view.job.get("id"), view.job.get("status"), view.job.get("done")),
                f"{datetime.fromisoformat(ended_at).timestamp():.6f}" if ended_at else "",
                *((view.job.get("failure") or {}).get("reason"), view.result_code),
                *((view.result.get("job"), bool(view.result.get("runs"))) if succeeded else ()),
            )
            expected = (
                *(job, end.status, True, end.at),
                *(end.detail if end.status == FAILED else None, 200 if succeeded else 409),
                *((job, True) if succeeded else ()),
            )
            if seen != expected:
                yield Violation(ViolationKind.VIEW, f"{job}: GET returned {seen}; its stream has {expected}")


def _end(events: Iterable[Event]) -> Event | None:
    return next((event for event in events if event.status in DONE), None)


def cancel_violations(
    cancels: Mapping[str, Sequence[CancelResponse]], by_job: Mapping[str, Sequence[Event]], faults: Sequence[Span]
) -> Iterator[Violation]:
    """Violations of the promises for cancels.

    409: the job had ended in another way before. 200: the job has ended as the response says. 202: the job runs, and
    its worker gets the request. It ends canceled, or as the attempt ended before the worker got the request. No further
    attempt follows. The worker gets the request within CANCEL_WITHIN_S without a fault. The same holds for a 200 with
    another status than canceled, because the API read the job once more after the cancel.
    """
    for job, responses in cancels.items():
        events = by_job.get(job, ())
        if end := _end(events):
            for response in responses:
                for what in _of_cancel(response, events, end, faults):
                    yield Violation(ViolationKind.CANCEL, f"{job}, cancel with response {response.code}: {what}")


def _of_cancel(response: CancelResponse, events: Sequence[Event], end: Event, faults: Sequence[Span]) -> Iterator[str]:
    if response.code == httpx.codes.CONFLICT:
        if end.status == CANCELED:
            yield "it ended canceled"
        return
    if response.code == httpx.codes.OK and response.status != end.status:
        yield f"it was {response.status}, and ended {end.status}"
    if response.code == httpx.codes.OK and response.status == CANCELED:
        return
    since = [number for number, event in enumerate(events) if event.event == "cancel"]
    if not since:
        yield "its stream has no cancel"
        return
    after = events[since[0] :]
    yield from (f"{event.event} came after it" for event in after if event.event in {*_HANDS_BACK, "exhaust"})
    late_s = clear_s(after[0].at_s, end.at_s, faults)
    if end.status != CANCELED and late_s > CANCEL_WITHIN_S:
        yield f"it ended {end.status}, after {late_s:.1f} s without a fault in which the cancel could reach its worker"
