"""Webhook deliveries: the queue for the deliverer, and the API's view of each delivery and its attempts.

The deliverer leases a due delivery for a limited time and settles it with the outcome of the attempt. An attempt counts
even if it is never settled.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import redis.asyncio

from dyno.errors import UnknownDelivery
from dyno.models.api_key import EVERYBODY, Viewer
from dyno.models.job import new_token
from dyno.models.webhook import DELIVERY_ID, Attempt, Delivery, DeliveryStatus, Ended, delivery_of, job_of
from dyno.settings import Settings
from dyno.store.list_pages import IndexPosition, JobIndex, RecordPage, decode_cursor, read_page
from dyno.store.records import to_datetime
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, index_errors, store_errors, unless_wrong_type

ATTEMPTS_KEPT = 24  # attempts whose outcome is shown; redelivery can add more
_SETTLE_WITHIN_S = 15.0  # from the attempt's timeout to the lease's end; if the lease ends too early, Dyno sends twice


class LeasedDelivery(NamedTuple):
    """`tried`: the number of attempts in this series, including this one. `receiver`: host and port. `owner`: "" for
    none. `at_s`: when the lease began, by Redis' clock.
    """

    job_id: str
    token: str
    tried: int
    receiver: str
    owner: str
    at_s: float


class DeliveryQueue:
    """Both methods raise StoreUnavailable while Redis is unreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._keys = Keys(settings.namespace)
        self._lease_ms = round((settings.webhook_timeout_s + _SETTLE_WITHIN_S) * 1000)
        self._most = len(settings.webhook_retry_s) + 1
        self._take = client.register_script(SCRIPT_SOURCES[Script.DELIVER])
        self._settle = client.register_script(SCRIPT_SOURCES[Script.SETTLE])

    async def take(self, receivers: Sequence[str] = (), owners: Sequence[str] = ()) -> LeasedDelivery | None:
        """Lease a due delivery that isn't for one of `receivers` or of one of `owners`. None if none is due.

        Owners take turns: the owner served longest ago comes first. So do the receivers of an owner. An
        attempt counts even if it is never settled; the next attempt follows once the lease is over.
        """
        token = new_token()
        given: list[Any] = [token, self._lease_ms, self._most, ATTEMPTS_KEPT, len(receivers), *receivers, *owners]
        keys = [self._keys.webhooks_due, self._keys.webhooks_ready]
        reply: Any = ["again"]
        while reply[0] == "again":
            with store_errors():
                reply = await self._take(keys=keys, args=[self._keys.namespace, *given])
        if reply[0] != "taken":
            return None
        _, job_id, tried, receiver, owner, at_s = reply
        return LeasedDelivery(job_id, token, int(tried), receiver, owner, float(at_s))

    async def settle(self, taken: LeasedDelivery, ended: Ended, status: DeliveryStatus, again_in_s: float = 0) -> bool:
        """Record the attempt's outcome and the delivery's new status.

        Returns False, and writes nothing, if the lease is over.
        """
        keys = [self._keys.webhook(taken.job_id), self._keys.webhooks_due]
        given: list[Any] = [
            taken.job_id,
            taken.token,
            ended.outcome,
            ended.model_dump_json(),
            status,
            round(again_in_s * 1000),
        ]
        with store_errors():
            reply: Any = await self._settle(keys=keys, args=[self._keys.namespace, *given])
        return bool(reply[0] == "settled")


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryQuery:
    """Filters of a list, combined with AND; None matches all. The times are the jobs' ends, and are exclusive."""

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
    """The viewer's deliveries. Every method raises StoreUnavailable while Redis is unreachable."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, viewer: Viewer = EVERYBODY) -> None:
        self._client, self._keys = client, Keys(settings.namespace)
        self._viewer = viewer
        self._redeliver = client.register_script(SCRIPT_SOURCES[Script.REDELIVER])

    async def page(self, query: DeliveryQuery, cursor: str | None, limit: int) -> RecordPage[Delivery]:
        """One page of deliveries, newest first. If few match, it is short and has a cursor for the next page.
        Raises InvalidSpec for an invalid cursor.
        """
        if query.job is not None:
            if cursor is not None:
                decode_cursor(cursor)
            return RecordPage(await self._of_job(query), None, has_more=False)

        async def fitting(behind: Sequence[IndexPosition]) -> list[Delivery | None]:
            read = await self._read([job_id for _, job_id in behind])
            return [delivery if delivery and query.fits(delivery) else None for delivery in read]

        index = JobIndex(self._index(), query.created_after, query.created_before)
        async with index_errors(self._client, self._keys):
            return await read_page(self._client, index, fitting, cursor, limit)

    async def redeliver(self, delivery_id: str) -> Delivery:
        """Schedule another attempt at once, whatever the delivery's status. Raises UnknownDelivery."""
        await self._get(delivery_id)
        job_id = job_of(delivery_id)
        with store_errors():
            reply: Any = await self._redeliver(
                keys=[self._keys.webhook(job_id), self._keys.webhooks_due], args=[self._keys.namespace, job_id]
            )
        if reply[0] == "unknown":
            raise _unknown_delivery(delivery_id)
        return await self._get(delivery_id)

    async def _get(self, delivery_id: str) -> Delivery:
        if DELIVERY_ID.fullmatch(delivery_id) is None:
            raise _unknown_delivery(delivery_id)
        [delivery] = await self._read([job_of(delivery_id)])
        if delivery is None or not self._viewer.sees(delivery.owner):
            raise _unknown_delivery(delivery_id)
        return delivery

    def _index(self) -> str:
        if self._viewer.sees_all or self._viewer.owner is None:
            return self._keys.webhooks
        return self._keys.webhooks_of_owner(self._viewer.owner)

    async def _of_job(self, query: DeliveryQuery) -> list[Delivery]:
        deliveries = await self._read([query.job or ""])
        return [
            delivery
            for delivery in deliveries
            if delivery and query.fits(delivery) and self._viewer.sees(delivery.owner)
        ]

    async def _read(self, job_ids: list[str]) -> list[Delivery | None]:
        """The deliveries; None if one is gone or can't be read: an unreadable record mustn't hide all others."""
        with store_errors():
            async with self._client.pipeline(transaction=False) as pipeline:
                for job_id in job_ids:
                    pipeline.hgetall(self._keys.webhook(job_id))
                    pipeline.zscore(self._keys.webhooks_due, job_id)
                replies = [unless_wrong_type(reply) for reply in await pipeline.execute(raise_on_error=False)]
        rows = zip(job_ids, replies[::2], replies[1::2], strict=True)
        return [_read(job_id, record, due_ms) if record else None for job_id, record, due_ms in rows]


