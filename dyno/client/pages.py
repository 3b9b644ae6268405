"""Lists that come in pages, followed as far as a caller wants."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Generic, TypeVar

import httpx
from pydantic import BaseModel

from dyno.client.answers import read
from dyno.client.steps import Steps, asked, sent
from dyno.job import Stored
from dyno.rows import ResultRow, ResultRows

LIMIT = 50
_MOST = 200  # of one page, as the API has it

M = TypeVar("M", bound=BaseModel)
Filters = Mapping[str, str | datetime | None]


class Page(Stored, Generic[M]):
    """One page; `next_cursor` is null at the end."""

    data: list[M]
    next_cursor: str | None = None


def browsed(kind: type[Page[M]], path: str, filters: Filters, limit: int | None) -> Steps[list[M]]:
    """The first `limit`, null for all, over as many pages as that takes: one may be short and not the last."""
    found: list[M] = []
    wanted = _parameters(filters)
    while True:
        page = yield from asked(kind, "GET", path, params=wanted | {"limit": _left(limit, len(found))})
        found += page.data
        if page.next_cursor is None or (limit is not None and len(found) >= limit):
            return found
        wanted["cursor"] = page.next_cursor


def rows_of(filters: Filters, limit: int | None) -> Steps[list[ResultRow]]:
    """Of `/v1/results`, whose pages count jobs: `limit` of those that have a row."""
    found: list[ResultRow] = []
    wanted = _parameters(filters)
    while True:
        jobs = len({row.job for row in found})
        answer = yield from sent("GET", "/v1/results", params=wanted | {"limit": _left(limit, jobs)})
        page = read(ResultRows, answer).root
        found += page
        cursor = httpx.URL(answer.links.get("next", {}).get("url", "")).params.get("cursor")
        if cursor is None or (limit is not None and len({row.job for row in found}) >= limit):
            return found
        wanted["cursor"] = cursor


def _left(limit: int | None, found: int) -> int:
    return _MOST if limit is None else min(_MOST, limit - found)


def _parameters(filters: Filters) -> dict[str, str | int]:
    given = {name: value for name, value in filters.items() if value is not None}
    return {name: each.isoformat() if isinstance(each, datetime) else each for name, each in given.items()}
