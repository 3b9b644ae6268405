"""Maintenance of the store, in a thread of every API and worker process.

It ends leases that ran out, once their workers have had the chance to extend them. It wakes queues that hold jobs, at a
bounded rate, because wake-ups may be lost. It removes index entries of expired records, and compares some jobs with
their leases and queues. The API's also keeps the limits on done jobs, and brings the indexes up to date.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import redis

from dyno.errors import StoreUnavailable
from dyno.models.job import DONE, MAX_ATTEMPTS, Failure, FailureClass
from dyno.settings import Settings
from dyno.store import fleet
from dyno.store.artifacts import SETTLED_S
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

    Returns the ids of these jobs. Does nothing until Redis has been up for a whole lease, because until then a worker
    may not have had the chance to extend its lease. Safe to run in several processes at once. Raises StoreUnavailable.
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
        except redis.ResponseError as error:  # the other leases count as well
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
        # Redis checks a script's flags before it runs it. This one has a heartbeat's flags and does nothing.
        _expire(client, Keys(settings.namespace), _NO_DEVICE)
    return float(seconds + micros / 1e6)


def _expire(client: redis.Redis, keys: Keys, device: str) -> list[Any]:
    expire = client.register_script(SCRIPT_SOURCES[Script.EXPIRE])
    ending = (MAX_ATTEMPTS, WORKER_LOST.model_dump_json())
    reply: list[Any] = expire(keys=[keys.lease(device), keys.leases], args=[keys.namespace, device, *ending])
    return reply


def shorten_leases(client: redis.Redis, settings: Settings) -> list[str]:
    """Let leases that end later than two of their lengths from now end after one without a heartbeat. Returns their
    devices.

    Redis' clock has stepped back since their last heartbeats. Raises StoreUnavailable.
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
    "running_without_lease",  # its worker may be gone: it got a lease, or went back to its queue
    "lease_not_listed",  # the lease would never have expired
    "queued_without_queue",  # no claim would have found it
    "queue_not_listed",  # maintenance wouldn't have woken the queue
    "wrong_status",  # the index of a status had the job, and its record another status
    "status_not_listed",  # the index of its status lacked the job
    "stream",  # a value of another type was in the place of a stream of events
    "index",  # a value of another type was in the place of an index, a webhook's delivery or an owner's device time
    "failed",  # the record is damaged; the log says how
)
_AUDITED_AT_ONCE = 200  # running jobs, queued jobs, and jobs of any status: about 1 ms of Redis


def audit_indexes(client: redis.Redis, settings: Settings, job_ids: Sequence[str] = ()) -> list[Repair]:
    """Compare 200 running and 200 queued jobs with leases and queues, and 200 of all jobs with the index of a status.

    Repairs what differs. One process does this every `reap_every_s`, for the next jobs. With `job_ids`, puts those jobs
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

    While Redis is unreachable, no worker can extend a lease. So after an outage, one whole lease has to pass before
    expired leases count. The same holds after this process' start, since it doesn't know about earlier outages. It also
    holds if Redis' clock has advanced further than ours: its host's clock jumped or the machine slept, so all leases
    ran out.
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


def index_queue(client: redis.Redis, settings: Settings, queue: str) -> None:
    """Make the placement classes of a queue hold exactly its jobs, 100 at a time. Raises StoreUnavailable."""
    keys = Keys(settings.namespace)
    index, cursor = client.register_script(SCRIPT_SOURCES[Script.INDEX]), "-inf"
    while cursor:
        with store_errors():
            _, *following = index(keys=[keys.queue(queue)], args=[keys.namespace, queue, cursor])
        cursor = following[0] if following else ""


_INDEXED_EVERY_S = 600.0  # a claim notices most differences itself; see claim.lua


def index_queues(client: redis.Redis, settings: Settings) -> None:
    """Call `index_queue` for each queue that a live worker serves, in one process every ten minutes.

    A version without classes changes the queues alone. If it queues as many jobs as it claims, no claim notices.
    """
    keys, pause_ms = Keys(settings.namespace), round(_INDEXED_EVERY_S * 1000)
    with store_errors():
        for queue in _served(client, settings):
            if _take_turn(client, keys.indexed(queue), pause_ms):
                index_queue(client, settings, queue)


_LABELED_AT_ONCE = 100  # about 2 ms of Redis
_LABEL_STEPS = 50


def index_labels(client: redis.Redis, settings: Settings) -> bool:
    """Add up to 5000 jobs of a version without indexes of labels to those indexes. Returns whether all are in them.

    Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    label = client.register_script(SCRIPT_SOURCES[Script.LABEL])
    with store_errors():
        for _ in range(_LABEL_STEPS):
            reply: Any = label(keys=[keys.labeled, keys.jobs], args=[keys.namespace, _LABELED_AT_ONCE])
            if reply[0] == "complete":
                return True
    return False


