"""Maintenance of the store, in a thread of every API and worker process.

It ends leases that ran out, once their workers have had the chance to extend them. It wakes queues that hold jobs, at a
bounded rate, because wake-ups may be lost. It removes index entries of expired records, and checks that jobs agree with
their leases and queues. The API's maintenance also enforces the limits on done jobs (`dyno.store.retention`).
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import redis

from dyno.errors import StoreUnavailable
from dyno.models.job import MAX_ATTEMPTS, Failure, FailureClass
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, store_errors, sync_client

log = logging.getLogger(__name__)

_LEASES_AT_ONCE = 100
_NO_DEVICE = ""
WORKER_LOST = Failure(
    failure_class=FailureClass.INFRASTRUCTURE,
    reason="worker_lost",
    message=f"The job's worker stopped reporting in each of {MAX_ATTEMPTS} attempts.",
)


def expire_leases(client: redis.Redis, settings: Settings) -> list[str]:
    """End up to 100 leases that ran out. Their jobs go to the front of their queues, or end (`worker_lost` or
    canceled).

    Returns the ids of these jobs. Does nothing until Redis has been up for the length of a lease: earlier, workers may
    not have had the chance to extend their leases. Safe to run in several processes at once. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    with store_errors():
        if 0 <= client.info("server")["uptime_in_seconds"] < settings.lease_s:  # negative: the clock stepped back
            return []
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        late: Any = client.zrange(keys.leases, "-inf", now_ms, byscore=True, offset=0, num=_LEASES_AT_ONCE)
    ended: list[str] = []
    for device in late:
        try:
            with store_errors():
                outcome, *job_id = _expire(client, keys, device)
        except redis.ResponseError as error:  # the other leases must still end
            log.error("the lease of %s ran out and can't be ended: %s", device, error)
        else:
            ended += [] if outcome in ("live", "orphan") else job_id
    return ended


def redis_now_s(client: redis.Redis, settings: Settings) -> float:
    """Redis' time, in seconds. Raises StoreUnavailable if Redis is unreachable or would refuse a heartbeat, for example
    as a replica or while it can't write to its disk.
    """
    with store_errors():
        seconds, micros = client.time()
        # Redis checks a script's flags before it runs the script. This one has a heartbeat's flags and changes nothing.
        _expire(client, Keys(settings.namespace), _NO_DEVICE)
    return float(seconds + micros / 1e6)


def _expire(client: redis.Redis, keys: Keys, device: str) -> list[Any]:
    expire = client.register_script(SCRIPT_SOURCES[Script.EXPIRE])
    failure_args = (MAX_ATTEMPTS, WORKER_LOST.model_dump_json())
    reply: list[Any] = expire(keys=[keys.lease(device), keys.leases], args=[keys.namespace, device, *failure_args])
    return reply


def shorten_leases(client: redis.Redis, settings: Settings) -> list[str]:
    """Shorten to one lease length all leases that end more than two lengths from now. Returns their devices.

    Such leases exist if Redis' clock has stepped back since their last heartbeats. A live worker's next heartbeat
    extends its lease. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    shorten = client.register_script(SCRIPT_SOURCES[Script.SHORTEN])
    with store_errors():
        devices: list[str] = shorten(
            keys=[keys.leases], args=[keys.namespace, round(settings.lease_s * 1000), _LEASES_AT_ONCE]
        )
    return devices


class Repair(NamedTuple):
    """A repair by `audit_indexes`. The kind is one of REPAIRS, or "failed: " and the reason."""

    kind: str
    job_id: str


REPAIRS = (
    "running_without_lease",  # its worker may be gone: the job got a lease, or went back to its queue
    "lease_not_listed",  # the lease would never have expired
    "queued_without_queue",  # no claim would have found the job
    "queue_not_listed",  # maintenance wouldn't have woken the queue
    "class_not_listed",  # its placement class lacked the job, so claims passed it over
    "wrong_status",  # the index of a status had the job, but the job's record had another status
    "status_not_listed",  # the index of the job's status lacked the job
    "stream",  # the key of a stream of events had a value of another type
    "index",  # the key of an index, of a webhook's delivery or of an owner's device time had a value of another type
    "failed",  # the record is damaged; the log says how
)
_AUDITED_AT_ONCE = 200  # running jobs, as many queued jobs, and as many jobs of any status; about 1 ms of Redis


def audit_indexes(client: redis.Redis, settings: Settings, job_ids: Sequence[str] = ()) -> list[Repair]:
    """Compare 200 running jobs with their leases, 200 queued jobs with their queues, and 200 jobs with a status index.

    Repairs the differences. Every `reap_every_s`, one process checks the next jobs. With `job_ids`, puts those jobs
    into all indexes instead. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    audit = client.register_script(SCRIPT_SOURCES[Script.AUDIT])
    pause_ms, lease_ms = round(settings.reap_every_s * 1000), round(settings.lease_s * 1000)
    given: list[str | int] = [keys.namespace, pause_ms, _AUDITED_AT_ONCE, lease_ms]
    given += [MAX_ATTEMPTS, WORKER_LOST.model_dump_json()]
    given += job_ids
    with store_errors():
        reply: list[str] = audit(keys=[keys.audit], args=given)
    return [Repair(kind, job_id) for kind, job_id in zip(reply[::2], reply[1::2], strict=True)]


