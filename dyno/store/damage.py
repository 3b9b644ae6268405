"""Make keys again that have a value of a wrong type: the data were damaged, or edited by hand.

A script that meets such a value deletes it, notes the name in `Keys.damaged`, and goes on (`_ledger.lua`). The API's
maintenance looks for values that no script has met, and makes all noted keys again from the records. What no record has
is lost: cordons, events, logs and counts.
"""

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any

import redis

from dyno.models.job import Status
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.maintenance import audit_indexes
from dyno.store.redis import JOB_ID, SWEEP_ID, Keys, store_errors

log = logging.getLogger(__name__)

_SCANNED_AT_ONCE, _AT_ONCE = 1000, 100
_OWNER = re.compile(r"(key_\w+)?")


def _lists(keys: Keys) -> dict[str, str]:
    """The keys that one name has, each with the type of its value."""
    zsets = [keys.jobs, *map(keys.jobs_with_status, Status), keys.webhooks, keys.webhooks_due, keys.webhooks_ready]
    zsets += [keys.leases, keys.expiring, keys.artifacts, keys.sweeps, keys.sweeps_due, keys.schedules_due]
    sets = [keys.damaged, keys.queues, keys.resting, keys.cordoned, keys.workers, keys.sweeps_watched, keys.owners]
    found = dict.fromkeys(zsets, "zset") | dict.fromkeys([*sets, keys.schedule_owners], "set")
    return found | dict.fromkeys([keys.labeled, keys.counts, keys.audit], "hash") | {keys.events: "stream"}


def _of_queues(keys: Keys, queues: Collection[str]) -> dict[str, str]:
    found = dict.fromkeys(map(keys.queue, queues), "zset")
    found |= dict.fromkeys([*map(keys.passed, queues), *map(keys.classes, queues), *map(keys.turns, queues)], "hash")
    return found | dict.fromkeys([*map(keys.woken, queues), *map(keys.indexed, queues)], "string")


def _wrong(client: redis.Redis, expected: Mapping[str, str]) -> list[str]:
    with client.pipeline(transaction=False) as pipeline:
        for name in expected:
            pipeline.type(name)
        types: list[Any] = pipeline.execute()
    return [name for name, found in zip(expected, types, strict=True) if found not in ("none", expected[name])]


def _records(client: redis.Redis, key_of: Callable[[str], str], ids: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """The fields of each record. Leaves out damaged records: whoever uses one gets the error."""
    damaged = _wrong(client, {key_of(each): "hash" for each in ids})
    return ((each, client.hgetall(key_of(each))) for each in ids if key_of(each) not in damaged)


def _delete(client: redis.Redis, keys: Keys, names: Sequence[str]) -> None:
    if keys.damaged in names:
        client.delete(keys.damaged)
    for name in names:
        client.sadd(keys.damaged, name)  # first: a process that dies here leaves the name
        if name != keys.damaged:
            client.delete(name)


def repair_damage(client: redis.Redis, settings: Settings) -> list[str]:
    """Make the keys again that had a value of a wrong type. Returns their names.

    Deletes such values; scripts delete those that they meet. Then reads all records, and puts them into the
    indexes. Idempotent. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    with store_errors():
        _delete(client, keys, _wrong(client, _lists(keys)))  # first: the names of queues follow from them
        queues = fleet.served_queues(client, settings).union(map(str, client.smembers(keys.queues)))
        _delete(client, keys, _wrong(client, _of_queues(keys, queues)))
        names = sorted(map(str, client.smembers(keys.damaged)))
        if names:
            log.error("values of wrong types were deleted, and are made again from the records: %s", ", ".join(names))
            _make_again(client, settings, names)
            client.srem(keys.damaged, *names)
    return names


def _make_again(client: redis.Redis, settings: Settings, names: Collection[str]) -> None:
    keys = Keys(settings.namespace)
    for job_ids in _ids(client, keys.job(""), JOB_ID):
        audit_indexes(client, settings, job_ids)
        if keys.artifacts in names:
            client.zadd(keys.artifacts, dict.fromkeys(job_ids, 0), nx=True)  # each may have files
    for sweep_ids in _ids(client, keys.sweep(""), SWEEP_ID):
        for sweep_id, fields in _records(client, keys.sweep, sweep_ids):
            owner, created_ms = fields.get("owner"), float(fields.get("created_at", 0)) * 1000
            for index in (keys.sweeps, keys.sweeps_due, *([keys.sweeps_of_owner(owner)] if owner else [])):
                client.zadd(index, {sweep_id: created_ms}, nx=True)
            client.sadd(keys.sweeps_watched, sweep_id)
    for owners in _ids(client, keys.schedules(""), _OWNER):
        for owner, stored in _records(client, keys.schedules, owners):
            for name, text in stored.items():
                if upcoming := json.loads(text).get("next_firings"):
                    due_ms = datetime.fromisoformat(upcoming[0]).timestamp() * 1000
                    client.zadd(keys.schedules_due, {f"{owner}:{name}": due_ms}, nx=True)
            client.sadd(keys.schedule_owners, owner)


def _ids(client: redis.Redis, before: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """What follows `before` in the names of keys, if all of it fits the pattern: some at a time."""
    glob = re.sub(r"([\]\[*?^\\-])", r"\\\1", before) + "*"
    ids = (str(name).removeprefix(before) for name in client.scan_iter(match=glob, count=_SCANNED_AT_ONCE))
    yield from iter(lambda: list(islice((each for each in ids if pattern.fullmatch(each)), _AT_ONCE)), [])
