"""Live workers and their devices, cordons, and which resting workers to wake.

Each worker publishes itself and its device under a key with a short life. A cordoned device claims nothing, though
its worker lives: its running job goes on to the end. A cordon lasts until it is lifted, even across restarts of the
worker.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import redis
import redis.asyncio
from pydantic import ValidationError

from dyno.devices.device import Device
from dyno.models.inventory import DeviceStatus, WorkerRecord, WorkerState
from dyno.models.job import Stored
from dyno.settings import Settings
from dyno.store.placement import profile, queues_served
from dyno.store.redis import Keys, store_errors


async def cordon(client: redis.asyncio.Redis, settings: Settings, device_id: str) -> None:
    """From now on the device (its full id) claims nothing. Raises StoreUnavailable."""
    with store_errors():
        await client.sadd(Keys(settings.namespace).cordoned, device_id)


async def uncordon(client: redis.asyncio.Redis, settings: Settings, device_id: str) -> None:
    """From now on it claims again; its worker has to be woken. Raises StoreUnavailable."""
    with store_errors():
        await client.srem(Keys(settings.namespace).cordoned, device_id)


async def cordoned(client: redis.asyncio.Redis, settings: Settings) -> set[str]:
    """Full ids, also of devices whose worker is away. Raises StoreUnavailable."""
    with store_errors():
        return {str(name) for name in await client.smembers(Keys(settings.namespace).cordoned)}


def cordoned_now(client: redis.Redis, settings: Settings) -> set[str]:
    """The same, for a worker."""
    with store_errors():
        return {str(name) for name in client.smembers(Keys(settings.namespace).cordoned)}


log = logging.getLogger(__name__)


class _Published(Stored):
    worker: WorkerRecord
    device: Device


def publish(client: redis.Redis, settings: Settings, device: Device, worker: WorkerRecord) -> None:
    """Say that the worker lives; to be repeated well within `settings.device_ttl_s`. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        seconds, micros = client.time()
        now = datetime.fromtimestamp(seconds + micros / 1e6, UTC)
        record = _Published(worker=worker.model_copy(update={"last_heartbeat": now}), device=device)
        with client.pipeline() as pipeline:
            pipeline.set(keys.worker(worker.id), record.model_dump_json(), px=round(settings.device_ttl_s * 1000))
            pipeline.sadd(keys.workers, worker.id)
            pipeline.execute()


