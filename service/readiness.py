"""Checks of Redis and the artifact store, made once a second at most, however many requests ask for them."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, Self, TypeVar

import anyio.to_thread
import redis.asyncio

from dyno.artifact_store import ArtifactStore
from dyno.errors import ArtifactStoreUnavailable, DynoError, StoreUnavailable, StoreUnfit
from dyno.settings import Settings
from dyno.store.redis import check_server_async, loss_note, read_memory_note

FILES_WITHIN_S = 2.0
FRESH_S = 1.0

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """A check whose outcome serves all requests of the next second. Requests during a check wait for its outcome.

    A request that ends must not cancel a check that other requests wait for, so all wait for a shielded future.
    """

    def __init__(self, check: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check, self._clock = check, clock
        self._began_s = -math.inf
        self._latest: asyncio.Future[T] | None = None

    async def latest(self) -> T:
        """The outcome of the latest check, or its error."""
        if self._latest is None or (self._latest.done() and self._clock() - self._began_s >= FRESH_S):
            self._began_s = self._clock()
            self._latest = asyncio.ensure_future(self._check())
        return await asyncio.shield(self._latest)


@dataclass(frozen=True)
class StoreReadiness:
    """Why Redis can't keep jobs; if it can, what operators should change or know all the same."""

    errors: Sequence[DynoError]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class ReadinessChecks:
    store: SharedCheck[StoreReadiness]
    artifact_store: SharedCheck[Sequence[DynoError]]

    @classmethod
    def of(cls, client: redis.asyncio.Redis, settings: Settings, artifacts: ArtifactStore) -> Self:
        return cls(SharedCheck(partial(_check_store, client, settings)), SharedCheck(_ArtifactCheck(artifacts)))

    async def require_fit(self) -> None:
        """Raises StoreUnfit if Redis may lose new jobs. The check began at most a second ago, or is under way. If Redis
        is unreachable, it raises nothing: the call that follows reports that.
        """
        unfit = [fault.detail for fault in (await self.store.latest()).errors if isinstance(fault, StoreUnfit)]
        if unfit:
            raise StoreUnfit(f"nothing new is accepted, because Redis may lose it: {'; '.join(unfit)}")


async def _check_store(client: redis.asyncio.Redis, settings: Settings) -> StoreReadiness:
    try:
        if faults := await check_server_async(client, settings):
            return StoreReadiness(faults)
        notes = await read_memory_note(client), loss_note(settings)
        return StoreReadiness([], [note for note in notes if note])
    except (StoreUnavailable, StoreUnfit) as error:
        return StoreReadiness([error])


class _ArtifactCheck:
    """Checks on one thread of its own. A mount that hangs may block it for ever; then no further thread starts."""

    def __init__(self, artifacts: ArtifactStore) -> None:
        self._artifacts, self._thread = artifacts, anyio.CapacityLimiter(1)
        self._running: asyncio.Future[None] | None = None

    async def __call__(self) -> Sequence[DynoError]:
        if self._running is None:
            self._running = asyncio.ensure_future(self._run())
        done, _ = await asyncio.wait([self._running], timeout=FILES_WITHIN_S)
        if not done:
            return [ArtifactStoreUnavailable(f"the artifact store didn't respond within {FILES_WITHIN_S:g} s")]
        ended, self._running = self._running, None
        try:
            ended.result()
        except ArtifactStoreUnavailable as error:
            return [error]
        return []

    async def _run(self) -> None:
        await anyio.to_thread.run_sync(self._artifacts.check, abandon_on_cancel=True, limiter=self._thread)
