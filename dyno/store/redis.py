"""How Dyno uses Redis: connections, checks of the server, key names and Lua scripts.

Every module of the store imports its error handling (`store_errors`), key names (`Keys`) and scripts (`SCRIPT_SOURCES`)
from here. `store_errors` is the one place that converts Redis' errors to Dyno's.

Redis gets each script behind the code that all scripts share: first the job transitions, the histogram bounds
(`BOUNDS_S`) and the patterns of keys whose damaged values may be deleted, then `_ledger.lua`. Scripts for sweeps and
schedules also contain another script as a function. The import of this module fails if a Lua file isn't named in
`Script`, or if a name in `Script` has no file.
"""

import hashlib
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, cached_property, partial
from pathlib import Path
from typing import Any, Final, Literal, Self, overload

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
# A restarted server resets each connection once. Every script is idempotent, so two retries are safe. If the server is
# unreachable, the retries take 0.15 s. Timeouts aren't retried, as that would triple the wait.
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
    # A Unix socket involves no other host, so only a slow process could exceed the shorter timeout for dead hosts.
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
    """Convert the error that uvloop, the API's event loop, raises for a write to a lost connection."""
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
    """Convert temporary errors to StoreUnavailable: Redis is unreachable, full, read-only, loading or unable to write.

    A missing script is a temporary error, too: redis-py loads the script and calls it again, but the server may restart
    in between.
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
    """Whether the key had a value of another type, because the data were damaged or edited by hand."""
    return str(error).startswith("WRONGTYPE")


def unless_wrong_type(reply: Any) -> Any:
    """A reply of a pipeline that returns errors as replies; None for a value of a wrong type. Raises other errors."""
    if isinstance(reply, redis.ResponseError) and is_wrong_type(reply):
        return None
    if isinstance(reply, Exception):
        raise reply
    return reply


async def pipelined(client: redis.asyncio.Redis, commands: Iterable[tuple[Any, ...]]) -> list[Any]:
    """The replies to commands such as ("hget", key, field), in one round trip. Raises StoreUnavailable.

    It isn't a transaction, because a full Redis refuses every transaction.
    """
    with store_errors():
        async with client.pipeline(transaction=False) as pipeline:
            for name, *arguments in commands:
                getattr(pipeline, name)(*arguments)
            return list(await pipeline.execute())


@asynccontextmanager
async def index_errors(client: redis.asyncio.Redis, keys: "Keys") -> AsyncIterator[None]:
    """Like `store_errors`, for reads of an index. If the index has a wrong type, tells maintenance to rebuild all
    indexes (`repair_damage`), and raises StoreUnavailable.
    """
    with store_errors():
        try:
            yield
        except redis.ResponseError as error:
            if not is_wrong_type(error):
                raise
            await client.sadd(keys.damaged, f"{keys.jobs}:*")
            raise StoreUnavailable("an index is damaged; it is rebuilt from the records within seconds") from error


Fault = StoreUnfit | StoreUnavailable


def check_server(client: redis.Redis, settings: Settings, *, with_syncing: bool = True) -> list[Fault]:
    """Problems of the server. StoreUnfit: it may lose jobs; StoreUnavailable: it can't take jobs now.

    Raises StoreUnfit for a server that no process may start with: it may evict jobs, or can't run the scripts.

    with_syncing: also check how often the server syncs. This requires the right to read its configuration.
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

    `syncing` is empty if this user may not read the configuration. `durability`: the requested level. "always" requires
    appendfsync always; "none" allows a server without persistence.
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
    """A sentence about the risk of `DYNO_DURABILITY=none`; None for other levels."""
    if settings.durability != "none":
        return None
    return "DYNO_DURABILITY is none, so Dyno accepts jobs even if a restart of Redis loses all of them"


def memory_note(info: Mapping[str, Any]) -> str | None:
    """The risk of a server without a memory limit, and what to do; None if the server has a limit."""
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
    """An empty configuration if CONFIG is missing, as on hosted servers, or denied by an ACL. Else raises `error`."""
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

_PART = re.compile(r"<\w+>")
KeyType = Literal["hash", "list", "set", "stream", "string", "zset"]
# "record": no other key has the data, so a damaged value is never deleted. "derived": a damaged value is deleted and
# rebuilt from the records. "spare": a damaged value is deleted and lost, because Dyno doesn't promise to keep it.
Origin = Literal["record", "derived", "spare"]


