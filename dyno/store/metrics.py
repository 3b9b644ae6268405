"""Counters and gauges of the store for Prometheus: counted by the scripts, read in two round trips.

The scripts count in one hash, so the figures don't depend on the number of processes or their restarts. A field's name
consists of words from closed sets, separated by spaces:

    submitted <workload>                      wait <kind> <bound>, wait <kind> sum_ms
    ended <workload> <status> <class>         attempt <workload> <bound>, attempt <workload> sum_ms
    requeued <cause>, lost <kind>             busy_ms <kind>, dropped <limit>
    webhook <status>                          webhook_attempt <outcome>
    firing <outcome>                          repaired <kind>

`class` is the failure's class, or "none". A bound is one of BOUNDS_S or "inf"; each reading counts at one bound only.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import redis.asyncio

from dyno.models.device import Device
from dyno.models.inventory import WorkerRecord
from dyno.models.job import Status
from dyno.settings import Settings
from dyno.store.fleet import devices_and_workers, record_keys
from dyno.store.redis import BOUNDS_S, Keys, pipelined, store_errors

MOST_QUEUES = 100  # reported by name: callers may name devices that don't exist, and each name has its own queue
OTHER = "other"
_SUM = "sum_ms"


@dataclass(frozen=True)
class StoreMetrics:
    """`counts`: counters by the words of their names. `jobs`: number by status. `queues`: number of queued jobs by
    queue; OTHER is the sum of the queues beyond MOST_QUEUES.

    `running`: device kind and start of each attempt that runs at `now_s`, in seconds of Redis' clock.
    `oldest_queued_s`: when the oldest queued job was submitted, by the same clock. `memory_limit_bytes`: 0 without a
    limit. `aof_bytes`: 0 without an append-only file. `aof_rewrite_ok`: whether the file's last rewrite succeeded.
    """

    now_s: float
    counts: Mapping[tuple[str, ...], int]
    jobs: Mapping[str, int]
    queues: Mapping[str, int]
    running: Sequence[tuple[str, float]]
    devices: Sequence[tuple[Device, WorkerRecord]]
    oldest_queued_s: float | None
    memory_bytes: int
    memory_limit_bytes: int
    aof_bytes: int
    aof_rewrite_ok: bool

    def busy_s(self, kind: str) -> float:
        """Total time for which devices of that kind have been leased, including running attempts."""
        running_ms = (
            int(1000 * (self.now_s - began_s)) for leased_kind, began_s in self.running if leased_kind == kind
        )
        return (self.counts.get(("busy_ms", kind), 0) + sum(max(0, ms) for ms in running_ms)) / 1000

    @property
    def outboxes(self) -> Mapping[str, int]:
        """Undelivered results by host. The workers of a host share one outbox."""
        sizes = sorted((worker.host, worker.outbox) for _, worker in self.devices)
        return dict(sizes)

    @property
    def oldest_wait_s(self) -> float:
        """The age of the oldest queued job; 0 if no job is queued."""
        return 0.0 if self.oldest_queued_s is None else max(0.0, self.now_s - self.oldest_queued_s)

    def histogram(self, what: str, label: str) -> tuple[list[int], float]:
        """The cumulative counts up to each bound and in total, and the sum of the readings in seconds.

        If another version counted readings at a bound that is unknown here, they belong to the next higher bound.
        """
        readings = [(words[2], n) for words, n in self.counts.items() if words[:2] == (what, label) and len(words) == 3]
        at = [(float(bound), n) for bound, n in readings if bound != _SUM]
        within = [sum(n for bound, n in at if bound <= limit) for limit in (*BOUNDS_S[what], float("inf"))]
        return within, dict(readings).get(_SUM, 0) / 1000


async def read_metrics(client: redis.asyncio.Redis, settings: Settings) -> StoreMetrics:
    """A consistent reading of all metrics. Raises StoreUnavailable.

    Counts and records are read in one transaction, so an attempt that ends is either in the counts or among the
    running attempts. Therefore no counter ever decreases.
    """
    keys = Keys(settings.namespace)
    with store_errors():
        lists = [("smembers", keys.queues), ("zrange", keys.jobs_with_status(Status.RUNNING), 0, -1)]
        queues, running, workers = await pipelined(client, [*lists, ("smembers", keys.workers)])
        listed = sorted(queues, key=lambda name: (len(name), name))[:MOST_QUEUES]
        async with client.pipeline(transaction=True) as second:
            second.time()
            second.hgetall(keys.counts)
            second.info("memory")
            second.info("persistence")
            second.zrange(keys.jobs_with_status(Status.QUEUED), 0, 0, withscores=True)
            for status in Status:
                second.zcard(keys.jobs_with_status(status))
            for name in listed:
                second.zcard(keys.queue(name))
            for job_id in running:
                second.hmget(keys.job(job_id), "status", "device", "started_at")
            for name in record_keys(keys, sorted(workers)):
                second.get(name)
            answers: Any = iter(await second.execute())
    seconds, micros = next(answers)
    counts = {tuple(field.split(" ")): int(number) for field, number in next(answers).items()}
    memory, persistence, oldest = next(answers), next(answers), next(answers)
    jobs = {str(status): int(next(answers)) for status in Status}
    depths = {name: int(next(answers)) for name in listed}
    attempts = [next(answers) for _ in running]
    return StoreMetrics(
        now_s=seconds + micros / 1e6,
        counts=counts,
        jobs=jobs,
        queues=depths
        if len(listed) == len(queues)
        else depths | {OTHER: max(0, jobs["queued"] - sum(depths.values()))},
        running=[_begun(device, at) for status, device, at in attempts if status == Status.RUNNING and device and at],
        devices=devices_and_workers(list(answers)),
        oldest_queued_s=oldest[0][1] / 1e3 if oldest else None,
        memory_bytes=memory["used_memory"],
        memory_limit_bytes=memory.get("maxmemory", 0),
        aof_bytes=persistence.get("aof_current_size", 0),
        aof_rewrite_ok=persistence.get("aof_last_bgrewrite_status") != "err",
    )


def _begun(device: str, at: str) -> tuple[str, float]:
    return device.partition(":")[0], float(at)
