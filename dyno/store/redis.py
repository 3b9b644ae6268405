"""How Dyno uses Redis: connections, checks of the server, key names and Lua scripts.

Every module of the store imports its error handling (`store_errors`), key names (`Keys`) and scripts (`SCRIPT_SOURCES`)
from here. `store_errors` is the one place that converts Redis' errors to Dyno's.

Each script is sent as `_ledger.lua` followed by its own text; scripts for sweeps and schedules have another script in
between. `_ledger.lua` is the code that all scripts share, with the table of job transitions and the histogram bounds
`BOUNDS_S`. The import fails if a Lua file isn't named in `Script`, or a name in `Script` has no file. `_ledger.lua`
builds the same key names as `Keys`; each begins with the namespace.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final

import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.models.job import TRANSITIONS
from dyno.settings import Durability, Settings
from dyno.store.pipelining import PipeliningRedis

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
_TRANSIENT_ERRORS = ("MISCONF", "OOM", "READONLY", "NOREPLICAS", "BUSY", "MASTERDOWN", "LOADING", "UNBLOCKED")
CHECK_IDLE_AFTER_S = 25  # shorter than the idle limits of common proxies and firewalls
# A restarted server resets each connection once. Every script is idempotent, so two retries are safe. With an
# unreachable server they cost 0.15 s. Timeouts aren't retried, as that would triple the wait.
_RETRIES, _BACKOFF = 2, ExponentialBackoff(cap=0.2, base=0.025)
_CONNECTIONS = 32  # per API process; further requests wait for a free connection instead of failing
_OLDEST_SERVER = (7, 0)
_FULL_FROM = 0.95
_CLOSED = "the handler is closed"
_SYNCING = ("appendfsync", "no-appendfsync-on-rewrite")


def _url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise StoreUnfit("no Redis is configured: set DYNO_REDIS_URL, or start a server with `dyno up`")
    return settings.redis_url


def _options(settings: Settings) -> dict[str, Any]:
    # A Unix socket needs no network, so that only a slow process could reach the timeout for a dead host.
    is_local = _url(settings).startswith("unix:")
    return {
        "decode_responses": True,
        "socket_connect_timeout": ANSWER_TIMEOUT_S if is_local else CONNECT_TIMEOUT_S,
        "health_check_interval": CHECK_IDLE_AFTER_S,
    }


def sync_client(settings: Settings) -> redis.Redis:
    """A client for threads (workers, maintenance). Connects on first use. Raises StoreUnfit without a URL."""
    retry = Retry(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(_url(settings), socket_timeout=ANSWER_TIMEOUT_S, retry=retry, **_options(settings))


def async_client(settings: Settings) -> PipeliningRedis:
    """A client for the API's event loop."""
    return PipeliningRedis(_async_pool(settings, ANSWER_TIMEOUT_S), _RETRIES, _BACKOFF)


def blocking_client(settings: Settings) -> redis.asyncio.Redis:
    """A client for blocking reads in the API's event loop: it has no socket timeout."""
    return redis.asyncio.Redis.from_pool(_async_pool(settings, None))


def _async_pool(settings: Settings, timeout_s: float | None) -> redis.asyncio.BlockingConnectionPool:
    retry = _UnlessSilent(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError,))
    return redis.asyncio.BlockingConnectionPool.from_url(
        _url(settings),
        max_connections=_CONNECTIONS,
        timeout=ANSWER_TIMEOUT_S,
        socket_timeout=timeout_s,
        retry=retry,
        **_options(settings),
    )


class _UnlessSilent(AsyncRetry):
    """Retries lost connections, but not timeouts.

    On a Unix socket, redis-py reports a timeout during the handshake as a lost connection. Event loops report a lost
    connection with different errors; all of them are retried.
    """

    async def call_with_retry(
        self, do: Any, fail: Any, is_retryable: Any = None, with_failure_count: bool = False
    ) -> Any:
        return await super().call_with_retry(
            partial(_with_redis_errors, do), fail, is_retryable or _is_no_timeout, with_failure_count
        )