def _read(job_id: str, record: Mapping[str, str], due_ms: float | None) -> Delivery | None:
    try:
        return _delivery(job_id, record, due_ms)
    except (ValueError, KeyError) as error:  # damaged, or with values of a newer version
        log.warning("skipping the delivery for %s, which can't be read: %s", job_id, type(error).__name__)
        return None


def _delivery(job_id: str, record: Mapping[str, str], due_ms: float | None) -> Delivery:
    made = int(record["attempts"])
    return Delivery(
        id=delivery_of(job_id),
        job=job_id,
        status=DeliveryStatus(record["status"]),
        attempts_made=made,
        attempts=[_attempt(record, number) for number in range(max(1, made - ATTEMPTS_KEPT + 1), made + 1)],
        next_attempt_at=_next_attempt_at(record, due_ms),
        created_at=to_datetime(record["created_at"]),
        **{name: record[name] for name in ("type", "url", "owner") if name in record},
    )


def _next_attempt_at(record: Mapping[str, str], due_ms: float | None) -> datetime | None:
    """The scheduled time of the next attempt. It is in the past if the delivery is due and waits for its turn."""
    at_ms = record.get("ready_ms") if due_ms is None else due_ms
    waits = record["status"] == DeliveryStatus.PENDING and "token" not in record
    return to_datetime(str(float(at_ms) / 1000)) if waits and at_ms is not None else None


def _attempt(record: Mapping[str, str], number: int) -> Attempt:
    text = record.get(f"end:{number}")
    return Attempt(
        at=to_datetime(record[f"at:{number}"]), ended=None if text is None else Ended.model_validate_json(text)
    )


def _unknown_delivery(delivery_id: str) -> UnknownDelivery:
    return UnknownDelivery(f'there is no delivery "{delivery_id[:64]}"')