def _audit(client: redis.Redis, settings: Settings) -> None:
    for repair in audit_indexes(client, settings):
        log.warning("repaired the indexes of %s: %s", repair.job_id, repair.kind)


class LeaseGuard:
    """Tracks how long workers have been able to reach Redis. The caller passes all times, in seconds.

    While Redis is unreachable, no worker can extend a lease. So after an outage, expired leases must not be ended for
    the length of a lease. The same wait follows this process' start, since the process doesn't know about earlier
    outages. It also follows if Redis' clock has advanced further than our clock: Redis' clock jumped or the machine
    slept, so all leases ran out.
    """

    def __init__(self, lease_s: float) -> None:
        self._lease_s = lease_s
        self._clear_since_s: float | None = None
        self._last: tuple[float, float] | None = None

    def away(self) -> None:
        """Redis was unreachable, or would have refused a heartbeat."""
        self._clear_since_s = None
        self._last = None

    def observe(self, redis_s: float, own_s: float) -> None:
        """Redis was reached, at `redis_s` by its clock and `own_s` by our monotonic clock."""
        jumped = self._last is not None and (redis_s - self._last[0]) - (own_s - self._last[1]) > self._lease_s / 4
        if self._clear_since_s is None or jumped:
            self._clear_since_s = own_s
        self._last = (redis_s, own_s)

    def clear(self, own_s: float) -> bool:
        """Whether leases that ran out may be ended."""
        return self._clear_since_s is not None and own_s - self._clear_since_s >= self._lease_s


_RECORDS_AT_ONCE = 1000


def drop_expired(client: redis.Redis, settings: Settings) -> int:
    """Remove up to 1000 expired jobs from all indexes. Returns the number of jobs. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    with store_errors():
        seconds, micros = client.time()
        now_ms = seconds * 1000 + micros // 1000
        members: Any = client.zrange(keys.expiring, "-inf", now_ms, byscore=True, offset=0, num=_RECORDS_AT_ONCE)
        with client.pipeline(transaction=False) as pipeline:  # a full Redis refuses every transaction
            for member in members:
                job_id, status, workload, owner, digests = ([*member.split(":"), "", ""])[:5]
                indexes = [keys.jobs, keys.jobs_with_status(status), keys.jobs_of_workload(workload)]
                indexes += [keys.webhooks, keys.webhooks_due, keys.done_of_owner(owner)]
                if owner:
                    indexes += [keys.jobs_of_owner(owner), keys.webhooks_of_owner(owner)]
                indexes += [keys.jobs_with_label(digest) for digest in digests.split(",") if digest]
                for index in indexes:
                    pipeline.zrem(index, job_id)
                pipeline.zrem(keys.expiring, member)
            pipeline.execute()
    return len(members)


def queues_to_wake(client: redis.Redis, settings: Settings) -> list[str]:
    """Names of the queues that hold jobs, have a live worker, and weren't woken in the last `reap_every_s`.

    Queues without a live worker are left out: clients may name devices that don't exist, and each has a queue. Within
    `reap_every_s`, each queue is returned to one process only. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    pause_ms = max(1, round(settings.reap_every_s * 1000))
    with store_errors():
        names: Any = client.smembers(keys.queues)
        served = sorted(fleet.served_queues(client, settings).intersection(map(str, names))) if names else []
        waiting = [name for name in served if client.zcard(keys.queue(name))]
        return [name for name in waiting if take_turn(client, keys.woken(name), pause_ms)]


