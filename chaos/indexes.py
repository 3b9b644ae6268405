"""Whether Redis says the same everywhere: every index against the records, read in one step after all is over."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import redis

from dyno.job import DONE, Status
from dyno.store.keys import JOB_ID, Keys

Record = Mapping[str, str]


class Kept(NamedTuple):
    """One job's keys: the record, how long it lives, the length of its stream, and whether there are results."""

    record: Record
    ttl_ms: int
    events: int
    answers: int


class Seen(NamedTuple):
    """Redis at one moment. Names of indexes are those of the keys, without the namespace."""

    jobs: Mapping[str, Kept]
    indexes: Mapping[str, set[str]]
    leases: Mapping[str, Record]


def look(client: redis.Redis, keys: Keys) -> Seen:
    """Indexes and leases are looked for by the form of their keys, so that one nobody knows of is found, too."""
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
        answers: Any = iter(pipeline.execute())
    short = len(keys.job("")) - len("job:")
    jobs = {job: Kept(*(next(answers) for _ in Kept._fields)) for job in ids}
    indexes = {name[short:]: set(next(answers)) for name in sets}
    held = {name.removeprefix(keys.lease("")): next(answers) for name in leases}
    return Seen(jobs, indexes | {"queues": next(answers)}, held)


def mismatches(seen: Seen) -> list[str]:
    """Every index and every lease that is out of step with the records."""
    records = {job: kept.record for job, kept in seen.jobs.items()}
    wanted = _wanted(records, seen.leases)
    found = [
        f"{name} has {sorted(has - should)} too many and lacks {sorted(should - has)}"
        for name in sorted({*wanted, *seen.indexes})
        if (has := seen.indexes.get(name, set())) != (should := wanted.get(name, set()))
    ]
    found += [f"{job}: {fault}" for job, kept in seen.jobs.items() for fault in _of_record(kept)]
    return found + [f"the lease of {device}: {fault}" for device, fault in _of_leases(seen.leases, records)]


def _wanted(records: Mapping[str, Record], leases: Mapping[str, Record]) -> dict[str, set[str]]:
    def those(field: str, value: str) -> set[str]:
        return {job for job, record in records.items() if record[field] == value}

    queued = those("status", Status.QUEUED)
    queues = {records[job]["queue"] for job in queued}
    workloads = {record["workload"] for record in records.values()}
    return {
        "jobs": set(records),
        **{f"jobs:status:{each}": those("status", each) for each in Status},
        **{f"jobs:workload:{each}": those("workload", each) for each in workloads},
        **{f"queue:{name}": {job for job in queued if records[job]["queue"] == name} for name in queues},
        "queues": queues,
        "leases": set(leases),
        "expiring": {_expiring(job, record) for job, record in records.items() if record["status"] in DONE},
    }


def _of_record(kept: Kept) -> Iterator[str]:
    record = kept.record
    done = record["status"] in DONE
    if done != ("finished_at" in record) or done != (kept.ttl_ms > 0):
        yield f"it is {record['status']}, and its end or its life says otherwise"
    if (record["status"] == Status.RUNNING) != ("token" in record):
        yield f"it is {record['status']}, and its token says otherwise"
    if kept.answers != (2 if record["status"] == Status.SUCCEEDED else 0):
        yield f"it is {record['status']}, and has {kept.answers} of result and samples"
    if int(record["version"]) != kept.events:
        yield f"its version is {record['version']}, of {kept.events} events"


def _of_leases(leases: Mapping[str, Record], records: Mapping[str, Record]) -> Iterable[tuple[str, str]]:
    held = {lease["job"]: lease["token"] for lease in leases.values()}
    for device, lease in leases.items():
        if records.get(lease["job"], {}).get("token") != lease["token"]:
            yield device, f"{lease['job']} knows nothing of it"
    for job, record in records.items():
        if record["status"] == Status.RUNNING and held.get(job) != record.get("token"):
            yield record.get("device", "none"), f"{job} runs without it"


def _patterns(keys: Keys) -> list[str]:
    return [
        keys.jobs,
        keys.jobs_with_status("*"),
        keys.jobs_of_workload("*"),
        keys.queue("*"),
        keys.leases,
        keys.expiring,
    ]


def _expiring(job: str, record: Record) -> str:
    return f"{job}:{record['status']}:{record['workload']}"


def _job_of(key: str, keys: Keys) -> str | None:
    found = JOB_ID.search(key)
    return found[0] if found and keys.job(found[0]) == key else None
