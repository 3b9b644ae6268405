"""Interrupted submits that are retried, and fifty equal ones at once: one job or none, never two."""

import json
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from chaos.injectors import end_with_reset
from dyno.settings import Settings
from dyno.store.redis import Keys
from service.app import create_app
from tests.waiting import eventually

BODY = {"workload": "matmul", "params": {"n": 64}, "queue_if_absent": True}
AT_ONCE = 50


@pytest.fixture
def namespace(request):
    return f"test-retries-{abs(hash(request.node.name))}"


@pytest.fixture
def settings(redis_url, namespace):
    return Settings(redis_url=redis_url, namespace=namespace)


def jobs_in(client, settings):
    keys = Keys(settings.namespace)
    found = set(client.zrange(keys.jobs, 0, -1))
    assert set(client.zrange(keys.queue("any"), 0, -1)) == found
    return found


def cut(http, key, share, until):
    """Submit a job over a new connection, send that share of the body, wait for `until`, and disconnect."""
    body = json.dumps(BODY).encode()
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nIdempotency-Key: {key}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as connection:
        end_with_reset(connection)
        connection.sendall(head.encode() + body[: round(share * len(body))])
        until(connection)


def nothing(_):
    """Disconnect at once."""


def an_answer(connection):
    assert connection.recv(12) == b"HTTP/1.1 202"


@pytest.mark.parametrize(
    ("share", "until", "made"),
    [(0.5, nothing, {0}), (1, nothing, {0, 1}), (1, an_answer, {1})],
    ids=["in the body", "before the answer", "in the answer"],
)
def test_a_client_that_was_cut_off_retries_and_has_one_job(share, until, made, serve, settings, client):
    with serve(create_app(settings)) as http:
        for number in range(20):
            before = jobs_in(client, settings)
            cut(http, f"key-{number}", share, until)
            again = [http.post("/v1/jobs", json=BODY, headers={"Idempotency-Key": f"key-{number}"}) for _ in range(2)]
            assert {answer.status_code for answer in again} == {202}
            assert {answer.json()["id"] for answer in again} == jobs_in(client, settings) - before
            replayed = "idempotent-replayed" in again[0].headers
            assert int(replayed) in made
    assert len(jobs_in(client, settings)) == 20


def test_an_incomplete_body_makes_no_job(serve, settings, client, caplog):
    with serve(create_app(settings)) as http:
        for number in range(5):
            cut(http, f"key-{number}", 0.5, nothing)
        eventually(lambda: http.get("/livez").status_code == 200)
        assert jobs_in(client, settings) == set()
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


def test_one_key_fifty_times_at_once_at_two_apis_is_one_job(serve, settings, client):
    with serve(create_app(settings)) as one, serve(create_app(settings)) as other, ThreadPoolExecutor(AT_ONCE) as pool:

        def ask(number):
            return (one, other)[number % 2].post("/v1/jobs", json=BODY, headers={"Idempotency-Key": "the same"})

        answers = list(pool.map(ask, range(AT_ONCE)))
    assert Counter(answer.status_code for answer in answers) == {202: AT_ONCE}
    assert {answer.json()["id"] for answer in answers} == jobs_in(client, settings)
    assert Counter("idempotent-replayed" in answer.headers for answer in answers) == {True: AT_ONCE - 1, False: 1}