def withdraw(client: redis.Redis, settings: Settings, worker: WorkerRecord) -> None:
    """Take the worker and its device off the lists at once. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors(), client.pipeline() as pipeline:
        pipeline.delete(keys.worker(worker.id))
        pipeline.srem(keys.workers, worker.id)
        pipeline.execute()


async def workers(client: redis.asyncio.Redis, settings: Settings) -> list[WorkerRecord]:
    """The live workers, by id. Raises StoreUnavailable."""
    return [published.worker for published in await _published(client, settings)]


async def devices(client: redis.asyncio.Redis, settings: Settings) -> list[DeviceStatus]:
    """The devices of live workers, by full id. Where two claim one device, the later heartbeat counts."""
    latest = {one.device.full_id: one for one in sorted(await _published(client, settings), key=_last_heartbeat)}
    served = [latest[device_id] for device_id in sorted(latest)]
    lengths = await _queue_lengths(client, settings, (one.device for one in served))
    shut = await cordoned(client, settings)
    return [_status(one, length, shut) for one, length in zip(served, lengths, strict=True)]


async def accepting_devices(client: redis.asyncio.Redis, settings: Settings) -> list[tuple[Device, bool]]:
    """The devices that take jobs now: not cordoned, their workers not about to end; and whether another process uses
    it. Raises StoreUnavailable.
    """
    shut = await cordoned(client, settings)
    latest = {one.device.full_id: one for one in sorted(await _published(client, settings), key=_last_heartbeat)}
    taking = [one for name, one in latest.items() if name not in shut and one.worker.state != "draining"]
    return [(one.device, one.worker.held_by is not None) for one in taking]


def idle_devices(client: redis.Redis, settings: Settings) -> list[tuple[Device, str]]:
    """The devices whose workers have nothing to do, with their versions of Dyno; the one heard of last first.

    Raises StoreUnavailable.
    """
    idle = [one for one in _live(client, settings) if one.worker.state == "idle"]
    return [(one.device, one.worker.version) for one in sorted(idle, key=_last_heartbeat, reverse=True)]


def served_queues(client: redis.Redis, settings: Settings) -> set[str]:
    """The queues that any live worker looks into. Raises StoreUnavailable."""
    return {queue for one in _live(client, settings) for queue in queues_served(one.device)}


def _live(client: redis.Redis, settings: Settings) -> list[_Published]:
    keys = Keys(settings.namespace)
    with store_errors():
        names = [keys.worker(str(worker_id)) for worker_id in client.smembers(keys.workers)]
        texts: Any = client.mget(names) if names else []
    return [one for text in texts if text is not None and (one := _read(text)) is not None]


def device_states(texts: Iterable[str | None]) -> list[tuple[Device, WorkerState]]:
    """What the stored records of workers say: each device once, by its last heartbeat. None: a worker is gone."""
    published = [one for text in texts if text is not None and (one := _read(text)) is not None]
    latest = {one.device.full_id: one for one in sorted(published, key=_last_heartbeat)}
    return [(latest[device_id].device, latest[device_id].worker.state) for device_id in sorted(latest)]


async def _published(client: redis.asyncio.Redis, settings: Settings) -> list[_Published]:
    keys = Keys(settings.namespace)
    with store_errors():
        ids = sorted(str(worker_id) for worker_id in await client.smembers(keys.workers))
        texts = await client.mget([keys.worker(worker_id) for worker_id in ids]) if ids else []
        gone = [worker_id for worker_id, text in zip(ids, texts, strict=True) if text is None]
        if gone:
            await client.srem(keys.workers, *gone)
    published = (_read(text) for text in texts if text is not None)
    return [one for one in published if one is not None]


def _read(text: str | bytes) -> _Published | None:
    """One worker of a newer version, with a state or kind unknown here, must not hide all the others."""
    try:
        return _Published.model_validate_json(text)
    except ValidationError as error:
        log.warning("a worker's record can't be read: %s", error)
        return None


async def _queue_lengths(client: redis.asyncio.Redis, settings: Settings, served: Iterable[Device]) -> list[int]:
    keys = Keys(settings.namespace)
    queues = [queues_served(device) for device in served]
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            for names in queues:
                for name in names:
                    pipeline.zcard(keys.queue(name))
            lengths: Sequence[int] = await pipeline.execute()
    remaining = iter(lengths)
    return [sum(next(remaining) for _ in names) for names in queues]


def _last_heartbeat(published: _Published) -> datetime:
    return published.worker.last_heartbeat or published.worker.started_at


def _status(published: _Published, queue_length: int, shut: Collection[str]) -> DeviceStatus:
    return DeviceStatus(
        **published.device.model_dump(),
        state=published.worker.state,
        held_by=published.worker.held_by,
        cordoned=published.device.full_id in shut,
        queue_length=queue_length,
        worker=published.worker.id,
        last_heartbeat=_last_heartbeat(published),
    )


_QueueProgress = Mapping[
    str, tuple[float, Mapping[str, float]]
]  # queue -> its last score, and how far each profile has looked


def queues_to_notify(client: redis.Redis, settings: Settings, device: Device) -> list[str]:
    """Own queues of resting devices that haven't looked at every job that `device` has passed over.

    One for each profile, the one heard of last; never a cordoned one. None where `device` itself hasn't looked at all
    that waits for it (while a lease of it stands, say), unless it is cordoned and mustn't: as only who has looked, or
    isn't called, passes on, no two workers wake each other for ever. Raises StoreUnavailable.
    """
    looks = _queue_progress(client, Keys(settings.namespace), queues_served(device))
    if not looks:
        return []
    shut = cordoned_now(client, settings)
    if device.full_id not in shut and _has_unseen_jobs(profile(device), queues_served(device), looks):
        return []
    found: dict[str, str] = {}
    for other, version in idle_devices(client, settings):
        own, served = profile(other, version), queues_served(other)
        if other.full_id not in shut and _has_unseen_jobs(own, served, looks):
            found.setdefault(own, served[0])
    return list(found.values())


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


def _has_unseen_jobs(own: str, served: Sequence[str], looks: _QueueProgress) -> bool:
    """Whether devices of that profile haven't looked into those queues to the end."""
    return any(name in served and (own not in passed or passed[own] < last) for name, (last, passed) in looks.items())
