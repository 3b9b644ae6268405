"""Connections to Redis, what must hold of the server, and the one place where Redis' errors become Dyno's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Durability, Settings

CONNECT_TIMEOUT_S = 2.0
ANSWER_TIMEOUT_S = 5.0
_FOR_NOW = ("MISCONF", "OOM", "READONLY", "NOREPLICAS", "BUSY", "MASTERDOWN", "LOADING", "UNBLOCKED")
CHECK_IDLE_AFTER_S = 25  # shorter than the idle limits of common proxies and firewalls
# A restarted server resets connections once; every script may be repeated, so a second and third try are safe.
# A server that is away costs 0.15 s this way. Timeouts aren't repeated: they would triple the wait.
_RETRIES, _BACKOFF = 2, ExponentialBackoff(cap=0.2, base=0.025)
_CONNECTIONS = 32  # of one API process; a thousand requests at once wait for one instead of failing
_OLDEST_SERVER = (7, 0)
_FULL_FROM = 0.95
_CLOSED = "the handler is closed"
_SYNCING = ("appendfsync", "no-appendfsync-on-rewrite")


def _url(settings: Settings) -> str:
    if settings.redis_url is None:
        raise StoreUnfit("no Redis is configured: set DYNO_REDIS_URL, or start one with `dyno up`")
    return settings.redis_url


def _options() -> dict[str, Any]:
    return {
        "decode_responses": True,
        "socket_connect_timeout": CONNECT_TIMEOUT_S,
        "health_check_interval": CHECK_IDLE_AFTER_S,
    }


def sync_client(settings: Settings) -> redis.Redis:
    """A client for threads (workers, upkeep). Connects when first used; raises StoreUnfit without a URL."""
    retry = Retry(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError,))
    return redis.Redis.from_url(_url(settings), socket_timeout=ANSWER_TIMEOUT_S, retry=retry, **_options())


def async_client(settings: Settings, blocking: bool = False) -> redis.asyncio.Redis:
    """A client for the API's event loop. `blocking`: one that may wait for an answer for as long as it takes."""
    retry = _UnlessSilent(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError,))
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        _url(settings),
        max_connections=_CONNECTIONS,
        timeout=ANSWER_TIMEOUT_S,
        socket_timeout=None if blocking else ANSWER_TIMEOUT_S,
        retry=retry,
        **_options(),
    )
    return redis.asyncio.Redis.from_pool(pool)


class _UnlessSilent(AsyncRetry):
    """On a unix socket redis-py tells of a greeting that nobody answered as of a lost connection: it isn't repeated.

    One that was lost is, whichever event loop says so.
    """

    async def call_with_retry(
        self, do: Any, fail: Any, is_retryable: Any = None, with_failure_count: bool = False
    ) -> Any:
        return await super().call_with_retry(
            partial(_in_redis_words, do), fail, is_retryable or _is_no_timeout, with_failure_count
        )


async def _in_redis_words(do: Callable[[], Awaitable[Any]]) -> Any:
    """uvloop, the API's loop, has an error of its own for writing to a connection that was lost a moment ago."""
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
    """Turn "away", "full", "read-only", "can't write to its disk" and "still loading" into StoreUnavailable."""
    try:
        yield
    except (redis.ConnectionError, redis.TimeoutError, redis.ReadOnlyError, redis.OutOfMemoryError) as error:
        raise StoreUnavailable(f"Redis can't be used now: {error}") from error
    except redis.ResponseError as error:
        if str(error).startswith(_FOR_NOW):
            raise StoreUnavailable(f"Redis can't be used now: {error}") from error
        raise


def check_server(client: redis.Redis, settings: Settings) -> list[str]:
    """What speaks against the server, for a readiness answer; raises StoreUnfit where it can't keep jobs at all."""
    with store_errors():
        info: Mapping[str, Any] = client.info()
        try:
            syncing: Any = client.config_get(*_SYNCING)
        except redis.ResponseError as error:
            syncing = _denied(error)
    return judge_server(info, syncing, settings.durability)


async def check_server_async(client: redis.asyncio.Redis, settings: Settings) -> list[str]:
    """`check_server` over the API's own client."""
    with store_errors():
        info: Mapping[str, Any] = await client.info()
        try:
            syncing: Any = await client.config_get(*_SYNCING)
        except redis.ResponseError as error:
            syncing = _denied(error)
    return judge_server(info, syncing, settings.durability)


def judge_server(info: Mapping[str, Any], syncing: Mapping[str, str], durability: Durability) -> list[str]:
    """The rules of `check_server` over the fields of INFO and the server's configuration of when its file is synced,
    which is empty where it may not be read.

    `durability` is what was asked for: "always" is the strict profile.
    """
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnfit(f"Redis may evict jobs: maxmemory-policy is {policy}, it has to be noeviction")
    if info.get("redis_mode") == "cluster" or info.get("cluster_enabled"):
        raise StoreUnfit("Redis Cluster can't run scripts over several keys: use a single server")
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
        raise StoreUnfit(f"Redis {version} is too old: 7.0 or newer is needed")
    return [*_complaints(info), *(_of_syncing(syncing, durability) if info.get("aof_enabled") else ())]


def _of_syncing(syncing: Mapping[str, str], durability: Durability) -> Iterator[str]:
    how = syncing.get("appendfsync")
    if how == "no":
        yield "Redis never syncs its append-only file (appendfsync is no): a power cut may take more than 2 s of jobs"
    elif durability == "always" and how is None:
        yield "DYNO_DURABILITY is always, and appendfsync can't be checked: this user may not CONFIG GET it"
    elif durability == "always" and how != "always":
        yield f"DYNO_DURABILITY is always, and Redis' appendfsync is {how}: a power cut may take the last 2 s of jobs"
    if syncing.get("no-appendfsync-on-rewrite") == "yes":
        yield "Redis stops syncing while it rewrites its append-only file (no-appendfsync-on-rewrite is yes)"


def _denied(error: redis.ResponseError) -> Mapping[str, str]:
    """Hosted servers have no CONFIG, and an ACL may keep it from us; any other error is raised again."""
    if isinstance(error, NoPermissionError) or str(error).startswith("unknown command"):
        return {}
    raise error


def _complaints(info: Mapping[str, Any]) -> Iterator[str]:
    if not info.get("aof_enabled"):
        yield "Redis doesn't persist (appendonly is off): a restart loses jobs"
    elif info.get("aof_last_write_status") == "err":
        yield "Redis can't write its append-only file"
    if info.get("loading"):
        yield "Redis is still loading its data"
    if info.get("role") == "slave":
        yield "Redis is a read-only replica"
    limit = info.get("maxmemory", 0)
    if limit and info.get("used_memory", 0) > _FULL_FROM * limit:
        yield f"Redis is full: {info['used_memory']} of {limit} bytes used"