_DROPPED_AT_ONCE, _CANDIDATES = 50, 100  # candidates of each status of DONE
_WEBHOOK_ENDED = (None, "delivered", "failed")
_PAGES = 20  # of candidates: behind 2000 jobs with pending webhooks, no job is deleted until some of them are delivered
_NOT_JOBS = ("mem_clients_normal", "mem_aof_buffer")  # memory for replies and writes that are under way


def drop_oldest(client: redis.Redis, settings: Settings) -> Mapping[str, int]:
    """Delete done jobs beyond the limits, of one key those that were stored first. At most 1000 jobs a call.

    First the jobs of each key beyond its own limit, or `key_stored_jobs`. Then, while there are more than `max_done` or
    Redis uses more memory than `max_store_bytes`, jobs of the key with the most. Returns their number by limit. Raises
    StoreUnavailable.

    A job whose webhook is neither delivered nor failed stays. Safe to run in several processes at once.
    """
    keys, dropped = Keys(settings.namespace), Counter[str]()
    with store_errors():
        held = _held_by_owner(client, keys)
        for owner, most in _limits_of_keys(client, keys, settings, held).items():
            while held[owner] > most and dropped.total() < _RECORDS_AT_ONCE:
                number = min(held[owner] - most, _DROPPED_AT_ONCE)
                if not (deleted := _delete_oldest(client, keys, owner, number, most, "1")):
                    break
                held[owner] -= deleted
                dropped["key_stored_jobs"] += deleted
        while dropped.total() < _RECORDS_AT_ONCE and held and (over := _exceeded(client, keys, settings)):
            limit, surplus = over
            (owner, most), (_, second) = [*held.most_common(2), ("", 0)][:2]
            number = min(surplus, max(1, most - second), _DROPPED_AT_ONCE)
            keeping = settings.max_done if limit == "max_done" else None
            if deleted := _delete_oldest(client, keys, owner, number, keeping or 0):
                held[owner] -= deleted
                dropped[limit] += deleted
            else:
                del held[owner]
        for limit, number in dropped.items():
            client.hincrby(keys.counts, f"dropped {limit}", number)
    return dropped


def _held_by_owner(client: redis.Redis, keys: Keys) -> Counter[str]:
    """The number of done jobs of each owner that has any."""

    def counted() -> Counter[str]:
        owners: list[Any] = sorted(client.smembers(keys.owners))
        with client.pipeline(transaction=False) as pipeline:
            for owner in owners:
                pipeline.zcard(keys.done_of_owner(owner))
            return +Counter(dict(zip(owners, pipeline.execute(), strict=True)))

    held = counted()
    if held.total() < sum(client.zcard(keys.jobs_with_status(status)) for status in DONE):
        _index_done(client, keys)  # jobs of a version without these indexes
        held = counted()
    return held


def _index_done(client: redis.Redis, keys: Keys) -> None:
    """Add the done jobs that are in no index of `Keys.done_of_owner`, by their ends."""
    for status in DONE:
        for start in count(0, _RECORDS_AT_ONCE):
            ids: Any = client.zrange(keys.jobs_with_status(status), start, start + _RECORDS_AT_ONCE - 1)
            if not ids:
                break
            with client.pipeline(transaction=False) as pipeline:
                for job_id in ids:
                    pipeline.hmget(keys.job(job_id), "owner", "finished_at")
                records: list[Any] = pipeline.execute()
                for job_id, (owner, finished_at) in zip(ids, records, strict=True):
                    if finished_at:
                        ended_ms = int(float(finished_at) * 1000)
                        pipeline.sadd(keys.owners, owner or "")
                        pipeline.zadd(keys.done_of_owner(owner or ""), {job_id: ended_ms}, nx=True)
                pipeline.execute()


def _limits_of_keys(client: redis.Redis, keys: Keys, settings: Settings, owners: Collection[str]) -> Mapping[str, int]:
    """The most stored jobs of each key that has a limit; requests without a key have none."""
    owned = [owner for owner in owners if owner]
    with client.pipeline(transaction=False) as pipeline:
        for owner in owned:
            pipeline.hget(keys.api_key(owner), "stored_jobs")
        own: list[Any] = pipeline.execute()
    limits = {owner: int(most) if most else settings.key_stored_jobs for owner, most in zip(owned, own, strict=True)}
    return {owner: most for owner, most in limits.items() if most is not None}


