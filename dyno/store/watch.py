"""Waiting for a job to change: one reader of the stream of all events per process tells everyone who waits."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import redis.asyncio

from dyno.asyncio_tasks import cancel_and_wait
from dyno.errors import StoreUnavailable
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

BLOCK_S = 10.0  # a reader that hears nothing for longer than this and a margin has lost its connection
_MARGIN_S = 5.0
_RECONNECT_S = 0.5
_AT_ONCE = 1000

log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Waiter:
    after_version: int
    told: asyncio.Event = field(default_factory=asyncio.Event)


class Watch:
    """Needs a client without a socket timeout: `async_client(settings, blocking=True)`."""

    def __init__(self, client: redis.asyncio.Redis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._waiters: dict[str, set[_Waiter]] = defaultdict(set)
        self._listeners: dict[str | None, set[asyncio.Event]] = defaultdict(set)
        self._reader: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Start the reader. Redis may be away: it is read as soon as it is back."""
        self._reader = asyncio.create_task(self._read_for_ever(), name="watch")

    async def stop(self) -> None:
        """Stop the reader; those who still wait do so until their time is up."""
        if self._reader is not None:
            await cancel_and_wait(self._reader)
            self._reader = None

    async def changed(self, job_id: str, after_version: int, timeout_s: float) -> bool:
        """Wait until the job's version has passed `after_version`: true; false after `timeout_s`.

        A job that is gone has changed. Raises StoreUnavailable.
        """
        waiter = _Waiter(after_version)
        self._waiters[job_id].add(waiter)  # before the look at the record, so that nothing slips between
        try:
            async with asyncio.timeout(timeout_s):
                while not await self._passed(job_id, after_version):
                    await waiter.told.wait()
                    waiter.told.clear()
            return True
        except TimeoutError:
            return False
        finally:
            self._waiters[job_id].discard(waiter)
            if not self._waiters[job_id]:
                del self._waiters[job_id]

    @contextlib.contextmanager
    def listening(self, job_id: str | None) -> Iterator[asyncio.Event]:
        """Is set whenever something happens to the job, or to any; and where something may have been missed."""
        told = asyncio.Event()
        self._listeners[job_id].add(told)
        try:
            yield told
        finally:
            self._listeners[job_id].discard(told)
            if not self._listeners[job_id]:
                del self._listeners[job_id]

    async def _passed(self, job_id: str, version: int) -> bool:
        """Is asked to the end, though its caller may be canceled: redis-py closes a connection amid whose answer that
        happens, so that callers who hang up would each cost one."""
        return await asyncio.shield(self._has_passed(job_id, version))

    async def _has_passed(self, job_id: str, version: int) -> bool:
        with store_errors():
            current = await self._client.hget(self._keys.job(job_id), "version")
        return current is None or int(current) > version

    async def _read_for_ever(self) -> None:
        last_id: str | None = None
        while True:
            try:
                last_id = await self._newest_id() if last_id is None else last_id
                self._tell_all()  # what happened while nobody read
                while True:
                    last_id = await self._read_once(last_id)
            except (StoreUnavailable, TimeoutError) as error:
                log.debug("events can't be read now: %s", error)
            except Exception:
                log.exception("events can't be read; trying again")
                last_id = None  # what can't be read is left behind
            self._tell_all()  # they look for themselves, and tell their callers
            await asyncio.sleep(_RECONNECT_S)

    async def _newest_id(self) -> str:
        with store_errors():
            entries: Any = await self._client.xrevrange(self._keys.events, count=1)
        return str(entries[0][0]) if entries else "0-0"

    async def _read_once(self, last_id: str) -> str:
        async with asyncio.timeout(BLOCK_S + _MARGIN_S):
            with store_errors():
                streams: Any = await self._client.xread(
                    {self._keys.events: last_id}, count=_AT_ONCE, block=round(BLOCK_S * 1000)
                )
        for _, entries in streams or []:
            for entry_id, fields in entries:
                last_id = entry_id
                self._tell(fields["job"], int(fields["version"]))
        return last_id

    def _tell(self, job_id: str, version: int) -> None:
        for waiter in self._waiters.get(job_id, ()):
            if version > waiter.after_version:
                waiter.told.set()
        for told in (*self._listeners.get(job_id, ()), *self._listeners.get(None, ())):
            told.set()

    def _tell_all(self) -> None:
        for waiters in self._waiters.values():
            for waiter in waiters:
                waiter.told.set()
        for listeners in self._listeners.values():
            for told in listeners:
                told.set()
