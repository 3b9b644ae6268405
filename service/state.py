"""What lives as long as the service: opened before the first request, closed after the last."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

import anyio
import redis
import redis.asyncio

from dyno.artifact_store import ArtifactStore
from dyno.celery_app import send_wake_up
from dyno.errors import StoreUnavailable
from dyno.logging import Tracer
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys, any_key
from dyno.store.artifacts import tidy_files
from dyno.store.eta import Forecasts
from dyno.store.events import ChangeNotifier, EventReader
from dyno.store.jobs import Jobs
from dyno.store.maintenance import Maintenance
from dyno.store.redis import async_client, check_server, sync_client
from dyno.webhook_delivery import webhook_deliverer
from dyno.workloads.contract import Workload
from service.address import needs_keys
from service.expected import expected_s
from service.gate import Gate
from service.places import Places

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
    gate: Gate
    watch: ChangeNotifier
    feed: EventReader
    artifacts: ArtifactStore
    stopping: asyncio.Event
    checking: anyio.CapacityLimiter
    streams: Places
    polls: Places
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
        gate = Gate(keys, always_closed=needs_keys(settings))
        checking, connections = anyio.CapacityLimiter(1), settings.max_connections
        streams = Places(min(settings.max_streams, max(1, connections // STREAMS_OF)))
        polls = Places(max(1, connections // POLLS_OF))
        parts = (jobs, keys, gate, watch, feed, artifacts, stopping, checking, streams, polls, traces)
        async with webhook_deliverer(client, settings):
            yield State(settings, workloads, client, *parts)
    finally:
        await asyncio.to_thread(upkeep.stop)
        await watch.stop()
        await blocking.aclose()
        await client.aclose()
