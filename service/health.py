"""Liveness and readiness probes, and Prometheus metrics.

GET /metrics has counters and gauges of the store, and the requests and connections of this process.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import anyio.to_thread
import redis
from fastapi import APIRouter, Request, Response
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from pydantic import BaseModel, Field

from dyno.artifact_store import DiskSpace
from dyno.errors import StoreUnavailable
from dyno.models.inventory import WorkerRecord
from dyno.models.job import DONE, FailureClass, Status
from dyno.models.spec import DeviceKind
from dyno.models.webhook import DeliveryStatus, Outcome
from dyno.store.maintenance import REPAIRS
from dyno.store.metrics import OTHER, StoreMetrics, read_metrics
from dyno.store.redis import BOUNDS_S
from service import auth, dependencies, middleware, problems
from service.state import State

router = APIRouter(tags=["health"])


class Health(BaseModel):
    status: Literal["ok"] = "ok"


@router.get("/livez", operation_id="getLiveness", summary="Check liveness", responses=problems.documented())
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def livez() -> Health:
    """Check that the process is alive. The response depends on no other service."""
    return Health()


class Readiness(Health):
    notes: list[str] = Field([], description="What to change, although the service is ready")


@router.get(
    "/readyz",
    operation_id="getReadiness",
    summary="Check readiness",
    responses=problems.documented("not-ready"),
)
@auth.requires(auth.Keyless.TO_ALL, auth.EVERYBODYS)
async def readyz(request: Request, state: dependencies.StateDep) -> Readiness:
    """Check that the service can accept and keep jobs.

    Redis must be reachable, persist its data and not evict any, and the artifact store must accept files. If a needed
    key is missing, the response has only the code of each fault, without details or notes. The service checks once a
    second at most.
    """
    store = await state.readiness.store.latest()
    reasons = [*store.errors, *await state.readiness.artifact_store.latest()]
    if reasons:
        may_see_details = await auth.is_known(request, state)
        raise problems.NotReady(
            "; ".join(dict.fromkeys(reason.detail if may_see_details else reason.code for reason in reasons))
        )
    return Readiness(notes=list(store.notes) if store.notes and await auth.is_known(request, state) else [])


log = logging.getLogger(__name__)

STORE_WITHIN_S = 3.0  # Prometheus times out after 10 s, and should get this process' own metrics before that
KINDS = get_args(DeviceKind)
LIMITS = ("max_done", "max_store_bytes", "key_stored_jobs")
FIRINGS = ("fired", "refused", "missed")
CAUSES = ("handed_back", "infrastructure", "lost")
_DELIVERED = (DeliveryStatus.DELIVERED, DeliveryStatus.FAILED)
_TEXT: dict[str, Any] = {CONTENT_TYPE_PLAIN_0_0_4: {"schema": {"type": "string"}}}


@router.get(
    "/metrics",
    operation_id="getMetrics",
    summary="Read metrics",
    response_class=Response,
    responses={200: {"description": "Prometheus' text format", "content": _TEXT}, **problems.documented()},
)
@auth.requires(auth.READ, auth.EVERYBODYS)
async def metrics(state: dependencies.StateDep, request: Request) -> Response:
    """Metrics for Prometheus. While Redis is unreachable, only `dyno_store_up` 0 and this process' own metrics."""
    tally, ready = await asyncio.gather(_read_tally(state), _read_readiness(state))
    # Read the disk only if the check has passed: a mount that hangs would block this thread.
    disk = await anyio.to_thread.run_sync(state.artifacts.disk) if ready["artifact_store"] else None
    scrape = Scrape(request.app.state.meter, tally, ready, disk, state.workloads.keys())
    return Response(
        await anyio.to_thread.run_sync(generate_latest, scrape), headers={"Content-Type": CONTENT_TYPE_PLAIN_0_0_4}
    )


async def _read_tally(state: State) -> StoreMetrics | None:
    try:
        async with asyncio.timeout(STORE_WITHIN_S):
            return await read_metrics(state.client, state.settings)
    except (StoreUnavailable, TimeoutError):
        return None
    except redis.RedisError as error:  # Redis refused the command, for example by an ACL
        log.warning("can't read the store's metrics: %s", error)
        return None