async def _with_redis_errors(do: Callable[[], Awaitable[Any]]) -> Any:
    """Convert uvloop's error for a write to a lost connection. uvloop is the API's event loop."""
    try:
        return await do()
    except RuntimeError as error:
        if _CLOSED in str(error):
            raise redis.ConnectionError(str(error)) from error
        raise


def _is_no_timeout(error: Exception) -> bool:
    return not isinstance(error.__cause__, redis.TimeoutError)


@contextmanager
def store_errors() -> Iterator[None]:
    """Convert temporary errors to StoreUnavailable: unreachable, full, read-only, unable to write, still loading.

    A missing script is a temporary error, too: redis-py loads it and calls it again, but the server may restart in
    between.
    """
    try:
        yield
    except (
        redis.ConnectionError,
        redis.TimeoutError,
        redis.ReadOnlyError,
        redis.OutOfMemoryError,
        redis.exceptions.NoScriptError,
    ) as error:
        raise StoreUnavailable(f"Redis can't be used now: {error}") from error
    except redis.ResponseError as error:
        if str(error).startswith(_TRANSIENT_ERRORS):
            raise StoreUnavailable(f"Redis can't be used now: {error}") from error
        raise


def is_wrong_type(error: redis.ResponseError) -> bool:
    """Whether the command met a value of another type: the data were damaged, or edited by hand."""
    return str(error).startswith("WRONGTYPE")


def unless_wrong_type(reply: Any) -> Any:
    """A reply of a pipeline that raises no errors; None for a value of a wrong type. Raises all other errors."""
    if isinstance(reply, redis.ResponseError) and is_wrong_type(reply):
        return None
    if isinstance(reply, Exception):
        raise reply
    return reply


@asynccontextmanager
async def index_errors(client: redis.asyncio.Redis, keys: "Keys") -> AsyncIterator[None]:
    """As `store_errors`, for the read of an index. If its value has a wrong type, tells maintenance to rebuild all
    indexes (`repair_damage`), and raises StoreUnavailable.
    """
    with store_errors():
        try:
            yield
        except redis.ResponseError as error:
            if not is_wrong_type(error):
                raise
            await client.sadd(keys.damaged, f"{keys.jobs}:*")
            raise StoreUnavailable("an index is damaged; it is made again from the records within seconds") from error


Fault = StoreUnfit | StoreUnavailable


def check_server(client: redis.Redis, settings: Settings, *, with_syncing: bool = True) -> list[Fault]:
    """Problems of the server. StoreUnfit: it may lose jobs; StoreUnavailable: it can't take jobs now.

    Raises StoreUnfit for a server that no process may start with: it may evict jobs, or can't run the scripts.

    with_syncing: also check how often it syncs, which takes the right to read its configuration.
    """
    with store_errors():
        info: Mapping[str, Any] = client.info()
        if not with_syncing:
            return judge_server(info, {}, "none" if settings.durability == "none" else "everysec")
        try:
            syncing: Any = client.config_get(*_SYNCING)
        except redis.ResponseError as error:
            syncing = _config_denied(error)
    return judge_server(info, syncing, settings.durability)


async def check_server_async(client: redis.asyncio.Redis, settings: Settings) -> list[Fault]:
    """`check_server` for the API's asynchronous client."""
    with store_errors():
        info: Mapping[str, Any] = await client.info()
        try:
            syncing: Any = await client.config_get(*_SYNCING)
        except redis.ResponseError as error:
            syncing = _config_denied(error)
    return judge_server(info, syncing, settings.durability)


def judge_server(info: Mapping[str, Any], syncing: Mapping[str, str], durability: Durability) -> list[Fault]:
    """Apply the rules of `check_server` to the fields of INFO and the server's sync configuration.

    `syncing` is empty if this user may not read the configuration. `durability`: the requested level; "always" is
    strict, and with "none" a server without persistence is no fault.
    """
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnfit(f"Redis may evict jobs: maxmemory-policy is {policy}; set it to noeviction")
    if info.get("redis_mode") == "cluster" or info.get("cluster_enabled"):
        raise StoreUnfit("Redis Cluster can't run scripts over several keys: use a single server")
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
        raise StoreUnfit(f"Redis {version} is too old: Dyno needs 7.0 or newer")
    losing = () if durability == "none" else _persistence_complaints(info, syncing, durability)
    return [*map(StoreUnfit, losing), *map(StoreUnavailable, _server_complaints(info))]


