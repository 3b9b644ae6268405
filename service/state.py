"""Objects that live as long as the process: opened before the first request, closed after the last.

The module also limits open streams and long polls, in total and per key, lets requests share pages, and
estimates how long a queued job will occupy its device.
"""

import asyncio
import contextlib
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple, Self

import redis

from dyno import celery_app, errors, webhook_delivery
from dyno.artifact_store import ArtifactStore
from dyno.bench import contract
from dyno.bench.registry import resolve
from dyno.logging import AUDIT_LOG, log_event
from dyno.models.api_key import ApiKey, Viewer
from dyno.models.device import Device
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store import eta, events, sweeps
from dyno.store.api_keys import ApiKeys, any_key
from dyno.store.artifacts import tidy_files
from dyno.store.damage import repair_damage
from dyno.store.fleet import RecentDevices
from dyno.store.jobs import Jobs
from dyno.store.maintenance import Maintenance
from dyno.store.pipelining import PipeliningRedis
from dyno.store.redis import async_client, blocking_client, check_server, sync_client
from dyno.store.retention import drop_oldest
from dyno.tracing import Tracer
from service import admission, anonymous_access, problems
from service.readiness import ReadinessChecks


def expected_s(workloads: Mapping[str, contract.Workload], spec: Spec, device: Device) -> float | None:
    """The estimated time of all runs of all variants, without any history; None if the job can't run on `device`.

    Also None for a job that another version queued and this one can't read: the worker that claims it reports why.
    """
    try:
        arms = [resolve(arm, workloads) for arm in spec.arms]
    except (errors.UnknownWorkload, errors.InvalidSpec):
        return None
    if not all(arm.spec.framework in device.frameworks and arm.can_run(device) for arm in arms):
        return None
    return sum(arm.estimate(device).in_all_s(arm.spec.measure) for arm in arms)


KEY_PART = 4  # one key may hold at most a quarter of all slots
_RETRY_S = 2  # a guess: a slot may become free at any time


