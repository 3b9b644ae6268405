"""Pages of an index of jobs, newest first. Each costs a bounded number of reads: where few records fit, it comes back
short, with a cursor that goes on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar

import redis.asyncio

from dyno.store.places import Place, decode_cursor, encode_cursor, places

_STEP = 50  # records read at a time, or one more than the page has: about 10 ms of the event loop
_MOST_STEPS = 10

T = TypeVar("T")
Fitting = Callable[[Sequence[Place]], Awaitable[Sequence[T | None]]]  # null for what is not wanted, or not there


@dataclass(frozen=True)
class Page(Generic[T]):
    data: list[T]
    next_cursor: str | None
    has_more: bool


@dataclass(frozen=True)
class Index:
    """The key of a ZSET of jobs by time, and between which times, both exclusive, records are wanted."""

    key: str
    after: datetime | None
    before: datetime | None


async def page_of(
    client: redis.asyncio.Redis, index: Index, fitting: Fitting[T], cursor: str | None, limit: int
) -> Page[T]:
    """At most `limit` records that come after the cursor's. Raises InvalidSpec for a cursor of another make."""
    place = None if cursor is None else decode_cursor(cursor)
    step = max(_STEP, limit + 1)
    found: list[tuple[Place, T]] = []
    for _ in range(_MOST_STEPS):
        behind = await places(client, index.key, place, step, index.after, index.before)
        records = await fitting(behind)
        found += [(at, record) for at, record in zip(behind, records, strict=True) if record is not None]
        if len(found) > limit:
            return _page(found[:limit], found[limit - 1][0])
        if len(behind) < step:
            return _page(found, None)
        place = behind[-1]
    return _page(found, place)


def _page(found: Sequence[tuple[Place, T]], goes_on_at: Place | None) -> Page[T]:
    cursor = None if goes_on_at is None else encode_cursor(goes_on_at)
    return Page([record for _, record in found], cursor, has_more=cursor is not None)
