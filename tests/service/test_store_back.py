"""A store that fails for a while: jobs are refused with Retry-After, and accepted again without intervention."""

import os
import signal
import time
from contextlib import contextmanager

import pytest
import redis

from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from dyno.store.redis import ANSWER_TIMEOUT_S
from service.app import create_app
from tests.servers import demoted, kill_once_written
from tests.waiting import eventually, promised

BACK_WITHIN_S = promised(10.0)
PATIENCE_S = 2 * ANSWER_TIMEOUT_S  # less than three timeouts: a silent server gets one request
BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}


@contextmanager
def full(server):
    with redis.Redis.from_url(server.url) as client:
        client.config_set("maxmemory", "1mb")
        yield
        client.config_set("maxmemory", 0)


@contextmanager
def dead(server):
    kill_once_written(server)
    yield
    server.revive()


@contextmanager
def silent(server):
    os.kill(server.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("fault", "named"),
    [
        (full, "full"),
        (demoted, "replica"),
        (dead, "can't be used now"),
        pytest.param(silent, "can't be used now", marks=pytest.mark.verify),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_jobs_are_refused_while_the_store_fails_and_accepted_within_seconds_after(fault, named, serve):
    with EmbeddedServer() as server, serve(create_app(Settings(redis_url=server.url))) as http:
        before = http.post("/v1/jobs", json=BODY)
        assert before.status_code == 202
        with fault(server):
            refused = http.post("/v1/jobs", json=BODY, timeout=PATIENCE_S)
            assert (refused.status_code, refused.json()["code"]) == (503, "store-unavailable")
            assert 0 < int(refused.headers["retry-after"]) <= 10
            # An answer may be a second old.
            eventually(lambda: http.get("/readyz", timeout=PATIENCE_S).status_code == 503)
            assert named in http.get("/readyz", timeout=PATIENCE_S).json()["detail"]
        gone_s = time.monotonic()
        eventually(lambda: http.post("/v1/jobs", json=BODY).status_code == 202, what="a job is taken again")
        assert time.monotonic() - gone_s < BACK_WITHIN_S
        eventually(lambda: http.get("/readyz").status_code == 200)
        assert http.get(before.json()["urls"]["self"]).status_code == 200
