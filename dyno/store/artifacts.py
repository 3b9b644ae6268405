"""Artifacts in the store: checks who may upload for a job, and deletes files that nobody needs any more.

A file that is in no result goes soon after the job's end, the others with the job's record.
"""

from __future__ import annotations

import hmac
import math
from collections.abc import Sequence
from typing import Any, Protocol

import redis
import redis.asyncio
from pydantic import ValidationError

from dyno.errors import StaleToken
from dyno.models.job import DONE, Status
from dyno.models.result import Artifact, Result
from dyno.settings import Settings
from dyno.store.redis import Keys, store_errors

LOOK_AGAIN_S = 3600.0  # at a job that isn't done, and at one whose files can't be deleted
SETTLED_S = 3600.0  # after its end, a file of an attempt that lost the job isn't on its way any more
_AT_ONCE = 100
_GONE = -2  # of PTTL: no such key; -1: it has no end


class ArtifactFiles(Protocol):
    """Where the files are: a part of `dyno.artifact_store.ArtifactStore`."""

    def drop(self, job_id: str) -> None: ...
    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool: ...


async def check_token(client: redis.asyncio.Redis, settings: Settings, job_id: str, token: str) -> None:
    """Raises StaleToken unless `token` is that of the attempt that runs the job now: in the same words for a job that
    isn't there, as whoever asks has shown nothing yet that lets them know.

    A lease that ran out but wasn't taken still counts, as it does for a heartbeat.
    """
    with store_errors():
        record: Any = await client.hmget(Keys(settings.namespace).job(job_id), ["status", "token"])
    status, current = record
    same = hmac.compare_digest((current or "").encode(), token.encode())
    if status != Status.RUNNING or not current or not same:
        raise StaleToken(f"this token doesn't hold {job_id}")


async def note_files_async(client: redis.asyncio.Redis, settings: Settings, job_id: str) -> None:
    """Before the first file is written: what isn't noted is never deleted. Repeating it does nothing."""
    with store_errors():
        await client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def note_files(client: redis.Redis, settings: Settings, job_id: str) -> None:
    """`note_files_async`, for workers."""
    with store_errors():
        client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def tidy_files(client: redis.Redis, settings: Settings, files: ArtifactFiles) -> list[str]:
    """Look at up to 100 jobs that are due, and delete what nobody needs: all of a job whose record has gone, what is
    in no result of one that is done, half-written files of any. Returns the jobs whose record had gone.

    Many may do this at the same time. Raises StoreUnavailable, and what `files` raises: that job is tried again later.
    """
    keys, dropped = Keys(settings.namespace), []
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        due: Any = client.zrange(keys.artifacts, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
    for job_id in due:
        with store_errors(), client.pipeline() as pipeline:
            pipeline.pttl(keys.job(job_id))
            pipeline.zscore(keys.artifacts, job_id)
            left_ms, due_ms = pipeline.execute()
        if due_ms is None or due_ms > now_ms:  # dealt with, or deleted, since it was found to be due
            continue
        with store_errors():  # first: one that fails stops no other
            client.zadd(keys.artifacts, {job_id: now_ms + LOOK_AGAIN_S * 1000})
        if left_ms == _GONE:
            files.drop(job_id)
            with store_errors():
                client.zrem(keys.artifacts, job_id)
            dropped.append(job_id)
        else:
            again_ms = now_ms + _sweep(client, keys, files, job_id, left_ms, now_ms) + 1
            with store_errors():
                client.zadd(keys.artifacts, {job_id: again_ms}, xx=True)
                if not client.exists(keys.job(job_id)):  # deleted meanwhile, which had made it due sooner
                    client.zadd(keys.artifacts, {job_id: now_ms + LOOK_AGAIN_S * 1000}, xx=True, lt=True)
    return dropped


def _sweep(client: redis.Redis, keys: Keys, files: ArtifactFiles, job_id: str, left_ms: int, now_ms: int) -> float:
    """In how many ms to look again: at the record's end where nothing more is to be swept."""
    again_ms = min(LOOK_AGAIN_S * 1000, left_ms if left_ms >= 0 else math.inf)
    with store_errors():
        record: Any = client.hmget(keys.job(job_id), ["status", "finished_at"])
        result: Any = client.get(keys.result(job_id))
    status, finished_s = record
    if status not in DONE or finished_s is None:
        files.sweep(job_id, None)
        return again_ms
    settles_in_ms = (float(finished_s) + SETTLED_S) * 1000 - now_ms
    if settles_in_ms > 0:
        return min(settles_in_ms, again_ms)
    swept = files.sweep(job_id, _listed(status, result))
    return max(left_ms, again_ms) if swept else again_ms


def _listed(status: str, result: str | None) -> Sequence[Artifact] | None:
    """The files that the result names; None where it can't be read by this version: then none is deleted for it."""
    if status != Status.SUCCEEDED:
        return []
    try:
        return Result.model_validate_json(result or "").artifacts
    except ValidationError:
        return None
