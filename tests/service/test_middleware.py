"""Middleware of the API as a process: access log, CORS, and responses to internal errors."""

import io
import json
import logging
import os
import signal
import socket
import subprocess
import threading
from http.client import HTTPConnection
from pathlib import Path

import anyio.to_thread
import httpx
import pytest
from pydantic import ValidationError
from starlette.responses import StreamingResponse

from dyno.logging import JsonFormatter
from dyno.settings import Settings
from dyno.store.embedded import EmbeddedServer
from service.app import create_app
from service.openapi.components import recorded_examples
from tests.service.openapi.house import plain
from tests.service.processes import running
from tests.waiting import eventually

READ = threading.Event()  # the first piece of the stream has arrived
SECRET = "a-secret-that-is-nobody-s-business"
ASKED_WITH = ("content-type", "idempotency-key", "traceparent", "tracestate", "x-request-id")
BODY = {"workload": "matmul", "device": "tpu", "queue_if_absent": True, "labels": {"mine": SECRET}}


def logged(redis_url, namespace, asking, **settings):
    """What `asking` returned, and the log of the API process that served it."""
    with (
        running(redis_url=redis_url, namespace=namespace, stderr=subprocess.PIPE, **settings) as (process, url),
        httpx.Client(base_url=url, timeout=30) as http,
    ):
        found = asking(http)
        process.terminate()
        _, said = process.communicate(timeout=60)
    return found, said


def some_requests(http):
    headers = {"Authorization": f"Bearer {SECRET}", "X-Request-ID": "mine"}
    job = http.post("/v1/jobs", json=BODY, headers=headers).json()
    http.get(job["urls"]["self"], headers={"Cookie": SECRET})
    http.get("/no%0a%7b%22level%22:%22FORGED%22%7d", params={"key": SECRET})
    http.request("PURGE", "/livez", params={"cursor": SECRET})
    http.post(job["urls"]["cancel"])
    pipelined(http, job["urls"]["self"], "/livez")
    return job


