"""The owners of a run's jobs: two API keys, and requests without a key."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import redis

from dyno.models.api_key import digest_of, id_of, new_secret, prefix_of
from dyno.store.redis import Keys


class ApiKey(NamedTuple):
    """`id`: the owner of jobs submitted with `secret`. Both are None if no key is sent."""

    id: str | None = None
    secret: str | None = None

    @property
    def headers(self) -> dict[str, str]:
        return {} if self.secret is None else {"Authorization": f"Bearer {self.secret}"}


def make(client: redis.Redis, keys: Keys) -> list[ApiKey]:
    """No key, and two keys that may submit.

    The keys aren't in the store's list, so requests without a key are allowed.
    """
    return [ApiKey(), *(_made(client, keys, name) for name in ("one", "other"))]


def _made(client: redis.Redis, keys: Keys, name: str) -> ApiKey:
    secret = new_secret()
    digest = digest_of(secret)
    record: dict[Any, Any] = {
        "name": name,
        "scope": "submit",
        "prefix": prefix_of(secret),
        "digest": digest,
        "created_at": f"{time.time():.6f}",
    }
    client.hset(keys.api_key(id_of(digest)), mapping=record)
    return ApiKey(id_of(digest), secret)
