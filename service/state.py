"""What lives as long as the process: opened before the first request, closed after the last.

With the limits on open streams and long polls, in all and for each key, and the estimate of how long a queued job
will have its device.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import redis
import redis.asyncio

from dyno.artifact_store import ArtifactStore
from dyno.celery_app import send_wake_up
from dyno.devices.device import Device
from dyno.errors import InvalidSpec, LimitReached, StoreUnavailable
from dyno.logging import Tracer
from dyno.models.api_key import ApiKey
from dyno.models.spec import Spec
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys, any_key
from dyno.store.artifacts import tidy_files
from dyno.store.eta import Forecasts
from dyno.store.events import ChangeNotifier, EventReader
from dyno.store.jobs import Jobs
from dyno.store.maintenance import Maintenance
from dyno.store.redis import async_client, check_server, sync_client
from dyno.webhook_delivery import webhook_deliverer
from dyno.workloads import can_run, validate_params
from dyno.workloads.contract import Workload
from service.anonymous_access import KeyGate, needs_keys
from service.problems import TooManyStreams


def expected_s(workloads: Mapping[str, Workload], spec: Spec, device: Device) -> float | None:
    """All runs of all that it runs in turns, with nothing learned yet; null where it can't run there.

    Also null of a job that another version has queued: whoever claims it says what is wrong with it.
    """
    times_s = [_of_arm(workloads, arm, device) for arm in spec.arms]
    known = [time_s for time_s in times_s if time_s is not None]
    return sum(known) if len(known) == len(times_s) else None


def _of_arm(workloads: Mapping[str, Workload], arm: Spec, device: Device) -> float | None:
    workload = workloads.get(arm.workload)
    if workload is None:
        return None
    try:
        params = validate_params(workload, arm.params, arm.replicas, arm.framework)
    except InvalidSpec:
        return None
    if arm.framework not in device.frameworks or not can_run(workload, params, arm.replicas, arm.framework, device):
        return None
    return workload.estimate(params, device, arm.replicas, arm.framework).in_all_s(arm.measure)


KEY_PART = 4  # of all that there are, one key has a quarter at most
_RETRY_S = 2  # nobody knows when one of them ends


class StreamLimit:
    def __init__(self, most: int) -> None:
        self._most, self._most_of_a_key = most, max(1, most // KEY_PART)
        self._taken: Counter[str | None] = Counter()

    @contextlib.contextmanager
    def one(self, key: ApiKey | None) -> Iterator[None]:
        """Taken while the block runs. Raises LimitReached for the key's own part, TooManyStreams where all are taken.

        Where no key is needed nobody can be told from others, and only the whole is bounded.
        """
        name = None if key is None else key.id
        if self._has_its_part(name):
            detail = f"{self._most_of_a_key} streams of this key are open, which is the limit; close one first"
            raise LimitReached(detail, "streams", self._most_of_a_key, None, _RETRY_S)
        if self._taken.total() >= self._most:
            raise TooManyStreams(f"{self._most} streams are open, which is the limit; try again later")
        with self._one(name):
            yield

    @contextlib.contextmanager
    def one_if_free(self, name: str | None) -> Iterator[bool]:
        """The same for the id of a key: whether it was free, and is taken while the block runs."""
        free = not self._has_its_part(name) and self._taken.total() < self._most
        with self._one(name) if free else contextlib.nullcontext():
            yield free

    def _has_its_part(self, name: str | None) -> bool:
        return name is not None and self._taken[name] >= self._most_of_a_key

    @contextlib.contextmanager
    def _one(self, name: str | None) -> Iterator[None]:
        self._taken[name] += 1
        try:
            yield
        finally:
            self._taken[name] -= 1
            if not self._taken[name]:
                del self._taken[name]


log = logging.getLogger(__name__)

# Of so many connections one may be held back in a long poll, or read a stream: the others are for who is answered.
POLLS_OF, STREAMS_OF = 2, 4


@dataclass(frozen=True)
class State:
    """One per process; a route's has the `jobs` that its caller may see. `stopping` is set when the server begins to
    end: long polls then answer at once. `checking`: whoever looks at the artifact store's health; `streams`,
    `polls`: the answers that stay open, and those that are held back."""

    settings: Settings
    workloads: Mapping[str, Workload]
    client: redis.asyncio.Redis
    jobs: Jobs
    keys: ApiKeys
    gate: KeyGate
    watch: ChangeNotifier
    feed: EventReader
    artifacts: ArtifactStore
    stopping: asyncio.Event
    checking: anyio.CapacityLimiter
    streams: StreamLimit
    polls: StreamLimit
    traces: Tracer


def check_store(settings: Settings) -> None:
    """Raises StoreUnfit for a server that would lose jobs. One that is away is no reason not to start: it comes back,
    and until then every request is answered 503."""
    client = sync_client(settings)
    try:
        for complaint in check_server(client, settings):
            log.warning("not ready: %s", complaint)
    except StoreUnavailable as error:
        log.warning("the store is not there yet: %s", error.detail)
    finally:
        client.close()


def has_keys(settings: Settings) -> bool:
    """Whether a key was ever made. True also where the store is away: then nobody is served before it is back."""
    try:
        with sync_client(settings) as client:
            return any_key(client, settings)
    except StoreUnavailable:
        return True


@asynccontextmanager
async def opened(
    settings: Settings,
    workloads: Mapping[str, Workload],
    artifacts: ArtifactStore,
    stopping: asyncio.Event,
    traces: Tracer,
) -> AsyncIterator[State]:
    """The clients, the reader of events and the upkeep thread, for as long as the block runs."""
    await asyncio.to_thread(check_store, settings)
    client = async_client(settings)
    blocking = async_client(settings, blocking=True)
    watch = ChangeNotifier(blocking, settings)
    # Not in workers too: what they do beside a benchmark is in its figures, and the folder may be the API's own.
    chores = {"tidying artifacts": partial(tidy_files, settings=settings, files=artifacts)}
    upkeep = Maintenance(settings, partial(send_wake_up, settings), chores)
    await watch.start()
    upkeep.start()
    try:
        forecasts = Forecasts(client, settings, partial(expected_s, workloads))
        jobs = Jobs(client, settings, forecasts.latest)
        keys, feed = ApiKeys(client, settings), EventReader(client, settings)
        gate = KeyGate(keys, always_closed=needs_keys(settings))
        checking, connections = anyio.CapacityLimiter(1), settings.max_connections
        streams = StreamLimit(min(settings.max_streams, max(1, connections // STREAMS_OF)))
        polls = StreamLimit(max(1, connections // POLLS_OF))
        parts = (jobs, keys, gate, watch, feed, artifacts, stopping, checking, streams, polls, traces)
        async with webhook_deliverer(client, settings):
            yield State(settings, workloads, client, *parts)
    finally:
        await asyncio.to_thread(upkeep.stop)
        await watch.stop()
        await blocking.aclose()
        await client.aclose()
