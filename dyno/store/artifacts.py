"""Artifacts in the store: upload authorization for a job, and deletion of files that are no longer needed.

Files that no result lists are deleted soon after the job's end. All other files are deleted with the job's record.
"""

import hmac
import math
from collections.abc import Sequence
from typing import Any, Protocol

import redis.asyncio

from dyno.errors import StaleToken
from dyno.models.job import DONE, Status
from dyno.models.result import Artifact, Result
from dyno.settings import Settings
from dyno.store.redis import Keys, store_errors
from dyno.store.stored_results import decompress, execute_raw

LOOK_AGAIN_S = 3600.0  # interval between checks of a live job, or of a job whose files can't be deleted
SETTLED_S = 3600.0  # this long after a job's end, superseded attempts have stopped uploading
_AT_ONCE = 100
_GONE = -2  # PTTL's reply for a missing key; -1 means no expiry


class ArtifactFiles(Protocol):
    """The part of `dyno.artifact_store.ArtifactStore` that deletes files."""

    def drop(self, job_id: str) -> None: ...
    def sweep(self, job_id: str, listed: Sequence[Artifact] | None) -> bool: ...


async def check_token(client: redis.asyncio.Redis, settings: Settings, job_id: str, token: str) -> None:
    """Raises StaleToken unless `token` belongs to the attempt that runs the job now.

    The error is the same for an unknown job: the caller hasn't been authenticated, so the error mustn't reveal
    which jobs exist. As for heartbeats, a lease that ran out is still valid until maintenance ends it.
    """
    with store_errors():
        record: Any = await client.hmget(Keys(settings.namespace).job(job_id), ["status", "token"])
    status, current = record
    same = hmac.compare_digest((current or "").encode(), token.encode())
    if status != Status.RUNNING or not current or not same:
        raise StaleToken(f"this token doesn't hold the lease of {job_id}")


async def note_files_async(client: redis.asyncio.Redis, settings: Settings, job_id: str) -> None:
    """Register the job for file cleanup. Call this before writing its first file: files of unregistered jobs are never
    deleted. Idempotent."""
    with store_errors():
        await client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def note_files(client: redis.Redis, settings: Settings, job_id: str) -> None:
    """`note_files_async`, for workers."""
    with store_errors():
        client.zadd(Keys(settings.namespace).artifacts, {job_id: 0}, nx=True)


def tidy_files(client: redis.Redis, settings: Settings, files: ArtifactFiles) -> list[str]:
    """Check up to 100 jobs that are due, and delete the files that aren't needed any more.

    These are all files of a job without a record, a done job's files that its result doesn't list, and half-written
    files of any job. Returns the ids of the jobs without a record.

    Safe to run in several processes at once. Raises StoreUnavailable, and the errors of `files`. A job with an error is
    checked again later.
    """
    keys, dropped = Keys(settings.namespace), []
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        due: Any = client.zrange(keys.artifacts, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
    for job_id in due:
        with store_errors(), client.pipeline(transaction=False) as pipeline:  # a full Redis refuses every transaction
            pipeline.pttl(keys.job(job_id))
            pipeline.zscore(keys.artifacts, job_id)
            left_ms, due_ms = pipeline.execute()
        if due_ms is None or due_ms > now_ms:  # another process has handled or deleted the job since
            continue
        with store_errors():  # reschedule first, so that a job that fails doesn't block the others
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
                if not client.exists(keys.job(job_id)):  # deleted since the read: `delete` had set an earlier due time
                    client.zadd(keys.artifacts, {job_id: now_ms + LOOK_AGAIN_S * 1000}, xx=True, lt=True)
    return dropped


def _sweep(client: redis.Redis, keys: Keys, files: ArtifactFiles, job_id: str, left_ms: int, now_ms: int) -> float:
    """Sweep the job's files. Return the ms until the next check: the record's expiry if nothing is left to sweep."""
    again_ms = min(LOOK_AGAIN_S * 1000, left_ms if left_ms >= 0 else math.inf)
    with store_errors():
        record: Any = client.hmget(keys.job(job_id), ["status", "finished_at"])
        result: Any = execute_raw(client, "GET", keys.result(job_id))
    status, finished_s = record
    if status not in DONE or finished_s is None:
        files.sweep(job_id, None)
        return again_ms
    settles_in_ms = (float(finished_s) + SETTLED_S) * 1000 - now_ms
    if settles_in_ms > 0:
        return min(settles_in_ms, again_ms)
    swept = files.sweep(job_id, _listed(status, result))
    return max(left_ms, again_ms) if swept else again_ms


def _listed(status: str, result: bytes | None) -> Sequence[Artifact] | None:
    """The files that the result lists; None if this version can't read the result, so that its files are kept."""
    if status != Status.SUCCEEDED:
        return []
    try:
        return Result.model_validate_json(decompress(result or b"")).artifacts
    except ValueError:
        return None
