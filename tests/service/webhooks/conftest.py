"""Fixtures: a service that sends webhooks to loopback, and retries when a test says so, not after an hour."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
import redis
from pydantic import SecretStr

from dyno.settings import Settings
from dyno.store.redis import Keys
from tests.inbox import Inbox
from tests.waiting import eventually

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
PAUSE_S = 3600.0


@pytest.fixture(scope="module")
def settings(redis_url: str, namespace: str) -> Settings:
    return Settings(
        redis_url=redis_url,
        namespace=namespace,
        device_ttl_s=600,
        webhook_secret=SecretStr(SECRET),
        webhook_allowed_hosts=("127.0.0.1",),
        webhook_retry_s=(PAUSE_S,) * 7,
        webhook_timeout_s=5.0,
        webhook_every_s=0.02,
    )


@pytest.fixture
def inbox() -> Iterator[Inbox]:
    with Inbox() as inbox:
        yield inbox


@pytest.fixture
def canceled(submitted: Callable[..., str], http: httpx.Client) -> Callable[[str], str]:
    """Make a done job with this webhook."""

    def one(url: str) -> str:
        job_id = submitted(webhook=url)
        http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
        return job_id

    return one


@pytest.fixture
def delivery(http: httpx.Client) -> Callable[..., dict[str, Any]]:
    """A job's delivery, once `ended` attempts have ended."""

    def of(job_id: str, ended: int = 0) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            [one] = http.get("/v1/webhook-deliveries", params={"job": job_id}).json()["data"]
            return one if sum(each["ended"] is not None for each in one["attempts"]) >= ended else None

        one = eventually(found, what=f"{ended} attempts have ended")
        assert one is not None
        return one

    return of


@pytest.fixture
def due(client: redis.Redis, settings: Settings) -> Callable[[str], None]:
    """End the pause before a job's next attempt."""
    return lambda job_id: client.zadd(Keys(settings.namespace).webhooks_due, {job_id: 1}, xx=True)
