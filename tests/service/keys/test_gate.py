"""When a key is needed, and how requests fare while the store is unreachable."""

import asyncio
import os
import signal

import pytest

from dyno.models.api_key import Scope
from dyno.settings import Settings
from dyno.store.api_keys import ApiKeys
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import ANSWER_TIMEOUT_S, Keys, async_client, sync_client
from service.anonymous_access import KeyGate
from service.app import create_app
from tests.service.keys.conftest import make_key, problem
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}, "device": "tpu", "queue_if_absent": True}
NO_JOB = "job_00000000000000000000000000"
FILE = f"/v1/jobs/{NO_JOB}/artifacts/a.txt"
EVERYTHING = ["read", "submit", "admin"]


def test_the_first_key_closes_a_service_that_runs_within_a_second(redis_url, namespace, serve):
    settings = Settings(redis_url=redis_url, namespace=f"{namespace}-open")
    with serve(create_app(settings)) as http, sync_client(settings) as client:
        before = http.post("/v1/jobs", json=BODY).json()
        assert before["owner"] is None
        assert http.get("/v1/me").json() == {"key": None, "scopes": EVERYTHING}
        assert problem(http.get("/v1/keys")) == (401, "not-authorized")
        assert problem(http.post("/v1/keys", json={"name": "mine", "scope": "admin"})) == (401, "not-authorized")
        assert http.get("/v1/jobs", headers={"Authorization": f"Bearer dyno_{'0' * 64}"}).status_code == 200
        key_id, secret = make_key(settings)
        mine = {"Authorization": f"Bearer {secret}"}
        assert http.post("/v1/jobs", json=BODY, headers=mine).json()["owner"] == key_id  # at once
        eventually(lambda: http.get("/v1/jobs").status_code == 401, 10)
        assert problem(http.get(before["urls"]["self"], headers=mine)) == (404, "job-not-found")
        assert client.exists(Keys(settings.namespace).api_keys)


def test_without_keys_many_requests_share_one_read_and_with_keys_each_reads(redis_url, namespace, serve, monkeypatch):
    for constant in ("FRESH_S", "BELIEVED_S"):
        monkeypatch.setattr(f"service.anonymous_access.{constant}", 3600.0)
    settings = Settings(redis_url=redis_url, namespace=f"{namespace}-looks")
    app, asked, keys = create_app(settings), list[str](), Keys(settings.namespace)
    with serve(app) as http:
        shared = app.state.opened.client.shared
        send = shared.send

        def counted(*words, **options):
            if any(str(word).startswith((keys.api_keys, keys.api_key(""))) for word in words):  # no other task's
                asked.append(str(words[0]))
            return send(*words, **options)

        monkeypatch.setattr(shared, "send", counted)
        for _ in range(10):
            assert http.get("/v1/workloads").status_code == 200
        assert asked == ["EXISTS"]
        http.headers["Authorization"] = f"Bearer {make_key(settings)[1]}"
        assert http.get("/v1/workloads").status_code == 200  # the server may have to learn the script
        asked.clear()
        for _ in range(10):
            assert http.get("/v1/workloads").status_code == 200
        assert asked == ["EVALSHA"] * 10


def test_concurrent_requests_share_one_read(redis_url, namespace):
    settings, asked = Settings(redis_url=redis_url, namespace=f"{namespace}-at-once"), list[str]()

    async def ask():
        async with async_client(settings) as client:
            keys = ApiKeys(client, settings)
            any_key = keys.any

            async def counted():
                asked.append("any")
                return await any_key()

            keys.any = counted
            gate = KeyGate(keys, always_closed=False)
            return await asyncio.gather(*(gate.closed() for _ in range(50)))

    assert asyncio.run(ask()) == [False] * 50
    assert asked == ["any"]


def test_a_silent_store_does_not_delay_requests_that_need_no_store(serve, monkeypatch):
    monkeypatch.setattr("service.anonymous_access.FRESH_S", 0.0)
    monkeypatch.setattr("service.anonymous_access.BELIEVED_S", 3600.0)
    with EmbeddedServer() as server, serve(create_app(Settings(redis_url=server.url))) as http:
        assert http.get("/v1/workloads").status_code == 200
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert http.get("/v1/workloads", timeout=ANSWER_TIMEOUT_S - 1).status_code == 200
        finally:
            os.kill(server.pid, signal.SIGCONT)


def test_a_public_service_refuses_requests_without_a_key_even_before_the_first(redis_url, namespace, serve):
    there = {"redis_url": redis_url, "namespace": f"{namespace}-outside", "host": "0.0.0.0"}
    with serve(create_app(Settings(**there))) as http:
        assert problem(http.get("/v1/jobs")) == (401, "not-authorized")
        assert http.get("/livez").status_code == 200
    with serve(create_app(Settings(**there, allow_unauthenticated=True))) as http:
        assert http.get("/v1/jobs").status_code == 200


