"""One atomic read of all that Redis holds about jobs: records, event streams, indexes and leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import redis

from dyno.store.redis import JOB_ID, Keys

MOST_JOBS = 2000  # per run, because the general stream keeps 10,000 events
Record = Mapping[str, str]


class Attempt(NamedTuple):
    """`claim`: a digest of the attempt's token."""

    number: int
    device: str
    claim: str


class Event(NamedTuple):
    """`at_s`: seconds since 1970 by Redis' clock, from the stream's id. `at`: the time in the event's field.

    `attempt`: set for a claim and the end of an attempt. A damaged or missing field is "", -1 or None.
    """

    at_s: float
    job: str
    event: str
    status: str
    version: int
    detail: str | None = None
    attempt: Attempt | None = None
    at: str = ""


class Streams(NamedTuple):
    """`general`: all events in Redis' order. `by_job`: the stream of each job."""

    general: Sequence[Event]
    by_job: Mapping[str, Sequence[Event]]


class StoredJob(NamedTuple):
    """`results`: how many of result and samples there are."""

    record: Record
    ttl_ms: int
    results: int


class Snapshot(NamedTuple):
    """The names of indexes are their keys without the namespace. `leases`: by device."""

    jobs: Mapping[str, StoredJob]
    streams: Streams
    indexes: Mapping[str, set[str]]
    leases: Mapping[str, Record]


def read(client: redis.Redis, keys: Keys) -> Snapshot:
    """Keys are found by their patterns, so unexpected ones are found, too."""

    def found(*patterns: str) -> list[str]:
        return sorted(str(key) for pattern in patterns for key in client.scan_iter(pattern, 1000))

    of_jobs = [(match[0], key) for key in found(keys.job("*")) if (match := JOB_ID.search(key))]
    ids = [job for job, key in of_jobs if key == keys.job(job)]
    with_stream = [job for job, key in of_jobs if key == keys.job_events(job)]
    indexed_by = (keys.jobs_with_status, keys.jobs_of_workload, keys.jobs_of_owner, keys.queued_of_owner)
    patterns = [each("*") for each in (*indexed_by, keys.jobs_with_label, keys.webhooks_of_owner, keys.queue)]
    indexes = found(keys.jobs, keys.webhooks, keys.leases, keys.expiring, *patterns)
    leases = [key.removeprefix(keys.lease("")) for key in found(keys.lease("*"))]
    with client.pipeline() as pipeline:
        for job in ids:
            pipeline.hgetall(keys.job(job))
            pipeline.pttl(keys.job(job))
            pipeline.exists(keys.result(job), keys.samples(job))
        for stream in (keys.events, *map(keys.job_events, with_stream)):
            pipeline.xrange(stream)
        for name in indexes:
            pipeline.zrange(name, 0, -1)
        for device in leases:
            pipeline.hgetall(keys.lease(device))
        pipeline.smembers(keys.queues)
        replies: Any = iter(pipeline.execute())
    jobs = {job: StoredJob(next(replies), next(replies), next(replies)) for job in ids}
    general, *streams = ([_event(*entry) for entry in next(replies)] for _ in ("", *with_stream))
    members = {name.removeprefix(f"{keys.namespace}:"): set(next(replies)) for name in indexes}
    held = {device: next(replies) for device in leases}
    by_job = dict(zip(with_stream, streams, strict=True))
    return Snapshot(jobs, Streams(general, by_job), members | {"queues": next(replies)}, held)


def number(text: str | None) -> int:
    """The number, or -1 if the text isn't one: no count here is negative."""
    return int(text) if text is not None and text.isdecimal() else -1


def _event(entry_id: str, fields: Record) -> Event:
    job, event, status, at, device, claim = (
        fields.get(name, "") for name in ("job", "event", "status", "at", "device", "claim")
    )
    at_s, version = int(entry_id.partition("-")[0]) / 1000, number(fields.get("version"))
    by_attempt = not fields.keys().isdisjoint({"attempt", "device", "claim"})
    attempt = Attempt(number(fields.get("attempt")), device, claim) if by_attempt else None
    return Event(at_s, job, event, status, version, fields.get("detail"), attempt, at)
