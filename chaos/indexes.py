"""Checks every index in Redis against the records, in one atomic read after the run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import redis

from chaos.streams import number
from chaos.table import DONE, QUEUED, RUNNING, STATUSES, SUCCEEDED
from dyno.store.redis import JOB_ID, Keys

Record = Mapping[str, str]

_NEEDED = ("id", "status", "workload", "queue", "version", "attempt", "created_ms")
_LEASED = ("job", "token", "worker", "expires_at_ms")


class Kept(NamedTuple):
    """One job's keys: the record, its TTL, the length of its stream, and whether it has results."""

    record: Record
    ttl_ms: int
    events: int
    results: int


class Seen(NamedTuple):
    """A snapshot of Redis. The names of indexes are their keys without the namespace."""

    jobs: Mapping[str, Kept]
    indexes: Mapping[str, set[str]]
    leases: Mapping[str, Record]


def look(client: redis.Redis, keys: Keys) -> Seen:
    """Read a snapshot. Indexes and leases are found by the pattern of their keys, so unexpected ones are found, too."""
    ids = sorted(job for key in client.scan_iter(keys.job("*"), 1000) if (job := _job_of(str(key), keys)))
    sets = sorted(str(key) for pattern in _patterns(keys) for key in client.scan_iter(pattern, 1000))
    leases = sorted(str(key) for key in client.scan_iter(keys.lease("*"), 1000))
    with client.pipeline() as pipeline:
        for job in ids:
            pipeline.hgetall(keys.job(job))
            pipeline.pttl(keys.job(job))
            pipeline.xlen(keys.job_events(job))
            pipeline.exists(keys.result(job), keys.samples(job))
        for name in sets:
            pipeline.zrange(name, 0, -1)
        for name in leases:
            pipeline.hgetall(name)
        pipeline.smembers(keys.queues)
        replies: Any = iter(pipeline.execute())
    short = len(keys.job("")) - len("job:")
    jobs = {job: Kept(*(next(replies) for _ in Kept._fields)) for job in ids}
    indexes = {name[short:]: set(next(replies)) for name in sets}
    held = {name.removeprefix(keys.lease("")): next(replies) for name in leases}
    return Seen(jobs, indexes | {"queues": next(replies)}, held)


def mismatches(seen: Seen) -> list[str]:
    """All indexes and leases that disagree with the records, and all damaged records."""
    records = {job: kept.record for job, kept in seen.jobs.items()}
    wanted = _wanted(records, seen.leases)
    found = [f"the record of {job}: {fault}" for job, record in records.items() for fault in _damage(record, _NEEDED)]
    found += [f"the lease of {device}: {f}" for device, lease in seen.leases.items() for f in _damage(lease, _LEASED)]
    found += [
        f"{name} has {sorted(has - should)} too many and lacks {sorted(should - has)}"
        for name in sorted({*wanted, *seen.indexes})
        if (has := seen.indexes.get(name, set())) != (should := wanted.get(name, set()))
    ]
    found += [f"{job}: {fault}" for job, kept in seen.jobs.items() for fault in _of_record(kept)]
    return found + [f"the lease of {device}: {fault}" for device, fault in _of_leases(seen.leases, records)]


def _damage(record: Record, needed: Iterable[str]) -> Iterator[str]:
    yield from (f"it has no {name}" for name in needed if name not in record)
    if "status" in record and record["status"] not in STATUSES:
        yield f"there is no status {record['status']!r}"
    for name in ("version", "attempt"):
        if name in record and number(record[name]) < 0:
            yield f"its {name} is {record[name]!r}"


def _wanted(records: Mapping[str, Record], leases: Mapping[str, Record]) -> dict[str, set[str]]:
    def those(field: str, value: str) -> set[str]:
        return {job for job, record in records.items() if record.get(field) == value}

    queued = those("status", QUEUED)
    queues = {records[job].get("queue", "") for job in queued}
    workloads = {record.get("workload", "") for record in records.values()}
    owners = {record["owner"] for record in records.values() if "owner" in record}
    told = {job for job, record in records.items() if "webhook" in record and record.get("status") in DONE}
    return {
        "jobs": set(records),
        **{f"jobs:status:{each}": those("status", each) for each in STATUSES},
        **{f"jobs:workload:{each}": those("workload", each) for each in workloads},
        **{f"jobs:owner:{each}": those("owner", each) for each in owners},
        **{f"jobs:queued:{each}": queued & those("owner", each) for each in owners},
        **{f"queue:{name}": {job for job in queued if records[job].get("queue", "") == name} for name in queues},
        "queues": queues,
        "leases": set(leases),
        "jobs:webhooks": told,
        **{f"jobs:webhooks:owner:{each}": told & those("owner", each) for each in owners},
        "expiring": {_expiring(job, record) for job, record in records.items() if record.get("status") in DONE},
    }


def _of_record(kept: Kept) -> Iterator[str]:
    record = kept.record
    status = record.get("status")
    done = status in DONE
    if done != ("finished_at" in record) or done != (kept.ttl_ms > 0):
        yield f"it is {status}, and its end or its life says otherwise"
    if (status == RUNNING) != ("token" in record):
        yield f"it is {status}, and its token says otherwise"
    if kept.results != (2 if status == SUCCEEDED else 0):
        yield f"it is {status}, and has {kept.results} of result and samples"
    if number(record.get("version")) != kept.events:
        yield f"its version is {record.get('version')}, of {kept.events} events"


def _of_leases(leases: Mapping[str, Record], records: Mapping[str, Record]) -> Iterable[tuple[str, str]]:
    held = {lease.get("job", ""): lease.get("token") for lease in leases.values()}
    for device, lease in leases.items():
        token = records.get(lease.get("job", ""), {}).get("token")
        if token is None or token != lease.get("token"):
            yield device, f"{lease.get('job')} knows nothing of it"
    for job, record in records.items():
        if record.get("status") == RUNNING and held.get(job) != record.get("token"):
            yield record.get("device", "none"), f"{job} runs without it"


def _patterns(keys: Keys) -> list[str]:
    return [
        keys.jobs,
        keys.jobs_with_status("*"),
        keys.jobs_of_workload("*"),
        keys.jobs_of_owner("*"),
        keys.queued_of_owner("*"),
        keys.queue("*"),
        keys.leases,
        keys.expiring,
        keys.webhooks,
        keys.webhooks_of_owner("*"),
    ]


def _expiring(job: str, record: Record) -> str:
    owner = [record["owner"]] if "owner" in record else []
    return ":".join((job, record.get("status", ""), record.get("workload", ""), *owner))


def _job_of(key: str, keys: Keys) -> str | None:
    found = JOB_ID.search(key)
    return found[0] if found and keys.job(found[0]) == key else None