def _exceeded(client: redis.Redis, keys: Keys, settings: Settings) -> tuple[str, int] | None:
    """The limit that is exceeded, and how many jobs to delete before the next look."""
    if settings.max_done is None and settings.max_store_bytes is None:
        return None
    done: int = sum(client.zcard(keys.jobs_with_status(status)) for status in DONE)
    if settings.max_done is not None and done > settings.max_done:
        return "max_done", done - settings.max_done
    if settings.max_store_bytes is not None:
        memory: Any = client.info("memory")
        if memory["used_memory"] - sum(memory.get(name, 0) for name in _NOT_JOBS) > settings.max_store_bytes:
            return "max_store_bytes", max(1, done // 10)  # a few large jobs may take all of the memory
    return None


def _delete_oldest(client: redis.Redis, keys: Keys, owner: str, number: int, keeping: int, *of_owner: str) -> int:
    """Delete up to `number` jobs of the owner, and leave `keeping` done ones, of all owners or `of_owner`, whatever
    other processes delete at the same time. Jobs further behind are looked at only if none of the first may go.
    """
    delete, index = client.register_script(SCRIPT_SOURCES[Script.DELETE]), keys.done_of_owner(owner)
    for start in range(0, _PAGES * _CANDIDATES, _CANDIDATES):
        candidates: list[Any] = client.zrange(index, start, start + _CANDIDATES - 1)
        if not candidates:
            break
        with client.pipeline(transaction=False) as pipeline:
            for job_id in candidates:
                pipeline.hget(keys.webhook(job_id), "status")
            told: list[Any] = pipeline.execute()
            oldest = [job_id for job_id, status in zip(candidates, told, strict=True) if status != "pending"][:number]
            for job_id in oldest:
                args = [keys.namespace, job_id, round(SETTLED_S * 1000), keeping, *of_owner]
                delete(keys=[keys.job(job_id), keys.artifacts], args=args, client=pipeline)
            replies = [reply[0] for reply in pipeline.execute()]
        gone = [job_id for job_id, reply in zip(oldest, replies, strict=True) if reply == "unknown"]
        if gone:  # expired
            client.zrem(index, *gone)
        if deleted := replies.count("deleted"):
            return deleted
    return 0


def queues_to_wake(client: redis.Redis, settings: Settings) -> list[str]:
    """Names of the queues that hold jobs, have a live worker, and weren't woken in the last `reap_every_s`.

    Callers may name devices that don't exist, and each name has its own queue. Each queue is returned to one process
    only within `reap_every_s`. Raises StoreUnavailable.
    """
    keys = Keys(settings.namespace)
    pause_ms = max(1, round(settings.reap_every_s * 1000))
    with store_errors():
        waiting = [name for name in _served(client, settings) if client.zcard(keys.queue(name))]
        return [name for name in waiting if _take_turn(client, keys.woken(name), pause_ms)]


def _take_turn(client: redis.Redis, name: str, pause_ms: int) -> bool:
    """Whether no process has had this turn in the last `pause_ms`. A turn in the future doesn't count: Redis' clock
    has stepped back since, and the key's TTL has grown by as much."""
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros // 1000
    if client.set(name, now_ms, nx=True, px=pause_ms):
        return True
    taken_ms: Any = client.get(name)
    return int(taken_ms or 0) > now_ms and bool(client.set(name, now_ms, px=pause_ms))


def _served(client: redis.Redis, settings: Settings) -> list[str]:
    """The queues with jobs that a live worker serves."""
    names: Any = client.smembers(Keys(settings.namespace).queues)
    return sorted(fleet.served_queues(client, settings).intersection(map(str, names))) if names else []


STOP_WITHIN_S = 10.0  # a pending reply and a pending wake-up may take this long


class Maintenance:
    """Runs every `settings.reap_every_s`, from `start()` until `stop()`. Safe to run in several processes at once."""

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
        self._thread = threading.Thread(target=self._run, name="upkeep", daemon=True)

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
        """Run each part, even if others fail: when a full Redis refuses wake-ups, lost jobs must still be found."""
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
        """Log the error once per outage: repeated lines of a long one would fill the log."""
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
