"""Keys while Redis is a read-only replica: requests are served, within the limits of their key."""

import logging
import math
import time
from contextlib import suppress

import pytest

from dyno.errors import LimitReached
from dyno.models.api_key import ApiKey, Limits, Scope
from dyno.settings import Settings
from dyno.store.api_keys import LocalRates
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import Keys, sync_client
from service.app import create_app
from tests.servers import demoted
from tests.service.keys.conftest import make_key, problem
from tests.waiting import eventually

REQUESTS = 30


def bearer(secret):
    return {"Authorization": f"Bearer {secret}"}


def test_a_key_is_served_at_its_rate_and_an_expired_one_is_refused(serve, caplog):
    with EmbeddedServer() as server, sync_client(settings := Settings(redis_url=server.url)) as client:
        _, limited = make_key(settings, Scope.READ, requests_per_s=1)
        _, unlimited = make_key(settings, Scope.READ)
        ended, expired = make_key(settings, Scope.READ)
        client.hset(Keys(settings.namespace).api_key(ended), "expires_at", "1700000000.000000")
        with serve(create_app(settings)) as http:
            with demoted(server):
                began_s = time.monotonic()
                answers = [http.get("/v1/me", headers=bearer(limited)) for _ in range(REQUESTS)]
                took_s = time.monotonic() - began_s
                served = [each.status_code for each in answers].count(200)
                assert 1 <= served <= 2 + math.floor(took_s)
                refused = next(each for each in answers if each.status_code != 200)
                assert problem(refused) == (429, "limit-reached")
                assert refused.headers["RateLimit-Policy"] == '"requests";q=1;w=1'
                assert refused.headers["Retry-After"] == "1"
                assert {http.get("/v1/jobs", headers=bearer(unlimited)).status_code for _ in range(5)} == {200}
                assert problem(http.get("/v1/jobs", headers=bearer(expired))) == (401, "key-expired")
                assert problem(http.get("/v1/jobs", headers=bearer(f"dyno_{64 * '0'}"))) == (401, "not-authorized")
            eventually(lambda: http.get("/v1/me", headers=bearer(limited)).status_code == 200)
    warned = [each.getMessage() for each in caplog.records if each.name == "dyno.store.api_keys"]
    assert 1 <= len(warned) <= 1 + took_s / 60
    assert "read only replica" in warned[0]


@pytest.fixture
def key():
    facts = {"id": "key_0123456789abcdef", "prefix": "dyno_01234567", "name": "ci", "scope": "read"}
    return ApiKey.model_validate(
        {**facts, "limits": Limits(requests_per_s=4), "high_priority": False, "created_at": "2026-01-31T12:00:00Z"}
    )


def test_a_bucket_holds_the_requests_of_a_second_and_fills_again(key, caplog):
    now_s = 100.0
    rates = LocalRates(clock=lambda: now_s)

    def served():
        """How many requests are served until one is refused."""
        number = 0
        with suppress(LimitReached):
            while number < 10:
                rates.count(key, "READONLY")
                number += 1
        return number

    with caplog.at_level(logging.WARNING):
        assert (served(), served()) == (4, 0)
        with pytest.raises(LimitReached) as reached:
            rates.count(key, "READONLY")
        assert (reached.value.policy, reached.value.quota, reached.value.retry_after_s) == ("requests", 4, 1)
        now_s += 0.5
        assert served() == 2
        now_s += 3600
        assert served() == 4
    assert [record.args for record in caplog.records] == [("READONLY",), ("READONLY",)]
