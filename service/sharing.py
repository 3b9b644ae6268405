"""Objects that requests share: slots for streams and long polls, pages, and checks of Redis and the artifact store.

Each check runs at most once a second, and each page is rendered at most twice a second, even for many requests.
"""

import asyncio
import contextlib
import math
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Generic, NamedTuple, Self, TypeVar

import anyio.to_thread
import redis.asyncio

from dyno.artifact_store import ArtifactStore
from dyno.errors import ArtifactStoreUnavailable, DynoError, LimitReached, StoreUnavailable, StoreUnfit
from dyno.models.api_key import ApiKey
from dyno.settings import Settings
from dyno.store.redis import check_server_async, loss_note, read_memory_note
from service.problems import TooManyStreams

KEY_PART = 4  # one key may hold at most a quarter of all slots
_RETRY_S = 2  # a guess: a slot may become free at any time


class StreamLimit:
    """Slots for open streams or long polls: `most` in total, a quarter of them per key."""

    def __init__(self, most: int) -> None:
        self._most, self._most_of_a_key = most, max(1, most // KEY_PART)
        self._taken: Counter[str | None] = Counter()

    @contextlib.contextmanager
    def slot(self, key: ApiKey | None) -> Iterator[None]:
        """Hold a slot while the block runs. Raises LimitReached if the key already holds a quarter of the slots, and
        TooManyStreams if all slots are taken.

        Callers without a key have no limit of their own, since the service can't distinguish them.
        """
        name = None if key is None else key.id
        if self._has_its_part(name):
            detail = f"this key has {self._most_of_a_key} open streams, its limit; close one first"
            raise LimitReached(detail, "streams", self._most_of_a_key, None, _RETRY_S)
        if self._taken.total() >= self._most:
            raise TooManyStreams(f"the service has {self._most} open streams, its limit; try again later")
        with self._held(name):
            yield

    @contextlib.contextmanager
    def slot_if_free(self, name: str | None) -> Iterator[bool]:
        """Like `slot` for the key with the id `name`, but yield whether a slot was free instead of raising."""
        free = not self._has_its_part(name) and self._taken.total() < self._most
        with self._held(name) if free else contextlib.nullcontext():
            yield free

    def _has_its_part(self, name: str | None) -> bool:
        return name is not None and self._taken[name] >= self._most_of_a_key

    @contextlib.contextmanager
    def _held(self, name: str | None) -> Iterator[None]:
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


SHARED_S = 0.5  # a dashboard waits longer than this after an event, so its page isn't older than the event


class _Made(NamedTuple):
    began_s: float
    page: asyncio.Future[bytes]


class SharedPages:
    """The pages of the last half second, by name and caller. Requests wait for a page that is being rendered.

    A request that ends must not cancel a page that other requests wait for, so all wait for a shielded future.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[tuple[str, str], _Made] = {}

    async def latest(self, name: str, caller: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """Return the page, or raise the error that occurred while rendering it."""
        now_s = self._clock()
        self._made = {key: made for key, made in self._made.items() if now_s - made.began_s < SHARED_S}
        made = self._made.get((name, caller))
        if made is None:
            made = self._made[name, caller] = _Made(now_s, asyncio.ensure_future(make()))
        return await asyncio.shield(made.page)


FILES_WITHIN_S = 2.0
FRESH_S = 1.0

T = TypeVar("T")


class SharedCheck(Generic[T]):
    """A check whose outcome is used for all requests of the next second. Requests wait for a check that is running.

    A request that ends must not cancel a check that other requests wait for, so all wait for a shielded future.
    """

    def __init__(self, check: Callable[[], Awaitable[T]], clock: Callable[[], float] = time.monotonic) -> None:
        self._check, self._clock = check, clock
        self._began_s = -math.inf
        self._latest: asyncio.Future[T] | None = None

    async def latest(self) -> T:
        """Return the outcome of the latest check, or raise its error."""
        if self._latest is None or (self._latest.done() and self._clock() - self._began_s >= FRESH_S):
            self._began_s = self._clock()
            self._latest = asyncio.ensure_future(self._check())
        return await asyncio.shield(self._latest)


@dataclass(frozen=True)
class StoreReadiness:
    """The reasons why Redis can't keep jobs; if it can, notes for operators."""

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
        """Raises StoreUnfit if the last check, at most a second ago, found that Redis may lose new jobs. If Redis is
        unreachable, this raises nothing, because the caller's next command reports it.
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
    """The artifact store's check, in one thread. A mount that hangs may block it forever; no second thread starts."""

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
