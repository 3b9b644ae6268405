"""Whoever delivers: takes what is due from the store, a few at once, and tells it how each attempt ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
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
MOST_FOR_OWNER = 8  # API key: one with many slow receivers leaves places for the others
MOST_FOR_ONE = 4  # receiver: one that is slow leaves places for the others
JITTER = 0.1  # so that what failed together doesn't come back together
GONE = 410
_OWN_FAULT = "Dyno could not make this attempt; its log says why"

log = logging.getLogger(__name__)


class Deliverer:
    """Runs until it is cancelled. What it was at then is tried again by whoever comes next, as after its death."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings, secret: SecretStr, sender: Sender) -> None:
        self._settings, self._secret, self._sender = settings, secret, sender
        self._outbox, self._jobs = Outbox(client, settings), Jobs(client, settings)
        self._running: Counter[str] = Counter()  # attempts by receiver
        self._of_owners: Counter[str] = Counter()
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
                busy = _at(self._running, MOST_FOR_ONE)
                greedy = [owner for owner in _at(self._of_owners, MOST_FOR_OWNER) if owner]  # nobody may have all
                taken = await self._outbox.take(receivers=busy, owners=greedy)
                if taken is None:
                    break
                self._running[taken.receiver] += 1
                self._of_owners[taken.owner] += 1
                attempts.create_task(self._attempt(taken))
            self._failing = False
        except Exception as error:  # noqa: BLE001 - whatever it is, what is due must go out when it is over
            if not self._failing:
                log.warning("no webhook is delivered for now: %s: %s", type(error).__name__, error)
            self._failing = True

    async def _attempt(self, taken: Taken) -> None:
        try:
            await self._settle(taken, await self._make(taken))
        except UnknownJob:  # gone since it was taken, and its delivery with it
            pass
        except StoreUnavailable as error:
            log.warning("how a delivery for %s ended can't be told, so it is tried again: %s", taken.job_id, error)
        except Exception:
            log.exception("how a delivery for %s ended can't be told", taken.job_id)
        finally:
            self._running -= Counter((taken.receiver,))  # which forgets those that have none left
            self._of_owners -= Counter((taken.owner,))
            self._freed.set()

    async def _make(self, taken: Taken) -> Ended:
        """Whatever goes wrong is an end, too: the next attempt waits for its pause and doesn't follow at once."""
        began_s = time.monotonic()
        try:
            return await self._send(taken)
        except (StoreUnavailable, UnknownJob):
            raise
        except Exception as error:
            log.exception("a delivery for %s failed", taken.job_id)
            detail = str(error) if isinstance(error, RecordUnreadable) else _OWN_FAULT
            return Ended(outcome=Outcome.ERROR, detail=detail, duration_s=round(time.monotonic() - began_s, 3))

    async def _send(self, taken: Taken) -> Ended:
        job = await self._jobs.get(taken.job_id)
        if job.spec.webhook is None:
            raise RuntimeError("a delivery of a job without a webhook")
        text = text_of(job)
        headers = signed(secret_of(self._secret, job.owner), delivery_of(job.id), taken.at_s, text)
        return await self._sender.send(job.spec.webhook.url, text, headers, taken.owner)

    async def _settle(self, taken: Taken, ended: Ended) -> None:
        status, again_in_s = self._next(taken, ended)
        if status is DeliveryStatus.FAILED:
            log.warning("the webhook of %s was not delivered: %s", taken.job_id, ended.outcome)
        await self._outbox.settle(taken, ended, status, again_in_s)

    def _next(self, taken: Taken, ended: Ended) -> tuple[DeliveryStatus, float]:
        if ended.outcome is Outcome.DELIVERED:
            return DeliveryStatus.DELIVERED, 0
        pauses_s = self._settings.webhook_retry_s
        if ended.status_code == GONE or taken.tried > len(pauses_s):
            return DeliveryStatus.FAILED, 0
        return DeliveryStatus.PENDING, pauses_s[taken.tried - 1] * random.uniform(1 - JITTER, 1 + JITTER)


def _at(running: Counter[str], bound: int) -> list[str]:
    """Those that have as many attempts as one may have."""
    return [name for name, number in running.items() if number >= bound]


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
