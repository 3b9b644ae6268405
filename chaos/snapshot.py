"""Reads all that Redis holds about jobs: records, event streams, indexes and leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from dyno.store.redis import JOB_ID, Keys

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
    """`results`: 2 if both result and samples exist, 1 for one of them."""

    record: Record
    ttl_ms: int
    results: int


class Snapshot(NamedTuple):
    """The names of indexes are their keys without the namespace. `leases`: by device.

    `repairs`: how many Dyno's audit made, by kind.
    """

    jobs: Mapping[str, StoredJob]
    streams: Streams
    indexes: Mapping[str, set[str]]
    leases: Mapping[str, Record]
    repairs: Mapping[str, int]


_REPAIRED = "repaired "


def read(client: Any, keys: Keys) -> Snapshot:
    """`client`: of redis-py, with decoded replies. Nothing may write meanwhile.

    Keys are found by their patterns, so unexpected ones are found, too.
    """
    of_jobs = [(match[0], key) for key in _found(client, keys.job("*")) if (match := JOB_ID.search(key))]
    leases = [key.removeprefix(keys.lease("")) for key in _found(client, keys.lease("*"))]
    return Snapshot(
        jobs={job: _stored(client, keys, job) for job, key in of_jobs if key == keys.job(job)},
        streams=Streams(
            _events(client, keys.events),
            {job: _events(client, key) for job, key in of_jobs if key == keys.job_events(job)},
        ),
        indexes=_indexes(client, keys),
        leases={device: client.hgetall(keys.lease(device)) for device in leases},
        repairs={
            name.removeprefix(_REPAIRED): int(count)
            for name, count in client.hgetall(keys.counts).items()
            if name.startswith(_REPAIRED)
        },
    )


def number(text: str | None) -> int:
    """The number, or -1 if the text isn't one: no count here is negative."""
    return int(text) if text is not None and text.isdecimal() else -1


def _found(client: Any, *patterns: str) -> list[str]:
    return sorted(str(key) for pattern in patterns for key in client.scan_iter(pattern, 1000))


def _stored(client: Any, keys: Keys, job: str) -> StoredJob:
    key = keys.job(job)
    return StoredJob(client.hgetall(key), client.pttl(key), client.exists(keys.result(job), keys.samples(job)))


def _indexes(client: Any, keys: Keys) -> dict[str, set[str]]:
    by_name = (
        keys.jobs_with_status,
        keys.jobs_of_workload,
        keys.jobs_of_owner,
        keys.queued_of_owner,
        keys.done_of_owner,
    )
    patterns = [each("*") for each in (*by_name, keys.jobs_with_label, keys.webhooks_of_owner, keys.queue)]
    names = _found(client, keys.jobs, keys.webhooks, keys.leases, keys.expiring, *patterns)
    members = {name.removeprefix(f"{keys.namespace}:"): set(client.zrange(name, 0, -1)) for name in names}
    return members | {"queues": set(client.smembers(keys.queues))}


_DROPPED = {"partial": ""}  # takes the place of figures of a job that has ended (dyno/store/_ledger.lua)


def _events(client: Any, stream: str) -> list[Event]:
    return [_event(entry_id, fields) for entry_id, fields in client.xrange(stream) if fields != _DROPPED]


def _event(entry_id: str, fields: Record) -> Event:
    names = ("job", "event", "status", "at", "device", "claim")
    job, event, status, at, device, claim = (fields.get(name, "") for name in names)
    at_s, version = int(entry_id.partition("-")[0]) / 1000, number(fields.get("version"))
    by_attempt = not fields.keys().isdisjoint({"attempt", "device", "claim"})
    attempt = Attempt(number(fields.get("attempt")), device, claim) if by_attempt else None
    return Event(at_s, job, event, status, version, fields.get("detail"), attempt, at)
