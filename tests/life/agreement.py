"""Reads Redis in one atomic step and compares its state with the model's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NamedTuple

from dyno.models.job import DONE, TRANSITIONS, Event, Status
from dyno.store.stored_results import decompress, execute_raw
from tests.life.real import CLASS, OWNER, PACES, QUEUE, device_id, is_owned


class OfJob(NamedTuple):
    """The keys of one job."""

    record: Mapping[str, str]
    ttl_ms: int
    events: list[tuple[str, Mapping[str, str]]]
    samples: bytes | None


class Seen(NamedTuple):
    """A snapshot of Redis."""

    now_ms: int
    jobs: list[OfJob]
    leases: list[Mapping[str, str]]
    due: list[tuple[str, float]]
    by_status: dict[Status, list[str]]
    all_jobs: list[str]
    queue: list[str]
    queues: set[str]
    classes: list[str]
    classed: list[str]
    expiring: list[str]
    owned: list[str]
    owned_queued: list[str]
    webhooks: list[str]
    webhooks_due: list[str]
    paces: list[str]
    events: list[tuple[str, Mapping[str, str]]]


def look(real, devices):
    keys = real.keys
    with real.client.pipeline() as pipeline:
        pipeline.time()
        for job_id in real.ids:
            pipeline.hgetall(keys.job(job_id)).pttl(keys.job(job_id))
            pipeline.xrange(keys.job_events(job_id))
        for device in range(devices):
            pipeline.hgetall(keys.lease(device_id(device)))
        pipeline.zrange(keys.leases, 0, -1, withscores=True)
        for status in Status:
            pipeline.zrange(keys.jobs_with_status(status), 0, -1)
        pipeline.zrange(keys.jobs, 0, -1).zrange(keys.queue(QUEUE), 0, -1).smembers(keys.queues)
        pipeline.hkeys(keys.classes(QUEUE)).zrange(keys.class_jobs(QUEUE, CLASS), 0, -1)
        pipeline.zrange(keys.expiring, 0, -1).zrange(keys.jobs_of_owner(OWNER), 0, -1)
        pipeline.zrange(keys.queued_of_owner(OWNER), 0, -1)
        pipeline.zrange(keys.webhooks, 0, -1).zrange(keys.webhooks_due, 0, -1)
        pipeline.lrange(keys.paces(PACES), 0, -1).xrange(keys.events)
        answers: Any = iter(pipeline.execute())
    # Apart, as the replies of a transaction are all text.
    samples = execute_raw(real.client, "MGET", *map(keys.samples, real.ids)) if real.ids else []
    seconds, micros = next(answers)
    jobs = [OfJob(next(answers), next(answers), next(answers), each) for each in samples]
    leases = [next(answers) for _ in range(devices)]
    due = [tuple(each) for each in next(answers)]
    by_status = {status: next(answers) for status in Status}
    return Seen(seconds * 1000 + micros // 1000, jobs, leases, due, by_status, *answers)


class Agreement:
    """After each step, compares the snapshot with the model and with the snapshot before."""

    def __init__(self):
        self._tokens: dict[int, str] = {}  # the model's -> the one in Redis
        self._versions: list[int] = []

    def check(self, ledger, seen, ids):
        for job, found in enumerate(seen.jobs):
            self._record(ledger.jobs[job], found)
            _events(ledger.jobs[job], found)
        versions = [int(found.record["version"]) for found in seen.jobs]
        assert all(now >= before for before, now in zip(self._versions, versions, strict=False)), "a version went back"
        self._versions = versions
        self._leases(ledger, seen, ids)
        _indexes(ledger, seen, ids)

    def _record(self, expected, found):
        record = found.record
        assert record, "a job is lost"
        said = (record["status"], int(record["attempt"]), "cancel_requested_at" in record)
        assert said == (expected.status, expected.attempt, expected.canceling), record["id"]
        self._token(expected.token, record.get("token"))
        token, call = expected.last or (None, None)
        self._token(token, record.get("last_token"))
        assert record.get("last_event") == call
        assert ("finished_at" in record, found.ttl_ms > 0) == (expected.done, expected.done)
        if expected.status is Status.SUCCEEDED:
            assert json.loads(decompress(found.samples or b"[]")) == [record["last_token"]], (
                "samples of another attempt"
            )
        else:
            assert found.samples is None, "samples of an attempt that didn't succeed"

    def _token(self, expected, found):
        assert (expected is None) == (found is None)
        if expected is not None and found is not None:
            assert self._tokens.setdefault(expected, found) == found
            assert len(set(self._tokens.values())) == len(self._tokens), "two attempts have one token"

    def _leases(self, ledger, seen, ids):
        for device, (expected, found) in enumerate(zip(ledger.leases, seen.leases, strict=True)):
            assert (expected is None) == (not found)
            if expected is not None:
                assert found["job"] == ids[expected.job]
                self._token(expected.token, found["token"])
                assert expected.late == (int(found["expires_at_ms"]) <= seen.now_ms)
                record = seen.jobs[expected.job].record
                assert (record["device"], record["worker"]) == (device_id(device), found["worker"])
        held = {device_id(n): float(found["expires_at_ms"]) for n, found in enumerate(seen.leases) if found}
        assert dict(seen.due) == held, "the index of leases is out of step"


def _events(expected, found):
    """From the stream alone: each transition is in the table, none is missing, and a job ends at most once."""
    events = [fields for _, fields in found.events]
    assert [int(event["version"]) for event in events] == [*range(1, int(found.record["version"]) + 1)]
    before: Status | None = None
    for event in events:
        now = Status(event["status"])
        assert TRANSITIONS[before, Event(event["event"])] is now
        before = now
    assert before == expected.status
    assert sum(event["status"] in DONE for event in events) == expected.ends == expected.done
    assert all(earlier <= later for earlier, later in pairwise(float(event["at"]) for event in events))


def _indexes(ledger, seen, ids):
    records = ledger.jobs[: len(ids)]
    for status, members in seen.by_status.items():
        assert set(members) == {ids[job] for job, record in enumerate(records) if record.status is status}, status
    assert set(seen.all_jobs) == set(ids)
    assert seen.queue == [ids[job] for job in ledger.queue]
    assert seen.queues == ({QUEUE} if ledger.queue else set())
    assert (seen.classes, seen.classed) == ([CLASS] if ledger.queue else [], seen.queue)
    ends = {f"{ids[n]}:{each.status}:matmul" + f":{OWNER}" * is_owned(n) for n, each in enumerate(records) if each.done}
    assert set(seen.expiring) == ends
    assert set(seen.owned) == {each for n, each in enumerate(ids) if is_owned(n)}
    queued = {ids[n] for n, record in enumerate(records) if is_owned(n) and record.status is Status.QUEUED}
    assert set(seen.owned_queued) == queued
    told = {ids[n] for n, record in enumerate(records) if record.done and not n % 3}
    assert set(seen.webhooks) == set(seen.webhooks_due) == told
    assert len(seen.paces) == sum(record.status is Status.SUCCEEDED for record in records), "learned more or less often"
    for job, found in enumerate(seen.jobs):
        own = [fields for _, fields in found.events]
        assert own == [fields for _, fields in seen.events if fields["job"] == ids[job]], "the two streams differ"
