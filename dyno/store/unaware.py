"""Whom to pass a wake-up on to, where it came to a worker that none of the waiting jobs fits, or that is cordoned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import redis

from dyno.devices.device import Device
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.connect import store_errors
from dyno.store.cordon import cordoned_now
from dyno.store.fitting import profile
from dyno.store.keys import Keys
from dyno.store.queues import queues_served

_Looks = Mapping[str, tuple[float, Mapping[str, float]]]  # queue -> its last score, and how far each profile has looked


def unaware(client: redis.Redis, settings: Settings, device: Device) -> list[str]:
    """Own queues of resting devices that haven't looked at every job that `device` has passed over.

    One for each profile, the one heard of last; never a cordoned one. None where `device` itself hasn't looked at all
    that waits for it (while a lease of it stands, say), unless it is cordoned and mustn't: as only who has looked, or
    isn't called, passes on, no two workers wake each other for ever. Raises StoreUnavailable.
    """
    looks = _looks(client, Keys(settings.namespace), queues_served(device))
    if not looks:
        return []
    shut = cordoned_now(client, settings)
    if device.full_id not in shut and _behind(profile(device), queues_served(device), looks):
        return []
    found: dict[str, str] = {}
    for other, version in fleet.resting(client, settings):
        own, served = profile(other, version), queues_served(other)
        if other.full_id not in shut and _behind(own, served, looks):
            found.setdefault(own, served[0])
    return list(found.values())


def _looks(client: redis.Redis, keys: Keys, served: list[str]) -> _Looks:
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


def _behind(own: str, served: Sequence[str], looks: _Looks) -> bool:
    """Whether devices of that profile haven't looked into those queues to the end."""
    return any(name in served and (own not in passed or passed[own] < last) for name, (last, passed) in looks.items())
