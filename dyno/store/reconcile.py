"""Wake-ups may be lost: queues that hold jobs are woken again, at a bounded rate."""

from __future__ import annotations

import random
from typing import Any

import redis

from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.connect import store_errors
from dyno.store.keys import Keys

MOST_UNSERVED = 100  # at a time: callers may name devices that nobody has, and each has a queue


def queues_to_wake(client: redis.Redis, settings: Settings) -> list[str]:
    """Names of the queues that hold jobs and that no process reconciled in the last `reap_every_s`.

    Of those that no live device serves, some at random. However many processes ask, each queue is named once in that
    time. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    pause_ms = max(1, round(settings.reap_every_s * 1000))
    with store_errors():
        found: Any = client.smembers(keys.queues)
        names = {str(name) for name in found}
        if len(names) > MOST_UNSERVED:
            served = names & fleet.looked_into(client, settings)
            names = {*served, *random.sample(list(names - served), min(MOST_UNSERVED, len(names - served)))}
        waiting = [name for name in sorted(names) if client.zcard(keys.queue(name))]
        return [name for name in waiting if client.set(keys.woken(name), 1, nx=True, px=pause_ms)]