async def _read_readiness(state: State) -> dict[str, bool]:
    """Whether each part that `readyz` checks is ready."""
    try:
        async with asyncio.timeout(STORE_WITHIN_S):
            is_fit = not (await state.readiness.store.latest()).errors
    except (TimeoutError, redis.RedisError):
        is_fit = False
    return {"store": is_fit, "artifact_store": not await state.readiness.artifact_store.latest()}


@dataclass(frozen=True)
class Scrape:
    """The metrics of one response. Only names in `workloads` become labels. `ready`: whether each part is ready."""

    meter: middleware.HttpMetrics
    tally: StoreMetrics | None
    ready: Mapping[str, bool]
    disk: DiskSpace | None
    workloads: Collection[str]

    def collect(self) -> Iterator[Metric]:
        yield from self.meter.collect()
        yield GaugeMetricFamily("dyno_store_up", "Whether Redis answered this scrape", value=self.tally is not None)
        parts = (((part,), is_ready) for part, is_ready in self.ready.items())
        yield _gauge("dyno_ready", "Whether this part is ready, as in /readyz", ["part"], parts)
        if self.disk is not None:
            yield from _disk(self.disk)
        if self.tally is not None:
            yield from _memory(self.tally)
            yield from _standing(self.tally)
            yield from _counters(self.tally, self.workloads)
            yield from _histograms(self.tally, self.workloads)


def _gauge(
    name: str, help_text: str, labels: Sequence[str], values: Iterable[tuple[Sequence[str], float]]
) -> GaugeMetricFamily:
    """A gauge with a value for each combination of labels."""
    family = GaugeMetricFamily(name, help_text, labels=labels)
    for label_values, value in values:
        family.add_metric(label_values, value)
    return family


def _memory(tally: StoreMetrics) -> Iterator[Metric]:
    yield GaugeMetricFamily("dyno_store_memory_bytes", "Memory that Redis uses", value=tally.memory_bytes)
    yield GaugeMetricFamily(
        "dyno_store_memory_limit_bytes", "Redis' maxmemory; 0 without a limit", value=tally.memory_limit_bytes
    )
    yield GaugeMetricFamily("dyno_store_aof_bytes", "Size of Redis' append-only file", value=tally.aof_bytes)
    yield GaugeMetricFamily(
        "dyno_store_aof_rewrite_ok", "Whether Redis' last rewrite of its file succeeded", value=tally.aof_rewrite_ok
    )


def _disk(space: DiskSpace) -> Iterator[Metric]:
    yield GaugeMetricFamily(
        "dyno_artifact_disk_bytes", "Size of the disk with the artifact folder", value=space.total_bytes
    )
    yield GaugeMetricFamily("dyno_artifact_disk_free_bytes", "Free room on that disk", value=space.free_bytes)


def _standing(tally: StoreMetrics) -> Iterator[Metric]:
    by_status = (((status,), number) for status, number in tally.jobs.items())
    yield _gauge("dyno_jobs", "Stored jobs, by status", ["status"], by_status)
    by_queue = (((queue,), depth) for queue, depth in tally.queues.items())
    yield _gauge("dyno_queue_depth", "Queued jobs, by queue; an empty queue has no series", ["queue"], by_queue)
    yield GaugeMetricFamily(
        "dyno_oldest_queued_seconds", "Age of the oldest queued job; 0 without one", value=tally.oldest_wait_s
    )
    states = Counter((device.kind, worker.state) for device, worker in tally.devices)
    yield _gauge("dyno_devices", "Devices of live workers, by the worker's state", ["kind", "state"], states.items())
    flags: list[tuple[str, str, Callable[[WorkerRecord], bool]]] = [
        ("busy", "Whether the device's worker runs a job or waits for its lock", lambda w: w.state == "busy"),
        ("held", "Whether another process uses the device while jobs wait for it", lambda w: w.held_by is not None),
        ("hung", "Whether a runner that hangs still uses the device", lambda w: bool(w.held_by and w.held_by.hung)),
    ]
    for flag, help_text, is_set in flags:
        by_device = (((device.full_id, device.kind), is_set(worker)) for device, worker in tally.devices)
        yield _gauge(f"dyno_device_{flag}", help_text, ["device", "kind"], by_device)
    by_host = (((host,), number) for host, number in tally.outboxes.items())
    yield _gauge("dyno_outbox_results", "Results on a host's disk that Redis hasn't taken", ["host"], by_host)


