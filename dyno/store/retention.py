"""Retention: delete the oldest done jobs while their number or Redis' memory exceeds a limit.

Each owner has an index of its done jobs, by the time when they were stored. Above `max_done`, jobs of the owner with
the most jobs are deleted; above `max_store_bytes`, jobs of the owner whose jobs take the most bytes. If none of these
jobs may be deleted, no other owner's job is deleted.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from typing import Any

import redis

from dyno.models.job import DONE, Status
from dyno.settings import Settings
from dyno.store.artifacts import SETTLED_S
from dyno.store.damage import remove_damaged
from dyno.store.redis import RESERVED_BYTES, SCRIPT_SOURCES, Keys, Script, store_errors, unless_wrong_type

_RECORDS_AT_ONCE = 1000
_DROPPED_AT_ONCE, _CANDIDATES = 50, 200
_WEBHOOK_ENDED = (None, "delivered", "failed")
_SIZED, _JOB_BYTES = 50, 6_000  # number of an owner's jobs whose sizes are read; bytes of a job without its large parts
_PAGES = 20  # pages of candidates: if the first 4000 have pending webhooks, no job is deleted until some are delivered
_NOT_JOBS = ("mem_clients_normal", "mem_aof_buffer")  # memory of pending replies and writes


def drop_oldest(client: redis.Redis, settings: Settings) -> Mapping[str, int]:
    """Delete done jobs beyond the limits, at most 1000 a call. A key's jobs that were stored first are deleted first.

    First delete the jobs of each key beyond its own limit, or `key_stored_jobs`. Then, while more than `max_done` jobs
    are stored or Redis uses and reserves more than `max_store_bytes`, delete jobs of the key that has the most jobs or
    bytes. Returns the number of deleted jobs by limit. Raises StoreUnavailable.

    A job whose webhook is neither delivered nor failed stays, unless it was redelivered. Safe to run in several
    processes at once.
    """
    keys, dropped = Keys(settings.namespace), Counter[str]()
    with store_errors():
        own_limits = _own_limits(client, keys)
        if not own_limits and settings.key_stored_jobs is settings.max_done is settings.max_store_bytes is None:
            return dropped
        stored = _stored_by_owner(client, keys)
        for owner in filter(None, list(stored)):  # jobs without a key have no such limit
            most = own_limits.get(owner, settings.key_stored_jobs)
            while most is not None and stored[owner] > most and dropped.total() < _RECORDS_AT_ONCE:
                number = min(stored[owner] - most, _DROPPED_AT_ONCE)
                if not (deleted := _delete_oldest(client, keys, owner, number, most, "1")):
                    break
                stored[owner] -= deleted
                dropped["key_stored_jobs"] += deleted
        sizes: Mapping[str, float] = {}  # all jobs count as 1 unless memory is the limit
        while dropped.total() < _RECORDS_AT_ONCE and stored and (over := _exceeded(client, keys, settings)):
            limit, surplus = over
            if limit == "max_store_bytes" and not sizes:
                sizes = _mean_sizes(client, keys, stored)
            totals = Counter({owner: number * sizes.get(owner, 1.0) for owner, number in stored.items()})
            (owner, most), (_, second) = [*totals.most_common(2), ("", 0)][:2]
            number = min(surplus, max(1, int((most - second) / sizes.get(owner, 1.0))), _DROPPED_AT_ONCE)
            keeping = settings.max_done if limit == "max_done" else None
            deleted = _delete_oldest(client, keys, owner, number, keeping or 0)
            if not deleted:
                break
            stored[owner] -= deleted
            dropped[limit] += deleted
        for limit, number in dropped.items():
            client.hincrby(keys.counts, f"dropped {limit}", number)
    return dropped


def _own_limits(client: redis.Redis, keys: Keys) -> Mapping[str, int]:
    """`stored_jobs` of each key that has this limit."""
    owners: list[Any] = client.zrange(keys.api_keys, 0, -1)
    with client.pipeline(transaction=False) as pipeline:
        for owner in owners:
            pipeline.hget(keys.api_key(owner), "stored_jobs")
        limits = [unless_wrong_type(reply) for reply in pipeline.execute(raise_on_error=False)]
    return {owner: int(most) for owner, most in zip(owners, limits, strict=True) if most}


def _stored_by_owner(client: redis.Redis, keys: Keys) -> Counter[str]:
    """The number of done jobs of each owner that has any."""
    done: int = sum(client.zcard(keys.jobs_with_status(status)) for status in DONE)

    def counted() -> Counter[str]:
        owners: list[Any] = sorted(client.smembers(keys.owners))
        remove_damaged(client, keys, map(keys.done_of_owner, owners))
        with client.pipeline(transaction=False) as pipeline:
            for owner in owners:
                pipeline.zcard(keys.done_of_owner(owner))
            return +Counter(dict(zip(owners, pipeline.execute(), strict=True)))

    stored = counted()
    if stored.total() < done:  # an index was damaged or lost
        for status in DONE:
            for start in count(0, _RECORDS_AT_ONCE):
                ids: Any = client.zrange(keys.jobs_with_status(status), start, start + _RECORDS_AT_ONCE - 1)
                if not ids:
                    break
                _index_done(client, keys, status, ids)
        stored = counted()
    return stored


def _mean_sizes(client: redis.Redis, keys: Keys, owners: Iterable[str]) -> Mapping[str, float]:
    """About how many bytes a done job of each owner takes, estimated from the owner's oldest done jobs. A job's large
    parts are the result, the samples and the log. Parts that are damaged, or that this user may not read, count as 0.
    """
    sizes = dict[str, float]()
    for owner in owners:
        ids: Any = client.zrange(keys.done_of_owner(owner), 0, _SIZED - 1)
        with client.pipeline(transaction=False) as pipeline:
            for job_id in ids:
                pipeline.strlen(keys.result(job_id))
                pipeline.strlen(keys.samples(job_id))
                pipeline.hget(keys.log(job_id), "bytes")
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        large = sum(int(reply or 0) for reply in replies if not isinstance(reply, redis.ResponseError))
        sizes[owner] = _JOB_BYTES + large / max(1, len(ids))
    return sizes


def _index_done(client: redis.Redis, keys: Keys, status: Status, ids: Sequence[str]) -> None:
    """Add done jobs to the indexes of `Keys.done_of_owner`, by the time of their end. Removes jobs without a record
    from the index of their status; otherwise each later call would read all jobs again.
    """
    with client.pipeline(transaction=False) as pipeline:
        for job_id in ids:
            pipeline.hmget(keys.job(job_id), "owner", "finished_at")
        records: list[Any] = pipeline.execute()
        ended_jobs = [
            (job_id, owner or "", float(end)) for job_id, (owner, end) in zip(ids, records, strict=True) if end
        ]
        for job_id, owner, ended_s in ended_jobs:
            pipeline.sadd(keys.owners, owner)
            pipeline.zadd(keys.done_of_owner(owner), {job_id: int(ended_s * 1000)}, nx=True)
        pipeline.execute()
        for job_id, _, _ in ended_jobs:
            pipeline.exists(keys.job(job_id))
        remaining: list[Any] = pipeline.execute()
        for (job_id, owner, _), is_there in zip(ended_jobs, remaining, strict=True):
            if not is_there:  # deleted since the read
                pipeline.zrem(keys.done_of_owner(owner), job_id)
        for job_id, (owner, end) in zip(ids, records, strict=True):
            if owner is end is None:
                pipeline.zrem(keys.jobs_with_status(status), job_id)
        pipeline.execute()


def _exceeded(client: redis.Redis, keys: Keys, settings: Settings) -> tuple[str, int] | None:
    """The limit that is exceeded, and how many jobs to delete before the next check."""
    if settings.max_done is None and settings.max_store_bytes is None:
        return None
    done: int = sum(client.zcard(keys.jobs_with_status(status)) for status in DONE)
    if settings.max_done is not None and done > settings.max_done:
        return "max_done", done - settings.max_done
    if settings.max_store_bytes is not None:
        memory: Any = client.info("memory")
        live: int = sum(client.zcard(keys.jobs_with_status(status)) for status in (Status.QUEUED, Status.RUNNING))
        used = memory["used_memory"] - sum(memory.get(name, 0) for name in _NOT_JOBS)
        if used + live * RESERVED_BYTES > settings.max_store_bytes:
            return "max_store_bytes", max(1, done // 10)  # a few large jobs may take all of the memory
    return None


def _may_go(delivery: Any) -> bool:
    """Whether the job may be deleted. `delivery`: its webhook's status and redelivery, or an error if damaged."""
    return not isinstance(delivery, Exception) and (delivery[0] in _WEBHOOK_ENDED or delivery[1] is not None)


