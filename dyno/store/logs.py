"""What the runners of a job have printed: its last 256 KiB, in the pieces that came with its worker's heartbeats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import redis.asyncio

from dyno.errors import UnknownJob
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.job import DONE
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

_PIECES_AT_ONCE = 1000  # a runner that prints a character every 2 s has left thousands after an hour or two
_LEFT_OUT = "[what came before isn't kept]\n"


@dataclass(frozen=True)
class LogPart:
    """`following`: the number of the piece behind these. `done`: the job is, so that there won't be any."""

    text: str
    following: int
    done: bool


async def read_log(
    client: redis.asyncio.Redis, settings: Settings, job_id: str, start: int = 0, viewer: Viewer = EVERYBODY
) -> LogPart:
    """The pieces from number `start` on, as far as they are kept. Raises UnknownJob, StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            # first: once it is done, no piece comes after those found then
            pipeline.hmget(keys.job(job_id), "status", "owner")
            pipeline.hmget(keys.log(job_id), "first", "next")
            (status, owner), (first, following) = await pipeline.execute()
        if status is None or not viewer.sees(owner):
            raise UnknownJob(f"there is no job {job_id}")
        numbers = range(max(start, int(first or 0)), int(following or 0))
        texts: list[Any] = []
        for at in range(0, len(numbers), _PIECES_AT_ONCE):
            texts += await client.hmget(keys.log(job_id), *map(str, numbers[at : at + _PIECES_AT_ONCE]))
    pieces = [text for text in texts if text is not None]  # null: dropped since
    missing = len(pieces) < int(following or 0) - start
    return LogPart((_LEFT_OUT if missing else "") + "".join(pieces), int(following or 0), status in DONE)