def loss_note(settings: Settings) -> str | None:
    """What `DYNO_DURABILITY=none` means; None for another level."""
    if settings.durability != "none":
        return None
    return "DYNO_DURABILITY is none, so Dyno accepts jobs even if a restart of Redis loses all of them"


def memory_note(info: Mapping[str, Any]) -> str | None:
    """What is wrong with a server that has no memory limit, and what to do; None if it has one."""
    if info.get("maxmemory", 0):
        return None
    return (
        "Redis has no memory limit, so the kernel may kill it when the host's memory is full; set maxmemory below the "
        "host's free memory, and keep maxmemory-policy noeviction"
    )


async def read_memory_note(client: redis.asyncio.Redis) -> str | None:
    """`memory_note` for the API. Raises StoreUnavailable."""
    with store_errors():
        return memory_note(await client.info("memory"))


def _persistence_complaints(
    info: Mapping[str, Any], syncing: Mapping[str, str], durability: Durability
) -> Iterator[str]:
    how = syncing.get("appendfsync")
    if not info.get("aof_enabled"):
        yield "Redis doesn't persist (appendonly is off): a restart loses jobs"
        return
    if how == "no":
        yield "Redis never syncs its append-only file (appendfsync is no): a power cut may take more than 2 s of jobs"
    elif durability == "always" and how is None:
        yield "DYNO_DURABILITY is always, and appendfsync can't be checked: this user may not CONFIG GET it"
    elif durability == "always" and how != "always":
        yield f"DYNO_DURABILITY is always, and Redis' appendfsync is {how}: a power cut may take the last 2 s of jobs"
    if syncing.get("no-appendfsync-on-rewrite") == "yes":
        yield "Redis stops syncing while it rewrites its append-only file (no-appendfsync-on-rewrite is yes)"


def _config_denied(error: redis.ResponseError) -> Mapping[str, str]:
    """Empty if CONFIG is unavailable, as on hosted servers, or denied by an ACL. Raises any other error again."""
    if isinstance(error, NoPermissionError) or str(error).startswith("unknown command"):
        return {}
    raise error


def _server_complaints(info: Mapping[str, Any]) -> Iterator[str]:
    if info.get("aof_last_write_status") == "err":
        yield "Redis can't write its append-only file"
    if info.get("loading"):
        yield "Redis is still loading its data"
    if info.get("role") == "slave":
        yield "Redis is a read-only replica"
    limit = info.get("maxmemory", 0)
    if limit and info.get("used_memory", 0) > _FULL_FROM * limit:
        yield f"Redis is full: {info['used_memory']} of {limit} bytes used"


JOB_ID = re.compile(r"job_[0-9A-HJKMNP-TV-Z]{26}")  # as made by dyno.models.job.new_job_id
SWEEP_ID = re.compile(r"swp_[0-9A-HJKMNP-TV-Z]{26}")  # as made by dyno.models.sweep.new_sweep_id


