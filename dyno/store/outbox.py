"""Deliveries for whoever makes them: one that is due is taken for a while, and given back with how it ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis.asyncio

from dyno.models.job import new_token
from dyno.models.webhook import DeliveryStatus, Ended
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys
from dyno.store.scripts import SOURCES, Script

KEPT = 24  # attempts whose end is shown; redelivering makes more
_LEASE = 2  # times what an attempt may last, so that there is as long again for the store to be told


class Taken(NamedTuple):
    """`tried`: how many attempts are in this row, with this one. `receiver`: host and port. `owner`: "" is nobody.
    `at_s`: when it was taken, by Redis' clock."""

    job_id: str
    token: str
    tried: int
    receiver: str
    owner: str
    at_s: float


class Outbox:
    """Both methods raise StoreUnavailable while Redis is away."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._keys = Keys(settings.namespace)
        self._lease_ms = round(_LEASE * settings.webhook_timeout_s * 1000)
        self._most = len(settings.webhook_retry_s) + 1
        self._take = client.register_script(SOURCES[Script.DELIVER])
        self._settle = client.register_script(SOURCES[Script.SETTLE])

    async def take(self, receivers: Sequence[str] = (), owners: Sequence[str] = ()) -> Taken | None:
        """A delivery that is due, but for those receivers and of those owners; nobody else gets it meanwhile. All
        others have their turns: the owner that was served longest ago, and of its receivers likewise.

        An attempt whose end nobody tells counts all the same, and is followed by the next one once its time is over.
        """
        token = new_token()
        given: list[Any] = [token, self._lease_ms, self._most, KEPT, len(receivers), *receivers, *owners]
        keys = [self._keys.webhooks_due, self._keys.webhooks_ready]
        reply: Any = ["again"]
        while reply[0] == "again":
            with store_errors():
                reply = await self._take(keys=keys, args=[self._keys.namespace, *given])
        if reply[0] != "taken":
            return None
        _, job_id, tried, receiver, owner, at_s = reply
        return Taken(job_id, token, int(tried), receiver, owner, float(at_s))

    async def settle(self, taken: Taken, ended: Ended, status: DeliveryStatus, again_in_s: float = 0) -> bool:
        """Note how the attempt ended and what is to become of the delivery. False: it isn't the taker's any more."""
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