def _counters(tally: StoreMetrics, workloads: Collection[str]) -> Iterator[Metric]:
    ended = [(workload, status, name) for workload in workloads for status, name in _endings()]
    counters: list[tuple[str, str, str, list[str], Iterable[tuple[str, ...]]]] = [
        ("submitted", "dyno_jobs_submitted", "Accepted jobs", ["workload"], [(name,) for name in workloads]),
        ("ended", "dyno_jobs_ended", "Jobs that ended", ["workload", "status", "failure_class"], ended),
        ("requeued", "dyno_requeues", "Attempts whose job went back to its queue", ["cause"], [(c,) for c in CAUSES]),
        ("dropped", "dyno_jobs_dropped", "Done jobs deleted at a limit", ["limit"], [(limit,) for limit in LIMITS]),
        ("lost", "dyno_leases_lost", "Leases that expired during a job", ["kind"], [(kind,) for kind in KINDS]),
        ("repaired", "dyno_index_repairs", "Repairs of jobs' indexes", ["kind"], [(kind,) for kind in REPAIRS]),
        ("firing", "dyno_schedule_firings", "Due times of schedules", ["outcome"], [(outcome,) for outcome in FIRINGS]),
        ("webhook", "dyno_webhooks", "Finished webhook deliveries", ["status"], [(status,) for status in _DELIVERED]),
        ("webhook_attempt", "dyno_webhook_attempts", "Delivery attempts", ["outcome"], [(o,) for o in Outcome]),
    ]
    for what, name, help_text, labels, expected in counters:
        family = CounterMetricFamily(name, help_text, labels=labels)
        allowed = [set(choices) for choices in zip(*expected, strict=True)]
        numbers = Counter(dict.fromkeys(expected, 0))
        for words, number in tally.counts.items():
            if words[0] == what and len(words) == len(labels) + 1:
                numbers[_bounded(words[1:], allowed)] += number
        for values, number in numbers.items():
            family.add_metric(values, number)
        yield family
    busy = CounterMetricFamily("dyno_device_busy_seconds", "Time for which devices were leased", labels=["kind"])
    for kind in KINDS:
        busy.add_metric([kind], tally.busy_s(kind))
    yield busy


def _endings() -> Iterator[tuple[str, str]]:
    """All pairs of status and failure class. Each counter starts at zero, so that Prometheus sees its first event."""
    yield from ((status, "none") for status in sorted(DONE - {Status.FAILED}))
    yield from ((Status.FAILED, name) for name in FailureClass)


def _histograms(tally: StoreMetrics, workloads: Collection[str]) -> Iterator[Metric]:
    histograms: list[tuple[str, str, str, str, Collection[str]]] = [
        ("wait", "dyno_queue_wait_seconds", "From queueing to claim", "kind", KINDS),
        ("attempt", "dyno_attempt_duration_seconds", "From claim to the end of an attempt", "workload", workloads),
    ]
    for what, name, help_text, label, expected in histograms:
        family = HistogramMetricFamily(name, help_text, labels=[label])
        bounds = [*(str(float(bound)) for bound in BOUNDS_S[what]), "+Inf"]
        for value in expected:
            within, sum_s = tally.histogram(what, value)
            family.add_metric([value], list(zip(bounds, within, strict=True)), sum_s)
        yield family


def _bounded(values: tuple[str, ...], allowed: list[set[str]]) -> tuple[str, ...]:
    return tuple(value if value in choices else OTHER for value, choices in zip(values, allowed, strict=True))
