"""Connections to Redis, what must hold of the server, and the one place where Redis' errors become Dyno's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import redis
import redis.asyncio
from redis.asyncio.retry import Retry as AsyncRetry
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from dyno.errors import StoreUnavailable, StoreUnfit
from dyno.settings import Settings

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
    retry = AsyncRetry(_BACKOFF, _RETRIES, supported_errors=(redis.ConnectionError,))
    pool: redis.asyncio.BlockingConnectionPool = redis.asyncio.BlockingConnectionPool.from_url(
        _url(settings),
        max_connections=_CONNECTIONS,
        timeout=ANSWER_TIMEOUT_S,
        socket_timeout=None if blocking else ANSWER_TIMEOUT_S,
        retry=retry,
        **_options(),
    )
    return redis.asyncio.Redis.from_pool(pool)


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


def check_server(client: redis.Redis) -> list[str]:
    """What speaks against the server, for a readiness answer; raises StoreUnfit where it can't keep jobs at all."""
    with store_errors():
        info: Mapping[str, Any] = client.info()
    return judge_server(info)


async def check_server_async(client: redis.asyncio.Redis) -> list[str]:
    """`check_server` over the API's own client."""
    with store_errors():
        info: Mapping[str, Any] = await client.info()
    return judge_server(info)


def judge_server(info: Mapping[str, Any]) -> list[str]:
    """The rules of `check_server` over the fields of INFO."""
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreUnfit(f"Redis may evict jobs: maxmemory-policy is {policy}, it has to be noeviction")
    if info.get("redis_mode") == "cluster" or info.get("cluster_enabled"):
        raise StoreUnfit("Redis Cluster can't run scripts over several keys: use a single server")
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_SERVER:
        raise StoreUnfit(f"Redis {version} is too old: 7.0 or newer is needed")
    return list(_complaints(info))


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