def pipelined(http, *paths):
    """Request all `paths` before the first response: the server then starts one request from within another."""
    with socket.create_connection((http.base_url.host, http.base_url.port or 80)) as connection:
        asked = [f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n" for path in paths]
        connection.sendall(("\r\n".join(asked) + "Connection: close\r\n\r\n").encode())
        while connection.recv(65536):
            pass


def test_json_access_lines_have_request_and_job_ids_but_no_secrets(redis_url, namespace):
    job, said = logged(redis_url, namespace, some_requests, log_format="json", access_log="1")
    records = [json.loads(line) for line in said.splitlines()]
    lines = [record for record in records if record["logger"] == "dyno.access"]
    seen = [(line["method"], line["route"], line["status"]) for line in lines]
    assert seen == [
        ("POST", "/v1/jobs", 202),
        ("GET", "/v1/jobs/{job_id}", 200),
        ("GET", "unmatched", 404),
        ("PURGE", "/livez", 405),
        ("POST", "/v1/jobs/{job_id}/cancel", 200),
        ("GET", "/v1/jobs/{job_id}", 200),
        ("GET", "/livez", 200),
    ]
    assert [line.get("job_id") for line in lines] == [job["id"], job["id"], None, None, job["id"], job["id"], None]
    assert lines[0]["request_id"] == "mine"
    assert all(line["request_id"].startswith("req_") for line in lines[1:])
    assert all(0 < line["duration_s"] < 30 for line in lines)
    assert SECRET not in said


@pytest.mark.verify
def test_plain_access_lines_are_off_by_default_and_one_per_request(redis_url, namespace):
    _, said = logged(redis_url, namespace, some_requests, access_log="1")
    told = [line for line in said.splitlines() if " INFO dyno.access: request " in line]
    assert len(told) == 7
    assert ' method="GET" route="unmatched" status=404 ' in told[2]
    assert SECRET not in said
    _, said = logged(redis_url, namespace, some_requests)
    assert "dyno.access" not in said


@pytest.fixture(scope="module")
def failing(redis_url, serve):
    app = create_app(Settings(redis_url=redis_url, cors_origins="https://a.example, http://b.example:3000"))

    @app.get("/broken")
    async def broken() -> None:
        raise KeyError("a fault of ours")

    @app.get("/stream")
    async def stream() -> StreamingResponse:
        async def pieces():
            yield b"first"
            await anyio.to_thread.run_sync(READ.wait, 60)
            yield b"second"

        return StreamingResponse(pieces())

    with serve(app) as http:
        yield http


def test_internal_errors_have_id_and_headers(failing):
    answer = failing.get("/broken", headers={"Origin": "https://a.example"})
    assert answer.status_code == 500
    assert answer.json()["request_id"] == answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["access-control-allow-origin"] == "https://a.example"


def test_uvicorns_log_lines_have_the_request_id(failing):
    text, log = io.StringIO(), logging.getLogger("uvicorn.error")
    handler = logging.StreamHandler(text)
    handler.setFormatter(JsonFormatter())
    log.addHandler(handler)
    try:
        answer = failing.get("/broken")
        [said] = eventually(lambda: [json.loads(line) for line in text.getvalue().splitlines()])
    finally:
        log.removeHandler(handler)
    assert "a fault of ours" in said["exception"]
    assert said["request_id"] == answer.headers["x-request-id"]


def test_streams_are_not_buffered(failing):
    with failing.stream("GET", "/stream") as answer:
        pieces = answer.iter_raw()
        assert next(pieces) == b"first"
        READ.set()
        assert next(pieces) == b"second"


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        ("https://a.example", True),
        ("http://b.example:3000", True),
        ("https://a.example.evil", False),
        ("http://a.example", False),
        ("null", False),
    ],
)
def test_only_listed_origins_may_read_and_post(failing, origin, allowed):
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": ",".join(ASKED_WITH)}
    preflight = failing.options("/v1/jobs", headers={"Origin": origin} | asked)
    read = failing.get("/livez", headers={"Origin": origin})
    for answer in (preflight, read):
        assert answer.headers.get("access-control-allow-origin") == (origin if allowed else None)
        assert "access-control-allow-credentials" not in answer.headers
        assert "x-request-id" in answer.headers
    assert preflight.status_code == (200 if allowed else 400)
    assert allowed or preflight.json()["detail"] == "Disallowed CORS origin"
    assert "Origin" in preflight.headers["vary"]
    exposed = {"X-Request-ID", "RateLimit", "RateLimit-Policy", "Retry-After", "WWW-Authenticate"}
    assert not allowed or exposed <= set(read.headers["access-control-expose-headers"].split(", "))


def test_pages_of_a_listed_origin_may_use_every_method_of_the_api(failing):
    routes = json.loads(Path("docs/openapi.json").read_text())["paths"].values()
    methods = {method.upper() for route in routes for method in route}
    for method in methods | {"HEAD"}:
        asked = {"Origin": "https://a.example", "Access-Control-Request-Method": method}
        assert failing.options("/v1/jobs", headers=asked).status_code == 200, method


@pytest.mark.parametrize("given", ["*", "https://a.example/", "a.example", "https://*.example", "null", "ftp://a"])
def test_invalid_origins_are_refused_at_startup(given):
    with pytest.raises(ValidationError):
        Settings(cors_origins=given)


def test_unanswered_requests_get_shutting_down_at_the_shutdown_timeout(tmp_path):
    with EmbeddedServer(tmp_path) as server:

        def ask(http):
            os.kill(server.pid, signal.SIGSTOP)
            connection = HTTPConnection(http.base_url.host, http.base_url.port, timeout=30)
            connection.request("GET", "/v1/jobs")
            http.get("/livez").raise_for_status()  # a later request was answered, so the first was read
            return connection

        try:
            connection, said = logged(server.url, "ending", ask, shutdown_s="1")
        finally:
            os.kill(server.pid, signal.SIGCONT)
    answer = connection.getresponse()
    told = json.load(answer)
    assert (answer.status, told["code"]) == (503, "shutting-down")
    assert plain(told) == plain(recorded_examples()["problems"]["shutting-down"])
    assert answer.getheader("Retry-After")
    assert "Traceback" not in said
    connection.close()
