"""API keys: create, list, revoke, find by secret or by a browser's session, and count requests against their limits.

Once a key exists, every request needs a key until `open_again` is called. The service stays closed even if the last key
is revoked or Redis loses its keys: a process that has seen keys admits requests without a key only if it finds the mark
that `open_again` sets.
"""

import hmac
import logging
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import ceil, inf
from typing import Any

import redis.asyncio

from dyno.errors import KeyExpired, LimitReached, QueueFull, StoreUnavailable, UnknownKey
from dyno.models.api_key import KEY_ID, SECRET, ApiKey, Limits, NewKey, digest_of, id_of, new_secret, prefix_of
from dyno.settings import Settings
from dyno.store.pipelining import PipeliningRedis
from dyno.store.records import to_datetime
from dyno.store.redis import SCRIPT_SOURCES, Keys, Script, pipelined, store_errors

log = logging.getLogger(__name__)

QUEUE_POLICIES = {"all-queued-jobs": "the queue", "queued-jobs": "this API key"}  # LimitReached.policy, in words
_MOST_REMEMBERED = 1000  # number of keys that a process remembers
_DAY_S = 24 * 3600
SESSION_S = 12 * 3600
_QUEUE_RETRY_S = 2  # a guess: the time of the next claim isn't known
_WARN_EVERY_S = 60.0


def too_many_requests(per_s: int, wait_ms: int) -> LimitReached:
    detail = f"this key may make {per_s} requests per second; retry in {wait_ms} ms"
    return LimitReached(detail, "requests", per_s, 1, ceil(wait_ms / 1000))


def queue_full(most: int, queued: int) -> QueueFull:
    """The error for the limit on all queued jobs, of all owners together."""
    detail = f"{queued} jobs are queued and the limit is {most}; try again later"
    return QueueFull(detail, "all-queued-jobs", most, None, _QUEUE_RETRY_S)


def limit_reached(limit: str, most: int, has: int, day_left_ms: int) -> LimitReached:
    """The error for a refusal by `submit.lua`."""
    if limit == "queued_jobs":
        detail = f"{has} jobs of this key are queued and its limit is {most}"
        return LimitReached(detail, "queued-jobs", most, None, _QUEUE_RETRY_S)
    detail = f"this key has used {has} s of device time today and its limit is {most} s; it resets at 00:00 UTC"
    return LimitReached(detail, "device-seconds", most, _DAY_S, ceil(day_left_ms / 1000))


class LocalRates:
    """Counts the requests of keys in this process while Redis can't. The token buckets work as in admit.lua."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._buckets = OrderedDict[str, tuple[float, float]]()  # key -> tokens, and when they were counted
        self._warned_s = -inf

    def count(self, key: ApiKey, why: str) -> None:
        """Count a request of the key. Raises LimitReached. `why`: why Redis can't count, logged once a minute."""
        now_s = self._clock()
        if now_s - self._warned_s >= _WARN_EVERY_S:
            self._warned_s = now_s
            log.warning("each API process limits the requests of keys by itself: %s", why)
        rate = key.limits.requests_per_s
        if rate is None:
            return
        tokens, counted_s = self._buckets.pop(key.id, (float(rate), now_s))
        tokens = min(rate, tokens + (now_s - counted_s) * rate)
        self._buckets[key.id] = (tokens - 1 if tokens >= 1 else tokens), now_s
        if len(self._buckets) > _MOST_REMEMBERED:
            self._buckets.popitem(last=False)
        if tokens < 1:
            raise too_many_requests(rate, ceil((1 - tokens) * 1000 / rate))