def test_while_the_store_is_unreachable_no_key_is_accepted_and_open_lasts_only_briefly(serve, monkeypatch):
    monkeypatch.setattr("service.anonymous_access.FRESH_S", 0.0)
    monkeypatch.setattr("service.anonymous_access.BELIEVED_S", 3600.0)
    with EmbeddedServer() as server:
        settings = Settings(redis_url=server.url)
        with serve(create_app(settings)) as http:
            assert http.get("/v1/workloads").status_code == 200
            server.kill()
            assert http.get("/v1/workloads").status_code == 200
            monkeypatch.setattr("service.anonymous_access.BELIEVED_S", 0.0)
            assert problem(http.get("/v1/workloads")) == (503, "store-unavailable")
            assert "dyno_store_up 0.0" in http.get("/metrics").text
            mine = {"Authorization": f"Bearer dyno_{'0' * 64}"}
            assert problem(http.get("/v1/workloads", headers=mine)) == (503, "store-unavailable")
        with serve(create_app(settings)) as http:  # which has never seen the store
            assert problem(http.get("/v1/workloads")) == (503, "store-unavailable")


def test_a_store_without_its_keys_stays_closed_until_opened_explicitly(serve, monkeypatch):
    monkeypatch.setattr("service.anonymous_access.FRESH_S", 0.0)
    with EmbeddedServer() as server:
        settings = Settings(redis_url=server.url)
        with serve(create_app(settings)) as http, sync_client(settings) as client:
            open_again(settings)
            assert http.get("/v1/workloads").status_code == 200
            make_key(settings)
            assert http.get("/v1/workloads").status_code == 401
            for lose in (lambda: client.delete(Keys(settings.namespace).api_keys), client.flushall):
                lose()
                assert problem(http.get("/v1/workloads")) == (401, "not-authorized")
            open_again(settings)
            assert http.get("/v1/workloads").status_code == 200


def open_again(settings):
    """Do what `dyno keys open` does."""

    async def opened():
        async with async_client(settings) as client:
            return await ApiKeys(client, settings).open_again()

    assert asyncio.run(opened())


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_required_keys_are_needed_even_before_the_first_exists(redis_url, namespace, serve, host):
    settings = Settings(
        redis_url=redis_url,
        namespace=f"{namespace}-required",
        host=host,
        allow_unauthenticated=True,
        require_keys=True,
    )
    with serve(create_app(settings)) as http:
        assert problem(http.get("/v1/workloads")) == (401, "not-authorized")
        assert http.get("/livez").status_code == 200
        _, secret = make_key(settings)
        assert http.get("/v1/workloads", headers={"Authorization": f"Bearer {secret}"}).status_code == 200


def test_readiness_without_a_key_names_the_failing_store_but_no_address(serve):
    with EmbeddedServer() as server:
        settings = Settings(redis_url=server.url)
        with serve(create_app(settings)) as http, sync_client(settings) as client:
            client.config_set("appendonly", "no")
            assert "appendonly" in http.get("/readyz").json()["detail"]
            _, secret = make_key(settings, Scope.ADMIN)
            eventually(lambda: http.get("/v1/workloads").status_code == 401)
            assert http.get("/readyz").json()["detail"] == "store-unfit"
            mine = {"Authorization": f"Bearer {secret}"}
            assert "appendonly" in http.get("/readyz", headers=mine).json()["detail"]
            refused = http.post("/v1/keys", json={"name": "ci", "scope": "read"}, headers=mine)
            assert problem(refused) == (503, "store-unfit")
            server.kill()
            for headers in ({}, mine):
                eventually(
                    lambda sent=headers: http.get("/readyz", headers=sent).json()["detail"] == "store-unavailable"
                )
            guessed = {"Authorization": f"Bearer dyno_{64 * '0'}", "Dyno-Job": NO_JOB}
            for method, path in (("GET", "/v1/jobs"), ("GET", FILE), ("PUT", FILE)):
                answer = http.request(method, path, headers=guessed)
                assert (answer.status_code, answer.json()["detail"]) == (503, "Redis is unavailable")


def test_a_full_store_still_returns_a_keys_jobs(serve):
    with EmbeddedServer() as server:
        settings = Settings(redis_url=server.url)
        _, secret = make_key(settings, requests_per_s=1000)
        with serve(create_app(settings)) as http, sync_client(settings) as client:
            http.headers["Authorization"] = f"Bearer {secret}"
            job = http.post("/v1/jobs", json=BODY).json()
            client.config_set("min-replicas-to-write", 1)  # writes are refused, reads succeed
            assert http.get(job["urls"]["self"]).status_code == 200
            assert http.post("/v1/jobs", json=BODY).status_code == 503