@dataclass(frozen=True)
class Keys:
    """Key names under one namespace; the type of each key's value is in its comment."""

    namespace: str

    def _key(self, *parts: str) -> str:
        return ":".join((self.namespace, *parts))

    def job(self, job_id: str) -> str:
        return self._key("job", job_id)  # HASH: the record

    def result(self, job_id: str) -> str:
        return self._key("job", job_id, "result")  # STRING: JSON, as a gzip file; see documents.py

    def samples(self, job_id: str) -> str:
        return self._key("job", job_id, "samples")  # STRING: JSON, as a gzip file

    def log(self, job_id: str) -> str:
        return self._key("job", job_id, "log")  # HASH: pieces by number, and the fields first, next, bytes, last

    def partial(self, job_id: str) -> str:
        return self._key("job", job_id, "partial")  # HASH: the figures after each run of the current attempt

    def job_events(self, job_id: str) -> str:
        return self._key("job", job_id, "events")  # STREAM

    def webhook(self, job_id: str) -> str:
        return self._key("job", job_id, "webhook")  # HASH: the delivery of a done job, and each attempt at it

    @property
    def events(self) -> str:
        return self._key("events")  # STREAM: events of all jobs

    @property
    def jobs(self) -> str:
        return self._key("jobs")  # ZSET: job ids by creation, ms; the indexes below have the same type

    def jobs_with_status(self, status: str) -> str:
        return self._key("jobs", "status", status)

    def jobs_of_workload(self, workload: str) -> str:
        return self._key("jobs", "workload", workload)

    def jobs_of_owner(self, owner: str) -> str:
        return self._key("jobs", "owner", owner)  # ZSET: jobs of one API key

    @property
    def owners(self) -> str:
        return self._key("jobs", "done")  # SET: owners of done jobs

    def done_of_owner(self, owner: str) -> str:
        return self._key("jobs", "done", owner)  # ZSET: done jobs of one API key, "" for none, by when they were stored

    def jobs_with_label(self, digest: str) -> str:
        return self._key("jobs", "label", digest)  # ZSET: jobs with one label; the digest is that of _ledger.lua

    def queued_of_owner(self, owner: str) -> str:
        return self._key("jobs", "queued", owner)  # ZSET: queued jobs of one API key

    def turns(self, queue: str) -> str:
        return self._key("jobs", "turns", queue)  # HASH: the rounds in which keys take turns; see _ledger.lua

    def waiting(self, queue: str, owner: str) -> str:
        return self._key("jobs", "waiting", queue, owner)  # ZSET: jobs of one API key in the queue, scored as there

    @property
    def webhooks(self) -> str:
        return self._key("jobs", "webhooks")  # ZSET: done jobs with a webhook by their end, ms; one per owner, too

    @property
    def webhooks_due(self) -> str:
        return self._key("jobs", "webhooks", "due")  # ZSET: pending deliveries by time of the next attempt, ms

    @property
    def webhooks_ready(self) -> str:
        return self._key("jobs", "webhooks", "ready")  # ZSET: owners of due deliveries; see deliver.lua

    def webhooks_of_owner(self, owner: str) -> str:
        return self._key("jobs", "webhooks", "owner", owner)

    def spent(self, owner: str, day: int) -> str:
        return self._key("spent", owner, str(day))  # HASH {device_ms} with a TTL of two days; days since 1970

    @property
    def api_keys(self) -> str:
        return self._key("keys")  # ZSET: ids of all API keys ever made, by creation in ms

    @property
    def opened(self) -> str:
        return self._key("key", "opened")  # STRING: when `dyno keys open` last allowed requests without a key

    def api_key(self, key_id: str) -> str:
        return self._key("key", key_id)  # HASH: an API key, with a digest of its secret until it is revoked

    def session(self, digest: str) -> str:
        return self._key("session", digest)  # STRING with a TTL: the digest of the key of a browser's session

    def peers(self, series: str) -> str:
        return self._key("peers", series)  # LIST with its own TTL: figures of results, JSON, newest first

    def paces(self, series: str) -> str:
        return self._key("paces", series)  # LIST with its own TTL: "expected_s took_s", newest first

    def alarms(self, series_id: str) -> str:
        return self._key("alarms", series_id)  # HASH with its own TTL: "<job> <field of AlarmRecord>" -> value

    @property
    def alarms_checked(self) -> str:
        return self._key("alarms", "checked")  # STRING with a TTL: an API has just looked for new alarms

    @property
    def alarms_looked(self) -> str:
        return self._key("alarms", "looked")  # HASH: workload -> the last look for new alarms, "<succeeded> <at_s>"

    def comparison(self, comparison_id: str) -> str:
        return self._key("comparison", comparison_id)  # STRING: JSON, expires with the job that expires first

    def baselines(self, owner: str | None) -> str:
        return self._key("baselines", owner or "")  # HASH: name -> baseline of this API key, JSON

    @property
    def baseline_owners(self) -> str:
        return self._key("baselines")  # SET: owners of baselines, "" for those saved without a key

    def sweep(self, sweep_id: str) -> str:
        return self._key(
            "sweep", sweep_id
        )  # HASH: id, owner, sweep (JSON), created_at, cancel_requested_at, "stopped <place>"

    @property
    def sweeps(self) -> str:
        return self._key("sweeps")  # ZSET: sweep ids by creation, ms; one per owner, too

    @property
    def sweeps_watched(self) -> str:
        return self._key("sweeps", "watched")  # SET: sweeps whose points may be stopped, until their jobs are done

    def sweeps_of_owner(self, owner: str) -> str:
        return self._key("sweeps", "owner", owner)

    @property
    def sweeps_due(self) -> str:
        return self._key("sweeps", "due")  # ZSET: sweeps by the time to check whether their jobs are gone, ms

    def schedules(self, owner: str | None) -> str:
        return self._key("schedules", owner or "")  # HASH: name -> schedule of this API key, JSON

    @property
    def schedule_owners(self) -> str:
        return self._key("schedules")  # SET: owners of schedules, "" for those saved without a key

    @property
    def schedules_due(self) -> str:
        return self._key("schedules", "due")  # ZSET: "<owner>:<name>" by the next firing, ms

    @property
    def expiring(self) -> str:
        return self._key("expiring")  # ZSET: done jobs by expiry of the record, ms; members as made by _ledger.lua

    @property
    def counts(self) -> str:
        return self._key("counts")  # HASH: counters for Prometheus

    @property
    def artifacts(self) -> str:
        return self._key("artifacts")  # ZSET: jobs with files by time of the next cleanup check, ms

    def queue(self, name: str) -> str:
        return self._key("queue", name)  # ZSET: job ids by priority class and turn; see _ledger.lua

    @property
    def queues(self) -> str:
        return self._key("queues")  # SET: names of the queues that aren't empty

    def classes(self, queue: str) -> str:
        return self._key("classes", queue)  # HASH: placement class -> its answers by device profile

    def class_jobs(self, queue: str, placement_class: str) -> str:
        return self._key("class", queue, placement_class)  # ZSET: jobs of the class, scored as in the queue

    def indexed(self, queue: str) -> str:
        return self._key(
            "indexed", queue
        )  # STRING with a TTL: maintenance has just corrected the classes of this queue

    def passed(self, queue: str) -> str:
        return self._key("passed", queue)  # HASH with a short TTL: device profile -> score up to which no job fits it

    @property
    def resting(self) -> str:
        return self._key("resting")  # SET: queues whose jobs don't fit a worker that is idle because of that

    def woken(self, queue: str) -> str:
        return self._key("woken", queue)  # STRING with a short TTL: when maintenance has just woken this queue, ms

    def lease(self, device: str) -> str:
        return self._key("lease", device)  # HASH

    @property
    def leases(self) -> str:
        return self._key("leases")  # ZSET: devices by expiry of their lease, ms

    @property
    def audit(self) -> str:
        return self._key("jobs", "audit")  # HASH: how far the audit of the indexes has come; see audit.lua

    @property
    def damaged(self) -> str:
        return self._key("jobs", "damaged")  # SET: keys that had values of wrong types, until they are made again

    @property
    def repairing(self) -> str:
        return self._key("jobs", "repairing")  # STRING with a TTL: a process makes the damaged keys again, since ms

    def worker(self, worker_id: str) -> str:
        return self._key("worker", worker_id)  # STRING with a short TTL: JSON

    def worker_heartbeat(self, worker_id: str) -> str:
        return self._key("worker", worker_id, "heartbeat")  # STRING with the same TTL: seconds since 1970

    def host(self, name: str) -> str:
        return self._key("worker", name, "host")  # STRING with the same TTL: boot id of the machine with this name

    @property
    def workers(self) -> str:
        return self._key("workers")  # SET

    @property
    def cordoned(self) -> str:
        return self._key("cordoned")  # SET: full ids of cordoned devices

    def idempotency(self, owner: str | None, key: str) -> str:
        """HASH. The digest allows any length and any characters in a caller's key. It includes the owner, so the keys
        of different owners can't collide.
        """
        digest = hashlib.sha256(f"{owner or ''}\n{key}".encode(errors="surrogatepass")).hexdigest()
        return self._key("idempotency", digest)