@dataclass(frozen=True)
class Key:
    """A row of `Keys`. `name`: without the namespace; parts in <> vary. `bound`: what limits its size or number."""

    name: str
    type: KeyType
    origin: Origin
    bound: str
    holds: str

    @property
    def pattern(self) -> str:
        """The name as a regular expression, which is a Lua pattern, too."""
        return f"^{_PART.sub('.*', self.name)}$"


class Single(Key):
    """One key. As an attribute of a `Keys` object, it is the key's full name."""

    @overload
    def __get__(self, keys: None, owner: type) -> Self: ...
    @overload
    def __get__(self, keys: "Keys", owner: type) -> str: ...
    def __get__(self, keys: "Keys | None", owner: type) -> Self | str:
        return self if keys is None else f"{keys.namespace}:{self.name}"


class Family(Key):
    """Keys with variable parts. As an attribute of a `Keys` object, it is a function from the parts to the full name.
    None is an empty part."""

    @overload
    def __get__(self, keys: None, owner: type) -> Self: ...
    @overload
    def __get__(self, keys: "Keys", owner: type) -> Callable[..., str]: ...
    def __get__(self, keys: "Keys | None", owner: type) -> Self | Callable[..., str]:
        return self if keys is None else partial(self._name, keys.namespace)

    @cached_property
    def _format(self) -> tuple[str, int]:
        return _PART.subn("{}", self.name)

    def _name(self, namespace: str, *parts: str | int | None) -> str:
        text, number = self._format
        if len(parts) != number:
            raise TypeError(f"{self.name} has {number} parts, not {len(parts)}")
        return f"{namespace}:{text.format(*('' if part is None else part for part in parts))}"


