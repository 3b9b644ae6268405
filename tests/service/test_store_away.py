import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.app import create_app
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}


@pytest.fixture
def server():
    with EmbeddedServer() as server:
        yield server


def test_while_the_store_is_unreachable_routes_that_need_it_send_retry_after(server, serve):
    with serve(create_app(Settings(redis_url=server.url))) as http:
        job = http.post("/v1/jobs", json=BODY).json()
        server.kill()
        answers = [
            http.post("/v1/jobs", json=BODY),
            http.get("/v1/jobs"),
            http.get(job["urls"]["self"]),
            http.get(f"{job['urls']['self']}/logs", params={"follow": "true"}),
            http.get(job["urls"]["self"], params={"wait": 30}),
            http.get(job["urls"]["events"]),
            http.get("/v1/events"),
            http.get(job["urls"]["result"]),
            http.post(job["urls"]["cancel"]),
            http.post(f"{job['urls']['self']}/rerun"),
            http.get("/v1/results"),
            http.get("/v1/devices"),
            http.delete(job["urls"]["self"]),
            http.get("/v1/workers"),
            http.get("/readyz"),
        ]
        for answer in answers:
            assert answer.status_code == 503, answer.url
            assert int(answer.headers["retry-after"]) > 0
            assert answer.headers["content-type"] == "application/problem+json"
        assert http.get("/livez").status_code == 200


def test_losing_the_store_during_a_preferred_wait_still_returns_the_job_id(server, serve):
    with (
        serve(create_app(Settings(redis_url=server.url))) as http,
        ThreadPoolExecutor() as pool,
        redis.Redis.from_url(server.url) as client,
    ):
        held = pool.submit(http.post, "/v1/jobs", json=BODY, headers={"Prefer": "wait=20"})
        deadline_s = time.monotonic() + 60
        while not client.exists("dyno:jobs"):
            assert time.monotonic() < deadline_s
        client.ping()  # one round trip later, the submit has been stored
        server.kill()
        answer = held.result()
    assert answer.status_code == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.json()['id']}"


@pytest.mark.parametrize(
    ("option", "value", "named"),
    [("appendonly", "no", "appendonly"), ("maxmemory-policy", "allkeys-lru", "allkeys-lru")],
)
def test_a_store_that_would_lose_jobs_is_not_ready(server, serve, option, value, named):
    with serve(create_app(Settings(redis_url=server.url))) as http:
        assert http.get("/readyz").status_code == 200
        redis.Redis.from_url(server.url).config_set(option, value)
        eventually(lambda: http.get("/readyz").status_code == 503, what="the next check finds it")
        answer = http.get("/readyz")
        assert answer.json()["code"] == "not-ready"
        assert named in answer.json()["detail"]


def test_a_store_without_a_memory_limit_is_ready_with_a_note(server, serve):
    with serve(create_app(Settings(redis_url=server.url))) as http:
        assert http.get("/readyz").json() == {"status": "ok", "notes": []}
        redis.Redis.from_url(server.url).config_set("maxmemory", 0)
        eventually(lambda: http.get("/readyz").json()["notes"], what="the next check finds it")
        answer = http.get("/readyz")
        assert (answer.status_code, answer.json()["status"]) == (200, "ok")
        [note] = answer.json()["notes"]
        assert "set maxmemory" in note


def test_beyond_the_queue_limit_jobs_are_refused_with_retry_after(server, serve):
    with serve(create_app(Settings(redis_url=server.url, max_queued=2))) as http:
        answers = [http.post("/v1/jobs", json=BODY) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [202, 202, 429]
    assert answers[-1].json()["code"] == "queue-full"
    assert int(answers[-1].headers["retry-after"]) > 0
    assert answers[-1].headers["ratelimit-policy"] == '"all-queued-jobs";q=2'
    assert answers[-1].headers["ratelimit"] == f'"all-queued-jobs";r=0;t={answers[-1].headers["retry-after"]}'