_SCRIPTS_FOLDER = Path(__file__).parent
RESERVED_BYTES = 10_000  # for a job until it is done: a done one takes 6 to 11 kB, a queued one 2.6 kB
# Upper bounds of the scripts' histograms, in seconds.
BOUNDS_S: Final[Mapping[str, Sequence[float]]] = {
    "wait": (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 14400),
    "attempt": (0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 14400),
}


class Script(StrEnum):
    """The names of all scripts; the text of each is `SCRIPT_SOURCES[name]`."""

    SUBMIT = "submit"
    IMPORT = "import"
    READ = "read"
    LIST = "list"
    CLAIM = "claim"
    INDEX = "index"
    HEARTBEAT = "heartbeat"
    FINISH = "finish"
    REQUEUE = "requeue"
    CANCEL = "cancel"
    STATUSES = "statuses"
    SUBMIT_SWEEP = "submit_sweep"
    CANCEL_SWEEP = "cancel_sweep"
    STOP_POINT = "stop_point"
    EXPIRE = "expire"
    SHORTEN = "shorten"
    AUDIT = "audit"
    REMOVE = "remove"
    DELETE = "delete"
    ADMIT = "admit"
    REVOKE = "revoke"
    OPEN = "open"
    DELIVER = "deliver"
    SETTLE = "settle"
    REDELIVER = "redeliver"
    ALARM = "alarm"
    SCHEDULE = "schedule"