@dataclass(frozen=True)
class Keys:
    """All keys under one namespace, except Celery's.

    The scripts build the same names (`_ledger.lua`). The rows also say which damaged values may be deleted. The
    tests of `deploy/redis/users.acl` use the rows. An owner is the id of an API key, or "" for requests without a key.
    """

    namespace: str

    job = Family("job:<job>", "hash", "record", "TTL", "the record")
    result = Family("job:<job>:result", "string", "record", "TTL", "JSON, compressed; see results.py")
    samples = Family("job:<job>:samples", "string", "record", "TTL", "JSON, compressed")
    log = Family("job:<job>:log", "hash", "spare", "256 KiB, TTL", "pieces by number; state: first, next, bytes, …")
    partial = Family("job:<job>:partial", "hash", "spare", "the attempt", "the figures after each run of the attempt")
    job_events = Family("job:<job>:events", "stream", "spare", "1,000, TTL", "events of the job")
    webhook = Family("job:<job>:webhook", "hash", "derived", "TTL", "the delivery of a done job, with its attempts")
    events = Single("events", "stream", "spare", "10,000", "events of all jobs")
    sequence = Single("sequence", "string", "derived", "one", "the number of the last submitted job")

    jobs = Single("jobs", "zset", "derived", "jobs", "job ids by creation time, ms, as in the next four keys")
    jobs_with_status = Family("jobs:status:<status>", "zset", "derived", "jobs", "jobs with a status")
    jobs_of_workload = Family("jobs:workload:<workload>", "zset", "derived", "jobs", "jobs of a workload")
    jobs_of_owner = Family("jobs:owner:<owner>", "zset", "derived", "jobs", "jobs of an owner")
    jobs_with_label = Family("jobs:label:<digest>", "zset", "derived", "jobs", "jobs with a label; see label_digest")
    queued_of_owner = Family("jobs:queued:<owner>", "zset", "derived", "jobs", "an owner's queued jobs, by queue time")
    owners = Single("jobs:done", "set", "derived", "owners", "owners of done jobs")
    done_of_owner = Family("jobs:done:<owner>", "zset", "derived", "jobs", "done jobs by the time of storing, ms")
    expiring = Single("expiring", "zset", "derived", "jobs", "done jobs (expiring_member) by their expiry, ms")

    queue = Family("queue:<queue>", "zset", "derived", "jobs", "job ids by priority class and turn")
    queues = Single("queues", "set", "derived", "queues", "names of the queues that aren't empty")
    classes = Family("classes:<queue>", "hash", "derived", "jobs", "class -> which device profiles it fits")
    class_jobs = Family("class:<queue>:<class>", "zset", "derived", "jobs", "jobs of the class, scored as in the queue")
    turns = Family("jobs:turns:<queue>", "hash", "spare", "profiles", "last round of claims, by priority and profile")
    waiting = Family("jobs:waiting:<queue>:<owner>", "zset", "derived", "jobs", "an owner's jobs in the queue")
    served = Family("jobs:served:<device>", "zset", "spare", "TTL 1 day", "owners and queues by number of last claim")
    passed = Family("passed:<queue>", "hash", "spare", "TTL 1 min", "profile -> score up to which no job fits")
    resting = Single("resting", "set", "spare", "queues", "queues in which an idle worker found no job that fits")
    woken = Family("woken:<queue>", "string", "spare", "TTL", "when maintenance last woke this queue, ms")

    lease = Family("lease:<device>", "hash", "derived", "devices", "job, token, worker, expires_at_ms, length_ms")
    leases = Single("leases", "zset", "derived", "devices", "devices by expiry of their lease, ms")
    cordoned = Single("cordoned", "set", "spare", "devices", "full ids of cordoned devices")
    workers = Single("workers", "set", "derived", "workers", "ids of workers; a heartbeat adds its worker")
    worker = Family("worker:<worker>", "string", "record", "TTL", "the worker and its device, JSON")
    worker_heartbeat = Family("worker:<worker>:heartbeat", "string", "record", "TTL", "last heartbeat, s since 1970")
    host = Family("worker:<host>:host", "string", "record", "TTL", "boot id of the machine with this name")

    webhooks = Single("jobs:webhooks", "zset", "derived", "jobs", "done jobs with a webhook, by time of end, ms")
    webhooks_of_owner = Family("jobs:webhooks:owner:<owner>", "zset", "derived", "jobs", "an owner's jobs with webhook")
    webhooks_due = Single("jobs:webhooks:due", "zset", "derived", "jobs", "pending deliveries by the next attempt, ms")
    webhooks_ready = Single("jobs:webhooks:ready", "zset", "derived", "jobs", "owners of due deliveries, by last turn")
    receivers = Family("jobs:webhooks:ready:<owner>", "zset", "derived", "jobs", "an owner's receivers, by last turn")
    lane = Family("jobs:webhooks:ready:<owner>:<receiver>", "zset", "derived", "jobs", "due deliveries by due time, ms")
    webhooks_clock = Single("jobs:webhooks:clock", "string", "spare", "one", "Redis' time at a recent check, ms")

    api_keys = Single("keys", "zset", "record", "keys", "ids of all API keys ever made, by creation, ms")
    api_key = Family("key:<key>", "hash", "record", "keys", "an API key, with a digest of its secret")
    opened = Single("key:opened", "string", "record", "one", "when `dyno keys open` last allowed keyless requests")
    session = Family("session:<digest>", "string", "record", "TTL", "digest of the secret of a session's API key")
    spent = Family("spent:<owner>:<day>", "hash", "spare", "TTL 2 days", "device_ms of a day, numbered from 1970")
    idempotency_of = Family("idempotency:<digest>", "hash", "record", "TTL", "job and body_sha256; see `idempotency`")

    peers = Family("peers:<series>", "list", "record", "50, TTL", "headline figures of results, JSON, newest first")
    paces = Family("paces:<series>", "list", "record", "60, TTL", "jobs' estimated and actual durations, newest first")
    alarms = Family("alarms:<series>", "hash", "record", "TTL", "`<job> <field of AlarmRecord>` -> value")
    alarms_checked = Single("alarms:checked", "string", "record", "TTL", "exists until the next search for alarms")
    alarms_looked = Single("alarms:looked", "hash", "record", "workloads", "workload -> the last search for alarms")
    comparison = Family("comparison:<comparison>", "string", "record", "TTL", "JSON; expires with its first job")
    baselines = Family("baselines:<owner>", "hash", "record", "100", "name -> baseline, JSON")
    baseline_owners = Single("baselines", "set", "record", "owners", "owners of baselines")
    schedules = Family("schedules:<owner>", "hash", "record", "DYNO_MAX_SCHEDULES", "name -> schedule, JSON")
    schedule_owners = Single("schedules", "set", "derived", "owners", "owners of schedules")
    schedules_due = Single("schedules:due", "zset", "derived", "schedules", "`<owner>:<name>` by the next firing, ms")
    sweep = Family("sweep:<sweep>", "hash", "record", "its jobs", "the sweep, and why its points were stopped")
    sweeps = Single("sweeps", "zset", "derived", "sweeps", "sweep ids by creation, ms")
    sweeps_of_owner = Family("sweeps:owner:<owner>", "zset", "derived", "sweeps", "sweeps of an owner")
    sweeps_watched = Single("sweeps:watched", "set", "derived", "sweeps", "sweeps whose points may be stopped")
    sweeps_due = Single("sweeps:due", "zset", "derived", "sweeps", "sweeps by time of the next check for jobs, ms")

    artifacts = Single("artifacts", "zset", "derived", "jobs", "jobs with files by time of the next check, ms")
    counts = Single("counts", "hash", "spare", "workloads, kinds", "counters for Prometheus; see metrics.py")
    audit = Single("jobs:audit", "hash", "spare", "one", "how far the audit of the indexes has come; see audit.lua")
    damaged = Single("jobs:damaged", "set", "spare", "keys", "keys to rebuild, since their values had wrong types")
    repairing = Single("jobs:repairing", "string", "spare", "TTL", "when a process began to rebuild damaged keys, ms")

    def idempotency(self, owner: str | None, key: str) -> str:
        """The Redis key for a caller's idempotency key, which may have any length and any characters. So the name has a
        digest. The digest covers the owner, so that keys of different owners can't collide."""
        return self.idempotency_of(hashlib.sha256(f"{owner or ''}\n{key}".encode(errors="surrogatepass")).hexdigest())

    @classmethod
    def rows(cls) -> dict[str, Key]:
        """The rows of this class by attribute name."""
        return {name: row for name, row in vars(cls).items() if isinstance(row, Key)}

    def deletable_type(self, name: str) -> KeyType | None:
        """The type that the key `name` should have; None if it has no row or is never deleted."""
        inner = name.removeprefix(f"{self.namespace}:")
        return next((kind for kind, pattern in _deletable().items() if pattern.match(inner)), None)


