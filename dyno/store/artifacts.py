"""Who may store files for a job, and when its files go: with its record."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any

import redis
import redis.asyncio

from dyno.errors import StaleToken, UnknownJob
from dyno.job import Status
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

LOOK_AGAIN_S = 3600.0  # at a job that isn't done, whose record has no end yet; and at one whose files can't be deleted
_AT_ONCE = 100


async def check_token(client: redis.asyncio.Redis, settings: Settings, job_id: str, token: str) -> None:
    """Raises StaleToken unless `token` is that of the attempt that runs the job now, UnknownJob where there is none.

    A lease that ran out but wasn't taken still counts, as it does for a heartbeat.
    """
    with store_errors():
        record: Any = await client.hmget(Keys(settings.namespace).job(job_id), ["status", "token"])
    status, current = record
    if status is None:
        raise UnknownJob(f"there is no job {job_id}")
    same = hmac.compare_digest((current or "").encode(), token.encode())
    if status != Status.RUNNING or not current or not same:
        raise StaleToken(f"this token doesn't hold {job_id}, which is {status}")


async def note_files_async(client: redis.asyncio.Redis, settings: Settings, job_id: str) -> None:
    """Before the first file is written: what isn't noted is never deleted. Repeating it does nothing."""
    with store_errors():
        await client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def note_files(client: redis.Redis, settings: Settings, job_id: str) -> None:
    """`note_files_async`, for workers."""
    with store_errors():
        client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def drop_orphans(client: redis.Redis, settings: Settings, drop: Callable[[str], None]) -> list[str]:
    """Call `drop(job_id)` for jobs whose record has gone, up to 100 of them at once; returns those.

    Many may do this at the same time. Raises StoreUnavailable, and what `drop` raises: that job is tried again later.
    """
    keys = Keys(settings.namespace)
    dropped = []
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        due: Any = client.zrange(keys.artifacts, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
    for job_id in due:
        with store_errors():
            left_ms: Any = client.pttl(keys.job(job_id))
            again_ms = left_ms if left_ms >= 0 else LOOK_AGAIN_S * 1000
            client.zadd(keys.artifacts, {job_id: now_ms + again_ms + 1})  # first: one that fails stops no other
        if left_ms == _GONE:
            drop(job_id)
            with store_errors():
                client.zrem(keys.artifacts, job_id)
            dropped.append(job_id)
    return dropped


_GONE = -2  # of PTTL: no such key; -1: it has no end
