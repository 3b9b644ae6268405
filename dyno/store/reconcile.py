"""Wake-ups may be lost: queues that hold jobs are woken again, at a bounded rate."""

from __future__ import annotations

import redis

from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys


def queues_to_wake(client: redis.Redis, settings: Settings) -> list[str]:
    """Names of the queues that hold jobs and that no process reconciled in the last `reap_every_s`.

    However many processes ask, each queue is named once in that time. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    pause_ms = max(1, round(settings.reap_every_s * 1000))
    with store_errors():
        names = sorted(str(name) for name in client.smembers(keys.queues))
        waiting = [name for name in names if client.zcard(keys.queue(name))]
        return [name for name in waiting if client.set(keys.woken(name), 1, nx=True, px=pause_ms)]
