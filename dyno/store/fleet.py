"""Live workers and their devices, cordons, and which idle workers to wake.

When a worker or its device changes, the worker publishes both under a key with a short TTL. Between changes it extends
the TTL and writes the heartbeat's time to a second key: otherwise each heartbeat would add 2 kB to Redis' log.

A cordoned device claims no jobs, but its worker stays up and finishes the running job. A cordon lasts until it is
lifted, even across restarts of the worker.
"""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import redis.asyncio

from dyno.models.device import Device
from dyno.models.inventory import DeviceStatus, WorkerRecord
from dyno.models.job import Stored
from dyno.settings import Settings
from dyno.store.placement import profile, queues_served
from dyno.store.records import to_datetime
from dyno.store.redis import Keys, pipelined, store_errors

DEVICES_FRESH_S = 1.0


async def cordon(client: redis.asyncio.Redis, settings: Settings, device_id: str) -> None:
    """Stop the device (given by its full id) from claiming jobs. Raises StoreUnavailable."""
    with store_errors():
        await client.sadd(Keys(settings.namespace).cordoned, device_id)


async def uncordon(client: redis.asyncio.Redis, settings: Settings, device_id: str) -> None:
    """Let the device claim jobs again; the caller has to wake its worker. Raises StoreUnavailable."""
    with store_errors():
        await client.srem(Keys(settings.namespace).cordoned, device_id)


async def cordoned(client: redis.asyncio.Redis, settings: Settings) -> set[str]:
    """Full ids of all cordoned devices, with or without a live worker. Raises StoreUnavailable."""
    with store_errors():
        return {str(name) for name in await client.smembers(Keys(settings.namespace).cordoned)}


def cordoned_now(client: redis.Redis, settings: Settings) -> set[str]:
    """`cordoned` for workers, which use the synchronous client."""
    with store_errors():
        return {str(name) for name in client.smembers(Keys(settings.namespace).cordoned)}


log = logging.getLogger(__name__)


class _Published(Stored):
    worker: WorkerRecord
    device: Device


def publish(client: redis.Redis, settings: Settings, device: Device, worker: WorkerRecord) -> None:
    """Publish the worker as live; call `extend` well within `settings.device_ttl_s`. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        seconds, micros = client.time()
        now = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
        record = _Published(worker=worker.model_copy(update={"last_heartbeat": now}), device=device)
        ttl_ms = round(settings.device_ttl_s * 1000)
        with client.pipeline() as pipeline:
            pipeline.set(keys.worker(worker.id), record.model_dump_json(), px=ttl_ms)
            pipeline.set(keys.worker_heartbeat(worker.id), f"{seconds}.{micros:06}", px=ttl_ms)
            pipeline.sadd(keys.workers, worker.id)
            pipeline.execute()


def extend(client: redis.Redis, settings: Settings, worker: WorkerRecord) -> bool:
    """Report that a published worker is live and unchanged. Returns False if its record is gone; then publish it.

    A full Redis refuses to store the heartbeat's time, but still extends the record. Raises StoreUnavailable.
    """
    keys, ttl_ms = Keys(settings.namespace), round(settings.device_ttl_s * 1000)
    with store_errors():
        seconds, micros = client.time()
        extended = bool(client.pexpire(keys.worker(worker.id), ttl_ms))
        if extended:
            client.set(keys.worker_heartbeat(worker.id), f"{seconds}.{micros:06}", px=ttl_ms)
            client.sadd(keys.workers, worker.id)  # the list may have been damaged or deleted
    return extended


def withdraw(client: redis.Redis, settings: Settings, worker: WorkerRecord) -> None:
    """Remove the worker and its device from the lists at once. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors(), client.pipeline(transaction=False) as pipeline:
        pipeline.delete(keys.worker(worker.id), keys.worker_heartbeat(worker.id))
        pipeline.srem(keys.workers, worker.id)
        pipeline.execute()


def claim_host(client: redis.Redis, settings: Settings, name: str, boot_id: str) -> bool:
    """Claim the host's name for this machine, for the next `device_ttl_s`. Returns False if another machine has it.

    Two machines with one name would have the same device ids, and so share leases. Raises StoreUnavailable.
    """
    key, ttl_ms = Keys(settings.namespace).host(name), round(settings.device_ttl_s * 1000)
    with store_errors():
        if (owner := client.get(key)) is None:
            client.set(key, boot_id, nx=True, px=ttl_ms)
            owner = client.get(key)  # another worker, of this machine or another machine, may have been faster
        if owner == boot_id:
            client.pexpire(key, ttl_ms)
        else:  # shortens a TTL that grew because Redis' clock stepped back
            client.pexpire(key, 2 * ttl_ms, lt=True)
    return owner in (None, boot_id)


