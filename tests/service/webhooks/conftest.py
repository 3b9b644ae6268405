"""Fixtures: a service that sends webhooks to loopback, and retries when a test says so, not after an hour."""

import base64

import pytest
from pydantic import SecretStr

from dyno.settings import Settings
from dyno.store.redis import Keys
from tests.inbox import Inbox
from tests.waiting import eventually

SECRET = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"
PAUSE_S = 3600.0


@pytest.fixture(scope="module")
def settings(redis_url, namespace):
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
def inbox():
    with Inbox() as inbox:
        yield inbox


@pytest.fixture
def canceled(submitted, http):
    """Make a done job with this webhook."""

    def one(url):
        job_id = submitted(webhook=url)
        http.post(f"/v1/jobs/{job_id}/cancel").raise_for_status()
        return job_id

    return one


@pytest.fixture
def delivery(http):
    """A job's delivery, once `ended` attempts have ended."""

    def of(job_id, ended=0):
        def found():
            [one] = http.get("/v1/webhook-deliveries", params={"job": job_id}).json()["data"]
            return one if sum(each["ended"] is not None for each in one["attempts"]) >= ended else None

        one = eventually(found, what=f"{ended} attempts have ended")
        return one

    return of


@pytest.fixture
def due(client, settings):
    """End the pause before a job's next attempt."""
    return lambda job_id: client.zadd(Keys(settings.namespace).webhooks_due, {job_id: 1}, xx=True)