def _delete_oldest(client: redis.Redis, keys: Keys, owner: str, number: int, keeping: int, *of_owner: str) -> int:
    """Delete up to `number` jobs of the owner, but leave at least `keeping` done jobs of all owners (with `of_owner`:
    of this owner), even if other processes delete jobs, too. Considers later jobs only if the first 200 must stay.
    """
    delete, index = client.register_script(SCRIPT_SOURCES[Script.DELETE]), keys.done_of_owner(owner)
    for start in range(0, _PAGES * _CANDIDATES, _CANDIDATES):
        candidates: list[Any] = client.zrange(index, start, start + _CANDIDATES - 1)
        if not candidates:
            break
        with client.pipeline(transaction=False) as pipeline:
            for job_id in candidates:
                pipeline.hmget(keys.webhook(job_id), "status", "redelivered")
            deliveries: list[Any] = pipeline.execute(raise_on_error=False)  # a damaged delivery mustn't keep other jobs
            oldest = [job_id for job_id, reply in zip(candidates, deliveries, strict=True) if _may_go(reply)][:number]
            for job_id in oldest:
                args = [keys.namespace, job_id, round(SETTLED_S * 1000), keeping, *of_owner]
                delete(keys=[keys.job(job_id), keys.artifacts], args=args, client=pipeline)
            replies = [reply[0] for reply in pipeline.execute()]
        gone = [job_id for job_id, reply in zip(oldest, replies, strict=True) if reply == "unknown"]
        if gone:  # expired
            client.zrem(index, *gone)
        if deleted := replies.count("deleted"):
            return deleted
    return 0