def end_future_records(client: redis.Redis, settings: Settings) -> list[str]:
    """Let records of workers expire after `device_ttl_s` if their last heartbeats are more than `device_ttl_s` in the
    future. Returns the ids of the workers.

    Redis' clock has stepped back since these heartbeats, and the records' TTLs have become longer by the size of that
    step. A live worker extends its record. Raises StoreUnavailable.
    """
    keys, ttl_ms = Keys(settings.namespace), round(settings.device_ttl_s * 1000)
    with store_errors():
        ids = sorted(map(str, client.smembers(keys.workers)))
        texts: Any = client.mget([keys.worker_heartbeat(worker_id) for worker_id in ids]) if ids else []
        seconds, _ = client.time()
        latest_s = seconds + 1 + settings.device_ttl_s
        future = [worker_id for worker_id, at in zip(ids, texts, strict=True) if at and float(at) > latest_s]
        for name in record_keys(keys, future):
            client.pexpire(name, ttl_ms, lt=True)
    return future


async def workers(client: redis.asyncio.Redis, settings: Settings) -> list[WorkerRecord]:
    """The live workers, by id. Raises StoreUnavailable."""
    return [published.worker for published in await _published(client, settings)]


async def devices(client: redis.asyncio.Redis, settings: Settings) -> list[DeviceStatus]:
    """The devices of live workers, by full id. If two workers publish one device, the later heartbeat wins."""
    served = _latest(await _published(client, settings))
    lengths = await _queue_lengths(client, settings, (entry.device for entry in served))
    cordoned_ids = await cordoned(client, settings)
    return [_status(entry, length, cordoned_ids) for entry, length in zip(served, lengths, strict=True)]


