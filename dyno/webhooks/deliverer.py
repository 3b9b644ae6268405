"""Whoever delivers: takes what is due from the store, a few at once, and tells it how each attempt ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import redis.asyncio
from pydantic import SecretStr

from dyno.delivery import DeliveryStatus, Ended, Outcome, delivery_of
from dyno.errors import RecordUnreadable, StoreUnavailable, UnknownJob
from dyno.settings import Settings
from dyno.store.jobs import Jobs
from dyno.store.outbox import Outbox, Taken
from dyno.tasks import stopped
from dyno.webhooks.event import text_of
from dyno.webhooks.sender import Sender
from dyno.webhooks.signing import secret_of, signed

MOST_AT_ONCE = 32
MOST_FOR_ONE = 4  # receiver: one that is slow leaves places for the others
JITTER = 0.1  # so that what failed together doesn't come back together
GONE = 410

log = logging.getLogger(__name__)


class Deliverer:
    """Runs until it is cancelled. What it was at then is tried again by whoever comes next, as after its death."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, secret: SecretStr, sender: Sender) -> None:
        self._settings, self._secret, self._sender = settings, secret, sender
        self._outbox, self._jobs = Outbox(client, settings), Jobs(client, settings)
        self._running: Counter[str] = Counter()
        self._freed = asyncio.Event()
        self._failing = False

    async def run(self) -> None:
        async with asyncio.TaskGroup() as attempts:
            while True:
                await self._begin(attempts)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.webhook_every_s):
                        await self._freed.wait()
                self._freed.clear()

    async def _begin(self, attempts: asyncio.TaskGroup) -> None:
        """As many attempts as there is room for."""
        try:
            while self._running.total() < MOST_AT_ONCE:
                busy = [name for name, number in self._running.items() if number >= MOST_FOR_ONE]
                taken = await self._outbox.take(busy)
                if taken is None:
                    break
                self._running[taken.receiver] += 1
                attempts.create_task(self._attempt(taken))
            self._failing = False
        except Exception as error:  # noqa: BLE001 - whatever it is, what is due must go out when it is over
            if not self._failing:
                log.warning("no webhook is delivered for now: %s: %s", type(error).__name__, error)
            self._failing = True

    async def _attempt(self, taken: Taken) -> None:
        try:
            await self._make(taken)
        except StoreUnavailable as error:
            log.warning("how a delivery for %s ended can't be told, so it is tried again: %s", taken.job_id, error)
        except Exception:
            log.exception("a delivery for %s failed", taken.job_id)
        finally:
            self._running[taken.receiver] -= 1
            self._freed.set()

    async def _make(self, taken: Taken) -> None:
        try:
            job = await self._jobs.get(taken.job_id)
        except (UnknownJob, RecordUnreadable):  # gone since it was taken; or logged, and tried again by a newer one
            return
        if job.spec.webhook is None:
            raise RuntimeError("a delivery of a job without a webhook")
        text = text_of(job)
        headers = signed(secret_of(self._secret, job.owner), delivery_of(job.id), taken.at_s, text)
        ended = await self._sender.send(job.spec.webhook.url, text, headers)
        status, again_in_s = self._next(taken, ended)
        if status is DeliveryStatus.FAILED:
            log.warning("the webhook of %s was not delivered: %s", job.id, ended.outcome)
        await self._outbox.settle(taken, ended, status, again_in_s)

    def _next(self, taken: Taken, ended: Ended) -> tuple[DeliveryStatus, float]:
        if ended.outcome is Outcome.DELIVERED:
            return DeliveryStatus.DELIVERED, 0
        pauses_s = self._settings.webhook_retry_s
        if ended.status_code == GONE or taken.tried > len(pauses_s):
            return DeliveryStatus.FAILED, 0
        return DeliveryStatus.PENDING, pauses_s[taken.tried - 1] * random.uniform(1 - JITTER, 1 + JITTER)


@asynccontextmanager
async def delivering(client: redis.asyncio.Redis, settings: Settings) -> AsyncIterator[None]:
    """A deliverer beside the block; none without a secret to sign with."""
    if settings.webhook_secret is None:
        yield
        return
    task = asyncio.create_task(Deliverer(client, settings, settings.webhook_secret, Sender(settings)).run())
    try:
        yield
    finally:
        await stopped(task)