class StreamLimit:
    """Slots for open streams or long polls: `most` in total, a quarter of them per key."""

    def __init__(self, most: int) -> None:
        self._most, self._most_of_a_key = most, max(1, most // KEY_PART)
        self._taken: Counter[str | None] = Counter()

    @contextlib.contextmanager
    def slot(self, key: ApiKey | None) -> Iterator[None]:
        """Hold a slot while the block runs. Raises LimitReached if the key has its share, TooManyStreams if all slots
        are taken.

        Callers without a key share the total, since the service can't distinguish them.
        """
        name = None if key is None else key.id
        if self._has_its_part(name):
            detail = f"this key has {self._most_of_a_key} open streams, its limit; close one first"
            raise errors.LimitReached(detail, "streams", self._most_of_a_key, None, _RETRY_S)
        if self._taken.total() >= self._most:
            raise problems.TooManyStreams(f"the service has {self._most} open streams, its limit; try again later")
        with self._held(name):
            yield

    @contextlib.contextmanager
    def slot_if_free(self, name: str | None) -> Iterator[bool]:
        """As `slot`, for the id of a key: yield whether a slot was free; if so, hold it while the block runs."""
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


SHARED_S = 0.5  # a dashboard waits longer after an event, so its page isn't older than the event


class _Made(NamedTuple):
    began_s: float
    page: asyncio.Future[bytes]


class SharedPages:
    """The pages of the last half second, by name and caller. Requests while a page is made wait for it.

    A request that ends must not cancel a page that other requests wait for, so all wait for a shielded future.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._made: dict[tuple[str, str], _Made] = {}

    async def latest(self, name: str, caller: str, make: Callable[[], Awaitable[bytes]]) -> bytes:
        """The page, or the error of making it."""
        now_s = self._clock()
        self._made = {key: made for key, made in self._made.items() if now_s - made.began_s < SHARED_S}
        made = self._made.get((name, caller))
        if made is None:
            made = self._made[name, caller] = _Made(now_s, asyncio.ensure_future(make()))
        return await asyncio.shield(made.page)


log = logging.getLogger(__name__)

# One in two connections may be a long poll, and one in four a stream: the others are for requests served at once.
POLLS_OF, STREAMS_OF = 2, 4


@dataclass(frozen=True)
class State:
    """One per process; each route gets a copy whose `jobs` holds what its caller may see.

    `stopping` is set when the server begins to shut down: long polls then respond at once. `streams` and `polls` limit
    open streams and long polls.
    """

    settings: Settings
    workloads: Mapping[str, contract.Workload]
    client: PipeliningRedis
    jobs: Jobs
    devices: RecentDevices
    keys: ApiKeys
    gate: anonymous_access.KeyGate
    watch: events.ChangeNotifier
    feed: events.EventReader
    artifacts: ArtifactStore
    stopping: asyncio.Event
    readiness: ReadinessChecks
    streams: StreamLimit
    polls: StreamLimit
    pages: SharedPages
    traces: Tracer
    admissions: admission.RecentAdmissions

    def seen_by(self, viewer: Viewer) -> Self:
        """This state, with the jobs that `viewer` may see."""
        jobs = self.jobs.seen_by(viewer)
        return self if jobs is self.jobs else replace(self, jobs=jobs)


def check_store(settings: Settings) -> None:
    """Raises StoreUnfit for a server that would lose jobs.

    The API starts while Redis is unreachable: it answers every request with 503 until Redis is back.
    """
    client = sync_client(settings)
    try:
        for fault in check_server(client, settings):
            log.warning("the store is not ready: %s", fault.detail)
    except errors.StoreUnavailable as error:
        log.warning("the store is not reachable yet: %s", error.detail)
    finally:
        client.close()


def has_keys(settings: Settings) -> bool:
    """Whether a key was ever created. Also True while the store is unreachable: the API then serves no request."""
    try:
        with sync_client(settings) as client:
            return any_key(client, settings)
    except errors.StoreUnavailable:
        return True


def _drop_oldest(settings: Settings, client: redis.Redis) -> None:
    for limit, jobs in drop_oldest(client, settings).items():
        log_event(AUDIT_LOG, logging.INFO, "jobs-dropped", {"limit": limit, "jobs": jobs})


@asynccontextmanager
async def opened(
    settings: Settings,
    workloads: Mapping[str, contract.Workload],
    artifacts: ArtifactStore,
    stopping: asyncio.Event,
    traces: Tracer,
) -> AsyncIterator[State]:
    """Keep the Redis clients, the event reader and the maintenance thread open while the block runs."""
    await asyncio.to_thread(check_store, settings)
    client = async_client(settings)
    blocking = blocking_client(settings)
    watch = events.ChangeNotifier(blocking, settings)
    maintenance = _maintenance(settings, artifacts)
    await watch.start()
    maintenance.start()
    try:
        forecasts = eta.Forecasts(client, settings, partial(expected_s, workloads))
        keys, connections = ApiKeys(client, settings), settings.max_connections
        state = State(
            settings=settings,
            workloads=workloads,
            client=client,
            jobs=Jobs(client, settings, forecasts.latest),
            devices=RecentDevices(client, settings),
            keys=keys,
            gate=anonymous_access.KeyGate(keys, always_closed=anonymous_access.needs_keys(settings)),
            watch=watch,
            feed=events.EventReader(client, settings),
            artifacts=artifacts,
            stopping=stopping,
            readiness=ReadinessChecks.of(client, settings, artifacts),
            streams=StreamLimit(min(settings.max_streams, max(1, connections // STREAMS_OF))),
            polls=StreamLimit(max(1, connections // POLLS_OF)),
            pages=SharedPages(),
            traces=traces,
            admissions=admission.RecentAdmissions(),
        )
        async with webhook_delivery.webhook_deliverer(client, settings):
            yield state
    finally:
        await asyncio.to_thread(maintenance.stop)
        await watch.stop()
        await blocking.aclose()
        await client.aclose()


def _maintenance(settings: Settings, artifacts: ArtifactStore) -> Maintenance:
    """Maintenance with the chores of the API alone.

    Workers don't do them: anything they do beside a benchmark affects its figures, and only the API may have the folder
    of artifacts.
    """
    chores: dict[str, Callable[[redis.Redis], object]] = {
        "repairing damaged keys": partial(repair_damage, settings=settings),
        "dropping the oldest jobs": partial(_drop_oldest, settings),
        "tidying artifacts": partial(tidy_files, settings=settings, files=artifacts),
        "dropping sweeps without jobs": partial(sweeps.drop_empty, settings=settings),
    }
    return Maintenance(settings, partial(celery_app.send_wake_up, settings), chores)