class RecentDevices:
    """The devices of live workers, read at most once a second. `clock` returns seconds."""

    def __init__(
        self, client: redis.asyncio.Redis, settings: Settings, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._client, self._settings, self._clock = client, settings, clock
        self._devices: Sequence[DeviceStatus] = ()
        self._read_s = -math.inf
        self._reading = asyncio.Lock()

    async def read(self, max_age_s: float = DEVICES_FRESH_S) -> Sequence[DeviceStatus]:
        """The devices, as read at most `max_age_s` ago. Raises StoreUnavailable."""
        if self._clock() - self._read_s > max_age_s:
            async with self._reading:
                if self._clock() - self._read_s > max_age_s:
                    begun_s = self._clock()
                    self._devices = await devices(self._client, self._settings)
                    self._read_s = begun_s
        return self._devices


async def accepting_devices(client: redis.asyncio.Redis, settings: Settings) -> list[tuple[Device, bool]]:
    """The devices that take jobs now. The flag says whether another process uses the device. Raises StoreUnavailable.

    Cordoned devices and devices of draining workers are left out.
    """

    def takes_jobs(entry: _Published) -> bool:
        return entry.device.full_id not in cordoned_ids and entry.worker.state != "draining" and not _hung(entry)

    cordoned_ids = await cordoned(client, settings)
    latest = _latest(await _published(client, settings))
    return [(entry.device, entry.worker.held_by is not None) for entry in latest if takes_jobs(entry)]


def idle_devices(client: redis.Redis, settings: Settings) -> list[tuple[Device, str]]:
    """The devices of idle workers, with the workers' versions of Dyno, latest heartbeat first.

    Raises StoreUnavailable.
    """
    idle = [entry for entry in _live(client, settings) if entry.worker.state == "idle"]
    return [(entry.device, entry.worker.version) for entry in sorted(idle, key=_last_heartbeat, reverse=True)]


def served_queues(client: redis.Redis, settings: Settings) -> set[str]:
    """The queues that any live worker serves. Raises StoreUnavailable."""
    return {queue for entry in _live(client, settings) for queue in queues_served(entry.device)}


def _live(client: redis.Redis, settings: Settings) -> list[_Published]:
    keys = Keys(settings.namespace)
    with store_errors():
        names = record_keys(keys, map(str, client.smembers(keys.workers)))
        texts: Any = client.mget(names) if names else []
    return _read_all(texts)


def record_keys(keys: Keys, worker_ids: Iterable[str]) -> list[str]:
    """The keys of the workers' records, each followed by the key of its heartbeat."""
    return [name for worker_id in worker_ids for name in (keys.worker(worker_id), keys.worker_heartbeat(worker_id))]


def devices_and_workers(texts: Sequence[str | None]) -> list[tuple[Device, WorkerRecord]]:
    """Devices and workers from the values of `record_keys`. Each device appears once, with its latest heartbeat."""
    return [(entry.device, entry.worker) for entry in _latest(_read_all(texts))]


def _latest(published: Iterable[_Published]) -> list[_Published]:
    """The latest entry of each device, sorted by the device's full id. If two workers publish one device, the later
    heartbeat wins."""
    latest = {entry.device.full_id: entry for entry in sorted(published, key=_last_heartbeat)}
    return [latest[device_id] for device_id in sorted(latest)]


async def _published(client: redis.asyncio.Redis, settings: Settings) -> list[_Published]:
    keys = Keys(settings.namespace)
    with store_errors():
        ids = sorted(str(worker_id) for worker_id in await client.smembers(keys.workers))
        texts: Any = await client.mget(record_keys(keys, ids)) if ids else []
        gone = [worker_id for worker_id, text in zip(ids, texts[::2], strict=True) if text is None]
        if gone:
            await client.srem(keys.workers, *gone)
    return _read_all(texts)


def _read_all(texts: Sequence[str | None]) -> list[_Published]:
    """Parse the values of `record_keys`. Workers that are gone, and records that can't be read, are left out: a newer
    worker with an unknown state mustn't hide all others.
    """
    published = []
    for text, heartbeat in zip(texts[::2], texts[1::2], strict=True):
        if text is not None:
            try:
                published.append(_read(text, heartbeat))
            except ValueError as error:
                log.warning("skipping a worker whose record can't be read: %s", error)
    return published


def _read(text: str, heartbeat: str | None) -> _Published:
    published = _Published.model_validate_json(text)
    latest = _last_heartbeat(published) if heartbeat is None else to_datetime(heartbeat)
    return published.model_copy(update={"worker": published.worker.model_copy(update={"last_heartbeat": latest})})


async def _queue_lengths(client: redis.asyncio.Redis, settings: Settings, served: Iterable[Device]) -> list[int]:
    keys = Keys(settings.namespace)
    queues = [queues_served(device) for device in served]
    commands = [("zcard", keys.queue(name)) for names in queues for name in names]
    remaining = iter(await pipelined(client, commands))
    return [sum(next(remaining) for _ in names) for names in queues]


def _last_heartbeat(published: _Published) -> datetime:
    return published.worker.last_heartbeat or published.worker.started_at


def _hung(published: _Published) -> str | None:
    """The runner that hangs and still uses the device, as text. The device can't take jobs until the process ends."""
    held_by = published.worker.held_by
    return str(held_by) if held_by is not None and held_by.hung else None


def _status(published: _Published, queue_length: int, cordoned_ids: Collection[str]) -> DeviceStatus:
    hung = _hung(published)
    return DeviceStatus(
        **published.device.model_dump(),
        state=published.worker.state,
        held_by=published.worker.held_by,
        cordoned=hung is not None or published.device.full_id in cordoned_ids,
        cordon_reason=hung,
        queue_length=queue_length,
        worker=published.worker.id,
        last_heartbeat=_last_heartbeat(published),
    )


_QueueProgress = Mapping[
    str, tuple[float, Mapping[str, float]]
]  # queue -> the score of its last job, and the score up to which each profile has checked the queue


def queues_to_notify(client: redis.Redis, settings: Settings, device: Device) -> list[str]:
    """The queues to wake so that idle devices check jobs that `device` has passed over.

    The list has one queue for each device profile that hasn't checked these jobs: a queue that this profile's
    uncordoned device with the latest heartbeat serves. The list is empty if `device` is uncordoned but hasn't yet
    checked all jobs in the queues that it serves, for example because it has a lease. So only cordoned devices, and
    devices that have checked the jobs, forward a wake-up, and two workers can't wake each other forever.

    Raises StoreUnavailable.
    """
    looks = _queue_progress(client, Keys(settings.namespace), queues_served(device))
    if not looks:
        return []
    cordoned_ids = cordoned_now(client, settings)
    if device.full_id not in cordoned_ids and _has_unseen_jobs(profile(device), queues_served(device), looks):
        return []
    queues: dict[str, str] = {}
    for other, version in idle_devices(client, settings):
        idle_profile, served = profile(other, version), queues_served(other)
        if other.full_id not in cordoned_ids and _has_unseen_jobs(idle_profile, served, looks):
            queues.setdefault(idle_profile, served[0])
    return list(queues.values())


def _queue_progress(client: redis.Redis, keys: Keys, served: list[str]) -> _QueueProgress:
    with store_errors():
        names = client.smembers(keys.queues)
        waiting = [name for name in served if name in names]
        if not waiting:
            return {}
        with client.pipeline() as pipeline:
            for name in waiting:
                pipeline.zrange(keys.queue(name), -1, -1, withscores=True)
                pipeline.hgetall(keys.passed(name))
            replies: list[Any] = pipeline.execute()
    pairs = zip(waiting, replies[::2], replies[1::2], strict=True)
    return {
        name: (last[0][1], {one: float(score) for one, score in passed.items()}) for name, last, passed in pairs if last
    }


def _has_unseen_jobs(device_profile: str, served: Sequence[str], looks: _QueueProgress) -> bool:
    """Whether these queues hold jobs that devices of `device_profile` haven't checked."""
    return any(
        name in served and (device_profile not in passed or passed[device_profile] < last)
        for name, (last, passed) in looks.items()
    )
