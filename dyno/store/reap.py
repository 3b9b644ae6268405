"""Taking leases that ran out, and knowing when a lease that ran out means that its worker is gone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis

from dyno.models.job import MAX_ATTEMPTS, Failure, FailureClass
from dyno.settings import Settings
from dyno.store.connect import store_errors
from dyno.store.keys import Keys
from dyno.store.scripts import SOURCES, Script

_AT_ONCE = 100
_NO_DEVICE = ""
WORKER_LOST = Failure(
    failure_class=FailureClass.INFRASTRUCTURE,
    reason="worker_lost",
    message=f"The job's worker stopped reporting in each of {MAX_ATTEMPTS} attempts.",
)


def reap(client: redis.Redis, settings: Settings) -> list[str]:
    """Take every lease that ran out: its job goes to the front of its queue, or ends (`worker_lost`, or canceled).

    Returns the ids of these jobs. Takes nothing before Redis has been up for one whole lease: until then a worker
    may not have had the chance to extend its own. Any number of processes may do this at once. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    with store_errors():
        if client.info("server")["uptime_in_seconds"] < settings.lease_s:
            return []
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        late: Any = client.zrange(keys.leases, "-inf", now_ms, byscore=True, offset=0, num=_AT_ONCE)
        replies = _expire(client, keys, late)
    return [reply[1] for reply in replies if reply[0] not in ("live", "orphan")]


def redis_now_s(client: redis.Redis, settings: Settings) -> float:
    """Redis' time, in seconds. Raises StoreUnavailable where it is away, or takes no heartbeat though it answers: as a
    replica, say, or while it can't write to its disk.
    """
    with store_errors():
        seconds, micros = client.time()
        # A script is refused by its flags before it does anything; this one has a heartbeat's, and finds nothing to do.
        _expire(client, Keys(settings.namespace), [_NO_DEVICE])
    return float(seconds + micros / 1e6)


def _expire(client: redis.Redis, keys: Keys, devices: Sequence[str]) -> list[Any]:
    expire = client.register_script(SOURCES[Script.EXPIRE])
    ending = (MAX_ATTEMPTS, WORKER_LOST.model_dump_json())
    return [
        expire(keys=[keys.lease(device), keys.leases], args=[keys.namespace, device, *ending]) for device in devices
    ]


class Outlook:
    """Since when this process knows that workers could reach Redis. All times in seconds, given by the caller.

    While Redis was away nobody could extend a lease, so after that (and after this process' own start, which knows
    nothing of what was before) one whole lease has to pass. The same holds when by Redis' clock more time went by
    than by ours: its host's clock jumped, or the machine slept, and all leases ran out at once.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._clear_since_s: float | None = None
        self._last: tuple[float, float] | None = None

    def away(self) -> None:
        """Redis could not be reached, or took no heartbeat."""
        self._clear_since_s = None
        self._last = None

    def seen(self, redis_s: float, own_s: float) -> None:
        """Redis was reached, at `redis_s` by its clock and `own_s` by our monotonic one."""
        jumped = self._last is not None and (redis_s - self._last[0]) - (own_s - self._last[1]) > self._lease_s / 4
        if self._clear_since_s is None or jumped:
            self._clear_since_s = own_s
        self._last = (redis_s, own_s)

    def clear(self, own_s: float) -> bool:
        """Whether a lease that ran out can be believed."""
        return self._clear_since_s is not None and own_s - self._clear_since_s >= self._lease_s