# Scripts that call another script for each of their jobs; they contain it as a function of the same name.
_WITHIN = {
    Script.SUBMIT_SWEEP: Script.SUBMIT,
    Script.CANCEL_SWEEP: Script.CANCEL,
    Script.SCHEDULE: Script.SUBMIT,
    Script.STOP_POINT: Script.CANCEL,
}


def _transitions_in_lua() -> str:
    pairs = (f"['{before or 'none'} {event}'] = '{after}'" for (before, event), after in TRANSITIONS.items())
    return f"local TRANSITIONS = {{ {', '.join(pairs)} }}\n"


def _bounds_in_lua() -> str:
    lists = (f"{what} = {{ {', '.join(map(str, bounds))} }}" for what, bounds in BOUNDS_S.items())
    return f"local BOUNDS_S = {{ {', '.join(lists)} }}\n"


def load_scripts(folder: Path = _SCRIPTS_FOLDER) -> dict[Script, str]:
    """Read all scripts. Raises RuntimeError that lists scripts without a caller and callers without a script."""
    files = {path.stem: path.read_text() for path in folder.glob("*.lua") if not path.stem.startswith("_")}
    names = {script.value for script in Script}
    if files.keys() != names:
        raise RuntimeError(
            f"Lua scripts without a caller: {sorted(files.keys() - names)}, "
            f"callers without a Lua script: {sorted(names - files.keys())}"
        )
    reserved = f"local RESERVED_BYTES = {RESERVED_BYTES}\n"
    ledger = _transitions_in_lua() + _bounds_in_lua() + reserved + (folder / "_ledger.lua").read_text()
    before = {script: ledger + _as_function(within, files[within]) for script, within in _WITHIN.items()}
    return {script: _with_ledger(before.get(script, ledger), files[script]) for script in Script}


def _as_function(name: str, text: str) -> str:
    """The script as a Lua function, whose arguments hide the KEYS and ARGV of the script around it."""
    _, _, body = text.partition("\n")
    return f"\nlocal function {name}(KEYS, ARGV)\n{body}\nend\n"


def _with_ledger(ledger: str, text: str) -> str:
    """Insert the ledger after the first line, from which Redis reads the flags."""
    flags, _, body = text.partition("\n")
    return f"{flags}\n{ledger}\n{body}"


SCRIPT_SOURCES: Final = load_scripts()
