"""Deliveries for callers: which there are, what came of each attempt, and one that is to be tried again."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import redis.asyncio

from dyno.errors import UnknownDelivery
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.webhook import DELIVERY_ID, Attempt, Delivery, DeliveryStatus, Ended, delivery_of, job_of
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys
from dyno.store.outbox import KEPT
from dyno.store.pages import Index, Page, page_of
from dyno.store.places import Place, decode_cursor
from dyno.store.records import moment
from dyno.store.scripts import SOURCES, Script

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class WantedDeliveries:
    """All conditions hold together; null means any. Times, of when their jobs ended, are exclusive."""

    status: DeliveryStatus | None = None
    job: str | None = None
    created_after: datetime | None = None
    created_before: datetime | None = None

    def fits(self, delivery: Delivery) -> bool:
        return (
            (self.status is None or delivery.status is self.status)
            and (self.job is None or delivery.job == self.job)
            and (self.created_after is None or delivery.created_at > self.created_after)
            and (self.created_before is None or delivery.created_at < self.created_before)
        )


class Deliveries:
    """Those of the viewer. Every method raises StoreUnavailable while Redis is away."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, viewer: Viewer = EVERYBODY) -> None:
        self._client, self._keys = client, Keys(settings.namespace)
        self._viewer = viewer
        self._redeliver = client.register_script(SOURCES[Script.REDELIVER])

    async def page(self, wanted: WantedDeliveries, cursor: str | None, limit: int) -> Page[Delivery]:
        """Newest first. Where few fit it comes back short, with a cursor that goes on. Raises InvalidSpec for a cursor
        of another make."""
        if wanted.job is not None:
            if cursor is not None:
                decode_cursor(cursor)
            return Page(await self._of_job(wanted), None, has_more=False)

        async def fitting(behind: Sequence[Place]) -> list[Delivery | None]:
            read = await self._read([job_id for _, job_id in behind])
            return [each if each and wanted.fits(each) else None for each in read]

        index = Index(self._index(), wanted.created_after, wanted.created_before)
        with store_errors():
            return await page_of(self._client, index, fitting, cursor, limit)

    async def redeliver(self, delivery_id: str) -> Delivery:
        """Have it tried again now, whatever became of it. Raises UnknownDelivery."""
        await self._get(delivery_id)
        job_id = job_of(delivery_id)
        with store_errors():
            reply: Any = await self._redeliver(
                keys=[self._keys.webhook(job_id), self._keys.webhooks_due], args=[self._keys.namespace, job_id]
            )
        if reply[0] == "unknown":
            raise _unknown(delivery_id)
        return await self._get(delivery_id)

    async def _get(self, delivery_id: str) -> Delivery:
        if DELIVERY_ID.fullmatch(delivery_id) is None:
            raise _unknown(delivery_id)
        [found] = await self._read([job_of(delivery_id)])
        if found is None or not self._viewer.sees(found.owner):
            raise _unknown(delivery_id)
        return found

    def _index(self) -> str:
        if self._viewer.sees_all or self._viewer.owner is None:
            return self._keys.webhooks
        return self._keys.webhooks_of_owner(self._viewer.owner)

    async def _of_job(self, wanted: WantedDeliveries) -> list[Delivery]:
        found = await self._read([wanted.job or ""])
        return [each for each in found if each and wanted.fits(each) and self._viewer.sees(each.owner)]

    async def _read(self, job_ids: list[str]) -> list[Delivery | None]:
        """Null for one that went with its job, or can't be read: one of those must not hide all the others."""
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for job_id in job_ids:
                    pipeline.hgetall(self._keys.webhook(job_id))
                    pipeline.zscore(self._keys.webhooks_due, job_id)
                replies: list[Any] = await pipeline.execute()
        rows = zip(job_ids, replies[::2], replies[1::2], strict=True)
        return [_read(job_id, record, due_ms) if record else None for job_id, record, due_ms in rows]


def _read(job_id: str, record: Mapping[str, str], due_ms: float | None) -> Delivery | None:
    try:
        return _delivery(job_id, record, due_ms)
    except (ValueError, KeyError) as error:  # of a model, or of a newer version's words
        log.warning("the delivery for %s can't be read: %s", job_id, type(error).__name__)
        return None


def _delivery(job_id: str, record: Mapping[str, str], due_ms: float | None) -> Delivery:
    made = int(record["attempts"])
    return Delivery(
        id=delivery_of(job_id),
        job=job_id,
        status=DeliveryStatus(record["status"]),
        attempts_made=made,
        attempts=[_attempt(record, number) for number in range(max(1, made - KEPT + 1), made + 1)],
        next_attempt_at=_next_attempt_at(record, due_ms),
        created_at=moment(record["created_at"]),
        **{name: record[name] for name in ("type", "url", "owner") if name in record},
    )


def _next_attempt_at(record: Mapping[str, str], due_ms: float | None) -> datetime | None:
    """In the past where it is due and waits for its turn."""
    at_ms = record.get("ready_ms") if due_ms is None else due_ms
    waits = record["status"] == DeliveryStatus.PENDING and "token" not in record
    return moment(str(float(at_ms) / 1000)) if waits and at_ms is not None else None


def _attempt(record: Mapping[str, str], number: int) -> Attempt:
    text = record.get(f"end:{number}")
    return Attempt(at=moment(record[f"at:{number}"]), ended=None if text is None else Ended.model_validate_json(text))


def _unknown(delivery_id: str) -> UnknownDelivery:
    return UnknownDelivery(f'there is no delivery "{delivery_id[:64]}"')