def take_turn(client: redis.Redis, name: str, pause_ms: int) -> bool:
    """Take the turn `name`. Returns False if a process has taken it in the last `pause_ms`.

    Ignores a turn that was taken in the future. Such a turn means that Redis' clock has stepped back since, and the
    key's TTL has become longer by the size of that step.
    """
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros // 1000
    if client.set(name, now_ms, nx=True, px=pause_ms):
        return True
    taken_ms: Any = client.get(name)
    return int(taken_ms or 0) > now_ms and bool(client.set(name, now_ms, px=pause_ms))


STOP_WITHIN_S = 10.0  # `stop` waits this long for the thread, which may still wait for a reply and send a wake-up


class Maintenance:
    """Maintenance every `settings.reap_every_s`, from `start()` to `stop()`. Safe in several processes at once."""

    def __init__(
        self,
        settings: Settings,
        wake: Callable[[str], object],
        chores: Mapping[str, Callable[[redis.Redis], object]] | None = None,
    ) -> None:
        """`wake` sends one wake-up for the named queue; it may raise StoreUnavailable.

        `chores`: further tasks, by name.
        """
        self._settings = settings
        self._wake = wake
        self._chores = {
            "dropping what expired": lambda client: drop_expired(client, settings),
            "auditing the indexes": lambda client: _audit(client, settings),
            **(chores or {}),
        }
        self._guard = LeaseGuard(settings.lease_s)
        self._stop = threading.Event()
        self._failing: set[str] = set()
        self._thread = threading.Thread(target=self._run, name="maintenance", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread and wait until it ends."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(STOP_WITHIN_S)

    def _run(self) -> None:
        with sync_client(self._settings) as client:
            while not self._stop.is_set():
                self._attempt(client)
                self._stop.wait(self._settings.reap_every_s)

    def _attempt(self, client: redis.Redis) -> None:
        """Run each part, even if others fail: when a full Redis refuses wake-ups, leases must still expire."""
        try:
            self._reap(client)
        except StoreUnavailable as error:
            self._guard.away()
            self._report("reaping", error)
            return
        except Exception:
            log.exception("expiring leases failed; maintenance continues")
        else:
            self._failing.discard("reaping")
        waiting: list[str] = []
        self._part("looking for queues to wake", lambda: waiting.extend(queues_to_wake(client, self._settings)))
        for queue in waiting:
            self._part(f"waking {queue}", partial(self._wake, queue))
        for name, chore in self._chores.items():
            self._part(name, partial(chore, client))

    def _part(self, name: str, work: Callable[[], object]) -> None:
        try:
            work()
        except StoreUnavailable as error:
            self._report(name, error)
        except Exception:
            log.exception("%s failed; maintenance continues", name)
        else:
            self._failing.discard(name)

    def _report(self, name: str, error: StoreUnavailable) -> None:
        """Log the error once per outage: in a long outage, repeated lines would fill the log."""
        if name not in self._failing:
            log.warning("maintenance is paused until Redis is back (%s): %s", name, error.detail)
        self._failing.add(name)

    def _reap(self, client: redis.Redis) -> None:
        redis_s, now_s = redis_now_s(client, self._settings), time.monotonic()
        self._guard.observe(redis_s, now_s)
        for device in shorten_leases(client, self._settings):
            log.warning("Redis' clock stepped back: the lease of %s ends after one length without a heartbeat", device)
        if self._guard.clear(now_s):
            for job_id in expire_leases(client, self._settings):
                log.warning("the lease of %s ran out: its worker stopped reporting", job_id)
