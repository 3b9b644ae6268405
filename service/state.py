"""Objects that live as long as the process: opened before the first request, closed after the last."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import redis

from dyno import celery_app, errors, webhook_delivery
from dyno.artifact_store import ArtifactStore
from dyno.bench import contract
from dyno.logging import AUDIT_LOG, log_event
from dyno.models.api_key import Viewer
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
from service import admission, anonymous_access
from service.sharing import ReadinessChecks, SharedPages, StreamLimit

log = logging.getLogger(__name__)

# At most half of the connections may be long polls, and at most a quarter may be streams. Other requests use the rest.
POLLS_OF, STREAMS_OF = 2, 4


@dataclass(frozen=True)
class State:
    """One object per process. Each route gets a copy whose `jobs` are limited to jobs that the caller may see.

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

    The API starts even while Redis is unreachable: it answers every request with 503 until Redis is back.
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
        forecasts = eta.Forecasts(client, settings, partial(admission.expected_s, workloads))
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
    """Maintenance, with the chores that only the API does.

    Workers don't do these chores: work beside a benchmark affects the benchmark's figures, and the artifact folder may
    be on a host that only the API can reach.
    """
    chores: dict[str, Callable[[redis.Redis], object]] = {
        "repairing damaged keys": partial(repair_damage, settings=settings),
        "dropping the oldest jobs": partial(_drop_oldest, settings),
        "tidying artifacts": partial(tidy_files, settings=settings, files=artifacts),
        "dropping sweeps without jobs": partial(sweeps.drop_empty, settings=settings),
    }
    return Maintenance(settings, partial(celery_app.send_wake_up, settings), chores)
