"""Devices that take no job for now, though their workers live: whoever cordons one wants it for something else.

What runs there goes on to its end. A cordon lasts until it is lifted, whatever becomes of the worker.
"""

from __future__ import annotations

import redis
import redis.asyncio

from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys


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