class ApiKeys:
    """Every method raises StoreUnavailable while Redis is unreachable."""

    def __init__(self, client: PipeliningRedis, settings: Settings) -> None:
        self._client = client
        self._keys = Keys(settings.namespace)
        self._admit = client.cached_script(SCRIPT_SOURCES[Script.ADMIT])
        self._revoke = client.cached_script(SCRIPT_SOURCES[Script.REVOKE])
        self._open = client.cached_script(SCRIPT_SOURCES[Script.OPEN])
        self._rates = LocalRates()
        self._admitted = OrderedDict[str, ApiKey]()  # digest -> the key whose last request was admitted

    async def any(self) -> bool:
        """Whether requests need a key."""
        with store_errors():
            return bool(await self._client.exists(self._keys.api_keys))

    async def opened(self) -> bool:
        """Whether `open_again` was called after the last `create`."""
        with store_errors():
            return bool(await self._client.exists(self._keys.opened))

    async def create(self, new: NewKey) -> tuple[ApiKey, str]:
        """Create a key. Return it with its secret, which isn't stored and can't be shown again."""
        secret = new_secret()
        digest = digest_of(secret)
        with store_errors():
            seconds, micros = await self._client.time()
            record: dict[Any, Any] = {
                "name": new.name,
                "scope": new.scope,
                "prefix": prefix_of(secret),
                "digest": digest,
                "created_at": f"{seconds}.{micros:06}",
                "high_priority": int(new.high_priority or new.scope == "admin"),
                **new.limits.model_dump(exclude_none=True),
            }
            if new.expires_in_s is not None:
                record["expires_at"] = f"{seconds + new.expires_in_s}.{micros:06}"
            async with self._client.pipeline() as pipeline:
                pipeline.hset(self._keys.api_key(id_of(digest)), mapping=record)
                pipeline.delete(self._keys.opened)
                pipeline.zadd(self._keys.api_keys, {id_of(digest): seconds * 1000 + micros // 1000})
                await pipeline.execute()
        return _key(id_of(digest), record), secret

    async def list(self) -> Sequence[ApiKey]:
        """All keys, newest first, including revoked ones: jobs name them as their `owner`."""
        with store_errors():
            ids = [str(member) for member in await self._client.zrange(self._keys.api_keys, 0, -1)][::-1]
        records = await pipelined(self._client, [("hgetall", self._keys.api_key(key_id)) for key_id in ids])
        return [_key(key_id, record) for key_id, record in zip(ids, records, strict=True) if record]

    async def revoke(self, key_id: str) -> bool:
        """Revoke the key: the API refuses it from now on. Returns False if it was revoked before.

        Raises UnknownKey.
        """
        outcome = "unknown"
        if KEY_ID.fullmatch(key_id):
            with store_errors():
                [outcome] = await self._revoke(keys=[self._keys.api_key(key_id)], args=[self._keys.namespace])
        if outcome == "unknown":
            raise UnknownKey(f'there is no key "{key_id[:64]}"')
        return outcome == "revoked"

    async def open_again(self) -> bool:
        """Delete all keys, so that requests need no key. Returns False, and deletes nothing, if a key isn't revoked."""
        with store_errors():
            reply: Any = await self._open(keys=[self._keys.api_keys, self._keys.opened], args=[self._keys.namespace])
        return bool(reply[0] == "opened")

    async def admit(self, secret: str) -> ApiKey | None:
        """The key of this secret; None if the secret is unknown or the key is revoked.

        Counts a request against the key's rate, and updates `last_used_at` once a minute. While Redis is full or
        read-only, this process counts by itself, so that reads still work. Raises KeyExpired and LimitReached.
        """
        return None if SECRET.fullmatch(secret) is None else await self._admit_digest(digest_of(secret))

    async def open_session(self, secret: str) -> str:
        """Open a session of `SESSION_S` for a key that `admit` knows. Returns the session's id, which isn't stored."""
        session = secrets.token_urlsafe(32)
        with store_errors():
            await self._client.set(self._keys.session(digest_of(session)), digest_of(secret), ex=SESSION_S)
        return session

    async def admit_session(self, session: str) -> ApiKey | None:
        """Like `admit`, for the key of the session. None if the session has ended or its key is revoked."""
        with store_errors():
            digest: Any = await self._client.get(self._keys.session(digest_of(session)))
        return None if digest is None else await self._admit_digest(digest)

    async def has_session(self, session: str) -> bool:
        """Whether the session is open. Unlike `admit_session`, this doesn't count as a request of its key."""
        with store_errors():
            return bool(await self._client.exists(self._keys.session(digest_of(session))))

    async def end_session(self, session: str) -> None:
        with store_errors():
            await self._client.delete(self._keys.session(digest_of(session)))

    async def _admit_digest(self, digest: str) -> ApiKey | None:
        key_id = id_of(digest)
        try:
            with store_errors():
                reply: Any = await self._admit(keys=[self._keys.api_key(key_id)], args=[self._keys.namespace, digest])
        except StoreUnavailable as error:
            if isinstance(error.__cause__, redis.ConnectionError | redis.TimeoutError):
                raise
            key = await self._find(key_id, digest)
            if key is not None:
                self._rates.count(key, error.detail)
            return key
        self._admitted.pop(digest, None)
        if reply[0] == "limited":
            raise too_many_requests(reply[2], reply[1])
        if reply[0] == "expired":
            raise _expired(to_datetime(reply[1]))
        if reply[0] == "unknown":
            return None
        key = self._admitted[digest] = _admitted(key_id, tuple(reply[1]))
        if len(self._admitted) > _MOST_REMEMBERED:
            self._admitted.popitem(last=False)
        return key

    def last_admitted(self, secret: str) -> ApiKey | None:
        """The key, if the last request with it was admitted.

        A caller may use it to start reads while `admit` runs. Only `admit` decides whether the request is admitted.
        """
        return self._admitted.get(digest_of(secret))

    async def _find(self, key_id: str, digest: str) -> ApiKey | None:
        record, now = await self._read(key_id)
        if "revoked_at" in record or not hmac.compare_digest(record.get("digest", ""), digest):
            return None
        key = _key(key_id, record)
        if key.expires_at is not None and key.expires_at <= now:
            raise _expired(key.expires_at)
        return key

    async def is_valid(self, key_id: str) -> bool:
        """Whether the key exists, isn't revoked and hasn't expired."""
        return await self.valid(key_id) is not None

    async def valid(self, key_id: str) -> ApiKey | None:
        """The key; None if it doesn't exist, is revoked or has expired."""
        record, now = await self._read(key_id)
        if not record or "revoked_at" in record:
            return None
        key = _key(key_id, record)
        return None if key.expires_at is not None and key.expires_at <= now else key

    async def _read(self, key_id: str) -> tuple[dict[str, str], datetime]:
        """The key's record ({} for an unknown key), and Redis' time."""
        with store_errors():
            record: Any = await self._client.hgetall(self._keys.api_key(key_id)) if KEY_ID.fullmatch(key_id) else {}
            seconds, micros = await self._client.time()
        return dict(record), to_datetime(f"{seconds}.{micros:06}")


def _expired(since: datetime) -> KeyExpired:
    return KeyExpired(f"this key expired at {since:%Y-%m-%dT%H:%M:%SZ}; an admin can create another one")


def any_key(client: redis.Redis, settings: Settings) -> bool:
    """`ApiKeys.any` for callers without an event loop."""
    with store_errors():
        return bool(client.exists(Keys(settings.namespace).api_keys))


_FIELDS = (
    "name",
    "scope",
    "prefix",
    "created_at",
    "last_used_at",
    *Limits.model_fields,
    "high_priority",
    "expires_at",
)  # as in admit.lua


@lru_cache(maxsize=1024)
def _admitted(key_id: str, values: tuple[str | None, ...]) -> ApiKey:
    return _key(key_id, {name: text for name, text in zip(_FIELDS, values, strict=True) if text is not None})


def _key(key_id: str, record: Mapping[str, Any]) -> ApiKey:
    times = ("created_at", "expires_at", "last_used_at", "revoked_at")
    return ApiKey(
        id=key_id,
        limits=Limits.model_validate({name: record[name] for name in Limits.model_fields if name in record}),
        high_priority=bool(int(record.get("high_priority", 0))),
        **{name: record[name] for name in ("prefix", "name", "scope")},
        **{name: to_datetime(record[name]) for name in times if name in record},
    )
