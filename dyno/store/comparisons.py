"""Comparisons, kept for as long as the first of their jobs that goes, or is deleted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import redis.asyncio

from dyno.errors import UnknownComparison, UnknownJob
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.comparison import Comparison
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys
from dyno.store.records import stored

COMPARISON_ID = re.compile(r"cmp_[0-9A-HJKMNP-TV-Z]{26}")  # what dyno.models.comparison.new_comparison_id makes
_GONE = -2  # of PTTL


class Comparisons:
    """Those of the viewer. Every method raises StoreUnavailable while Redis is away, full or read-only."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, viewer: Viewer = EVERYBODY) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._viewer = viewer

    async def keep(self, comparison: Comparison) -> None:
        """Written once and never changed, so no script is needed. Raises UnknownJob where a job has just expired.

        It is kept under its `owner`.
        """
        jobs = [each.job for each in comparison.results]
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for job_id in jobs:
                    pipeline.pttl(self._keys.job(job_id))
                lives_ms: list[int] = await pipeline.execute()
        if _GONE in lives_ms:
            raise UnknownJob(f"there is no job {jobs[lives_ms.index(_GONE)]} any more")
        text = comparison.model_dump_json(by_alias=True)
        with store_errors():
            await self._client.set(self._keys.comparison(comparison.id), text, px=_life_ms(lives_ms))

    async def get(self, comparison_id: str) -> Comparison:
        """Raises UnknownComparison, RecordUnreadable."""
        text: Any = None
        if COMPARISON_ID.fullmatch(comparison_id):
            with store_errors():
                text = await self._client.get(self._keys.comparison(comparison_id))
        if text is None:
            raise _unknown(comparison_id)
        found = stored(Comparison.model_validate_json, text, f"the comparison {comparison_id}")
        if not self._viewer.sees(found.owner):
            raise _unknown(comparison_id)
        records = {self._keys.job(each.job) for each in found.results}
        with store_errors():
            there = await self._client.exists(*records)
        if there < len(records):
            raise UnknownComparison(f"a job of {comparison_id} was deleted, and it with that")
        return found


def _unknown(comparison_id: str) -> UnknownComparison:
    return UnknownComparison(f'there is no comparison "{comparison_id[:64]}"')


def _life_ms(lives_ms: Sequence[int]) -> int | None:
    """That of the job that goes first, by PTTL of each; None where none has an end.

    One in its last millisecond has 0, which is an end too, though none that SET takes.
    """
    ends_ms = [ms for ms in lives_ms if ms >= 0]
    return max(1, min(ends_ms)) if ends_ms else None
