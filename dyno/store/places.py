"""Places in an index of jobs by time: what a page begins behind, and the cursor that stands for it."""

from __future__ import annotations

import base64
import contextlib
import re
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import redis.asyncio

from dyno.errors import FieldError, InvalidSpec
from dyno.store.keys import JOB_ID

_PLACE = re.compile(rf"(\d{{1,15}}):({JOB_ID.pattern})", re.ASCII)

Place = tuple[int, str]  # a time in ms by Redis' clock, and the job's id: what an index is ordered by


async def places(
    client: redis.asyncio.Redis,
    index: str,
    after: Place | None,
    count: int,
    newer_than: datetime | None = None,
    older_than: datetime | None = None,
) -> list[Place]:
    """The next `count` places behind `after`, fewer only at the end; within a millisecond by descending id."""
    newest: Any = "+inf" if older_than is None else _millis(older_than)
    oldest: Any = "-inf" if newer_than is None else _millis(newer_than)
    if after is not None:
        newest = after[0] if newest == "+inf" else min(newest, after[0])
    found: list[Place] = []
    offset = 0
    while len(found) < count:
        entries: Sequence[Any] = await client.zrange(
            index, newest, oldest, desc=True, byscore=True, offset=offset, num=count, withscores=True
        )
        rows = [(int(score), job_id) for job_id, score in entries]
        found += [row for row in rows if after is None or row < after]
        if len(rows) < count:
            break
        offset += count
    return found[:count]


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def encode_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(f"{place[0]}:{place[1]}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> Place:
    """The place that a cursor stands for. Raises InvalidSpec, pointing at /cursor."""
    with contextlib.suppress(ValueError):  # binascii's and Unicode's errors are ValueErrors
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        if (parts := _PLACE.fullmatch(text)) is not None:
            return int(parts[1]), parts[2]
    wrong = FieldError("/cursor", "invalid-cursor", "this cursor is not one that this list has returned")
    raise InvalidSpec([wrong])
