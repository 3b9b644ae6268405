"""Rebuild keys whose values have a wrong type, because the data were damaged or edited by hand.

A script that reads such a value deletes it, adds the key's name to `Keys.damaged`, and continues (`_ledger.lua`). The
API's maintenance looks for values that no script has read, and rebuilds all keys in `Keys.damaged` from the records.
Cordons, events, logs and counts are lost, because no record holds them.
"""

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from itertools import islice
from typing import Any

import redis

from dyno.models.job import Status
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.maintenance import audit_indexes, take_turn
from dyno.store.redis import JOB_ID, SCRIPT_SOURCES, SWEEP_ID, Keys, Script, Single, is_wrong_type, store_errors

log = logging.getLogger(__name__)

_SCANNED_AT_ONCE, _AT_ONCE = 1000, 100
_OWNER, _ANY = re.compile(r"(key_\w+)?"), re.compile(".*", re.DOTALL)
_REPAIRED_WITHIN_MS = 60_000  # later, another process may start a repair; 10,000 records take about 1 s


def _lists(keys: Keys) -> list[str]:
    """The names of the keys with a fixed name, and of the index of each status."""
    singles = [getattr(keys, name) for name, row in keys.rows().items() if isinstance(row, Single)]
    return [*singles, *map(keys.jobs_with_status, Status)]


def _of_queues(keys: Keys, queues: Collection[str]) -> list[str]:
    families = (keys.queue, keys.passed, keys.classes, keys.turns, keys.woken)
    return [family(queue) for family in families for queue in queues]


def remove_damaged(client: redis.Redis, keys: Keys, names: Iterable[str]) -> None:
    """Delete the values of wrong types, and list their keys in `Keys.damaged`. Values of the origin "record" stay."""
    given = [part for name in names if (kind := keys.deletable_type(name)) for part in (name, kind)]
    if given:
        client.register_script(SCRIPT_SOURCES[Script.REMOVE])(args=[keys.namespace, *given])


def repair_damage(client: redis.Redis, settings: Settings) -> list[str]:
    """Rebuild the keys whose values had a wrong type. Returns their names.

    Deletes the wrong values that no script has deleted. Then one process reads all records, and puts them into the
    indexes. Until it has finished, other processes return no names. Idempotent. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    with store_errors():
        remove_damaged(client, keys, _lists(keys))  # first, because they hold the names of queues
        queues = fleet.served_queues(client, settings).union(map(str, client.smembers(keys.queues)))
        remove_damaged(client, keys, _of_queues(keys, queues))
        if not client.exists(keys.damaged) or not take_turn(client, keys.repairing, _REPAIRED_WITHIN_MS):
            return []
        for endings in _ids(client, f"{keys.namespace}:", _ANY):
            remove_damaged(client, keys, (f"{keys.namespace}:{ending}" for ending in endings))
        names = sorted(map(str, client.smembers(keys.damaged)))
        log.error("values of wrong types were deleted and are rebuilt from the records: %s", ", ".join(names))
        _make_again(client, settings, names)
        client.srem(keys.damaged, *names)
        client.delete(keys.repairing)
    return names


def _make_again(client: redis.Redis, settings: Settings, names: Collection[str]) -> None:
    keys = Keys(settings.namespace)
    for job_ids in _ids(client, keys.job(""), JOB_ID):
        audit_indexes(client, settings, job_ids)
        if keys.artifacts in names:
            client.zadd(keys.artifacts, dict.fromkeys(job_ids, 0), nx=True)  # each of these jobs may have files
    for sweep_ids in _ids(client, keys.sweep(""), SWEEP_ID):
        for sweep_id in sweep_ids:
            with _damaged_skipped(keys.sweep(sweep_id)):
                _list_sweep(client, keys, sweep_id)
    for owners in _ids(client, keys.schedules(""), _OWNER):
        for owner in owners:
            with _damaged_skipped(keys.schedules(owner)):
                _list_schedules(client, keys, owner)


def _list_sweep(client: redis.Redis, keys: Keys, sweep_id: str) -> None:
    fields: Any = client.hgetall(keys.sweep(sweep_id))
    owner, created_ms = fields.get("owner"), float(fields.get("created_at", 0)) * 1000
    for index in (keys.sweeps, keys.sweeps_due, *([keys.sweeps_of_owner(owner)] if owner else [])):
        client.zadd(index, {sweep_id: created_ms}, nx=True)
    client.sadd(keys.sweeps_watched, sweep_id)


def _list_schedules(client: redis.Redis, keys: Keys, owner: str) -> None:
    stored: Any = client.hgetall(keys.schedules(owner))
    client.sadd(keys.schedule_owners, owner)
    for name, text in stored.items():
        with _damaged_skipped(f"{keys.schedules(owner)} {name}"):
            if upcoming := json.loads(text).get("next_firings"):
                due_ms = datetime.fromisoformat(upcoming[0]).timestamp() * 1000
                client.zadd(keys.schedules_due, {f"{owner}:{name}": due_ms}, nx=True)


@contextmanager
def _damaged_skipped(name: str) -> Iterator[None]:
    """Skip a damaged record. Requests that use the record get the error."""
    try:
        yield
    except (redis.ResponseError, ValueError, TypeError, AttributeError, LookupError) as error:
        if isinstance(error, redis.ResponseError) and not is_wrong_type(error):
            raise
        log.error("%s is damaged: %s", name, error)


def _ids(client: redis.Redis, before: str, pattern: re.Pattern[str]) -> Iterator[list[str]]:
    """The parts of key names after the prefix `before` that match `pattern`, in lists of up to 100."""
    glob = re.sub(r"([\]\[*?^\\-])", r"\\\1", before) + "*"
    names = (str(name).removeprefix(before) for name in client.scan_iter(match=glob, count=_SCANNED_AT_ONCE))
    ids = filter(pattern.fullmatch, names)
    yield from iter(lambda: list(islice(ids, _AT_ONCE)), [])