@cache
def _deletable() -> dict[KeyType, re.Pattern[str]]:
    """The patterns of the keys whose damaged values are deleted, by the type that they should have."""
    rows = [row for row in Keys.rows().values() if row.origin != "record"]
    types = {row.type for row in rows}
    return {kind: re.compile("|".join(row.pattern for row in rows if row.type == kind), re.DOTALL) for kind in types}


_SCRIPTS_FOLDER = Path(__file__).parent
RESERVED_BYTES = 10_000  # per live job: a done job takes 6 to 11 kB, a queued job 2.6 kB
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


# Script -> the script that it calls for each of its jobs, and therefore contains as a function
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


def _deletable_in_lua() -> str:
    patterns = (f"'{row.pattern}'" for row in Keys.rows().values() if row.origin != "record")
    return f"local function deletable_patterns() return {{ {', '.join(patterns)} }} end\n"


def load_scripts(folder: Path = _SCRIPTS_FOLDER) -> dict[Script, str]:
    """Read all scripts. Raises RuntimeError if a Lua file has no name in `Script`, or if a name has no file."""
    files = {path.stem: path.read_text() for path in folder.glob("*.lua") if not path.stem.startswith("_")}
    names = {script.value for script in Script}
    if files.keys() != names:
        raise RuntimeError(
            f"Lua scripts without a caller: {sorted(files.keys() - names)}, "
            f"callers without a Lua script: {sorted(names - files.keys())}"
        )
    reserved = f"local RESERVED_BYTES = {RESERVED_BYTES}\n"
    rendered = _transitions_in_lua() + _bounds_in_lua() + _deletable_in_lua() + reserved
    ledger = rendered + (folder / "_ledger.lua").read_text()
    before = {script: ledger + _as_function(within, files[within]) for script, within in _WITHIN.items()}
    return {script: _with_ledger(before.get(script, ledger), files[script]) for script in Script}


def _as_function(name: str, text: str) -> str:
    """The script as a Lua function, whose arguments shadow the KEYS and ARGV of the surrounding script."""
    _, _, body = text.partition("\n")
    return f"\nlocal function {name}(KEYS, ARGV)\n{body}\nend\n"


def _with_ledger(ledger: str, text: str) -> str:
    """Insert the ledger after the first line, from which Redis reads the flags."""
    flags, _, body = text.partition("\n")
    return f"{flags}\n{ledger}\n{body}"


SCRIPT_SOURCES: Final = load_scripts()
