"""Pages of an index, newest first.

A page costs a bounded number of reads: if few records match, it is short and has a cursor for the next page. A cursor
encodes a time in ms and an id, because every index is sorted by both.
"""

import base64
import contextlib
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

import redis.asyncio

from dyno.errors import FieldError, InvalidSpec
from dyno.store.redis import JOB_ID, SWEEP_ID

T = TypeVar("T")

_POSITION = re.compile(rf"(\d{{1,15}}):({JOB_ID.pattern}|{SWEEP_ID.pattern})", re.ASCII)

IndexPosition = tuple[int, str]  # a time in ms by Redis' clock, and the id of a job or a sweep: an index's sort key


async def read_positions(
    client: redis.asyncio.Redis,
    index: str,
    after: IndexPosition | None,
    count: int,
    newer_than: datetime | None = None,
    older_than: datetime | None = None,
) -> list[IndexPosition]:
    """The `count` positions that follow `after`; fewer only at the index's end. Within a millisecond, ids descend."""
    newest: Any = "+inf" if older_than is None else _millis(older_than)
    oldest: Any = "-inf" if newer_than is None else _millis(newer_than)
    if after is not None:
        newest = after[0] if newest == "+inf" else min(newest, after[0])
    positions: list[IndexPosition] = []
    offset = 0
    while len(positions) < count:
        entries: Sequence[Any] = await client.zrange(
            index, newest, oldest, desc=True, byscore=True, offset=offset, num=count, withscores=True
        )
        rows = [(int(score), job_id) for job_id, score in entries]
        positions += [row for row in rows if after is None or row < after]
        if len(rows) < count:
            break
        offset += count
    return positions[:count]


def _millis(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def encode_cursor(position: IndexPosition) -> str:
    return base64.urlsafe_b64encode(f"{position[0]}:{position[1]}".encode()).decode().rstrip("=")


def decode_cursor(cursor: str) -> IndexPosition:
    """The position that a cursor encodes. Raises InvalidSpec, pointing at /cursor."""
    with contextlib.suppress(ValueError):  # binascii and Unicode errors are ValueErrors
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
        if (parts := _POSITION.fullmatch(text)) is not None:
            return int(parts[1]), parts[2]
    wrong = FieldError("/cursor", "invalid-cursor", "invalid cursor: use the next_cursor of an earlier page")
    raise InvalidSpec([wrong])


_STEP = 50  # minimum number of records in each read after the first, about 10 ms of the event loop
_MOST_STEPS = 10

ReadMatching = Callable[
    [Sequence[IndexPosition]], Awaitable[Sequence[T | None]]
]  # None for a record that doesn't match or is gone


@dataclass(frozen=True)
class RecordPage(Generic[T]):
    data: list[T]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True)
class JobIndex:
    """The key of a ZSET of jobs by time, and the range of times to read; both limits are exclusive."""

    key: str
    after: datetime | None
    before: datetime | None


async def read_page(
    client: redis.asyncio.Redis, index: JobIndex, fitting: ReadMatching[T], cursor: str | None, limit: int
) -> RecordPage[T]:
    """At most `limit` records after the cursor. Raises InvalidSpec for an invalid cursor."""
    position = None if cursor is None else decode_cursor(cursor)
    step = limit + 1
    rows: list[tuple[IndexPosition, T]] = []
    for _ in range(_MOST_STEPS):
        behind = await read_positions(client, index.key, position, step, index.after, index.before)
        records = await fitting(behind)
        rows += [(at, record) for at, record in zip(behind, records, strict=True) if record is not None]
        if len(rows) > limit:
            return _page(rows[:limit], rows[limit - 1][0])
        if len(behind) < step:
            return _page(rows, None)
        position, step = behind[-1], max(_STEP, step)
    return _page(rows, position)


def _page(rows: Sequence[tuple[IndexPosition, T]], goes_on_at: IndexPosition | None) -> RecordPage[T]:
    cursor = None if goes_on_at is None else encode_cursor(goes_on_at)
    return RecordPage([record for _, record in rows], cursor, has_more=cursor is not None)
